"""The examples of docs/testing.md are run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def _tests(example: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(example, "docs/testing.md", "exec"), names)
    return {name: value for name, value in names.items() if name.startswith("test_")}


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 5


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_passes(example: str) -> None:
    found = _tests(example)

    assert found
    for test in found.values():
        test()
