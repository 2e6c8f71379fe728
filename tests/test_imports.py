"""No module imports itself in a circle, not even by imports that only type checkers see.

The layers' contracts in pyproject.toml say which way imports point between and inside rooms. This test holds the rest:
`if TYPE_CHECKING` may save time at the start of a process, but it may not hide a circle.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (
    "engine",
    "broker",
    "actors",
    "http",
    "client",
    "authoring",
    "worker",
    "cli",
    "config",
    "telemetry",
    "demo",
    "testing",
)


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("penstock", *(part for part in parts if part != "__init__")))


def imported(source: str) -> Iterator[str]:
    """The names that a module imports when it is loaded or type checked, not those that its functions import."""
    statements: list[ast.AST] = [*ast.parse(source).body]
    while statements:
        match statements.pop():
            case ast.Import(names=names):
                yield from (name.name for name in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield from (f"{module}.{name.name}" for name in names)
            case ast.If() | ast.Try() | ast.With() | ast.ExceptHandler() as block:
                statements += ast.iter_child_nodes(block)


def circle(sources: Mapping[str, str]) -> list[str] | None:
    """The modules of one circle of imports, the first one again at the end."""
    graph: dict[str, set[str]] = {}
    for module, source in sources.items():
        found = {name if name in sources else name.rpartition(".")[0] for name in imported(source)}
        graph[module] = {name for name in found if name in sources and name != module}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return None


def test_no_imports_make_a_circle_not_even_behind_type_checking() -> None:
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    sources = {module_of(path): path.read_text() for path in paths}

    assert len(sources) > 200
    assert circle(sources) is None


@pytest.mark.parametrize(
    ("back", "expected"),
    [
        ("import a.one\n", True),
        ("from a import one\n", True),
        ("from a.one import One\n", True),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from a.one import One\n", True),
        ("try:\n    import a.one\nexcept ImportError:\n    pass\n", True),
        ("def late() -> None:\n    import a.one\n", False),
        ("import another.one\n", False),
    ],
)
def test_a_circle_is_found_wherever_a_module_imports(back: str, expected: bool) -> None:
    found = circle({"a": "", "a.one": "from a.two import Two\n", "a.two": back})

    assert expected == (found is not None)
    assert found is None or {"a.one", "a.two"} == set(found)
