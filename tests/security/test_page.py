"""What docs/security.md says is shown by tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()
TEST = re.compile(r"`(tests/[a-z0-9_/]+\.py)::(test_\w+)`")
CLAIM = re.compile(r"^\| [^|]+ \| (`tests/.+) \|$", re.MULTILINE)


def test_every_claim_names_tests_that_exist() -> None:
    claims = CLAIM.findall(PAGE)
    assert len(claims) > 20
    named = [test for claim in claims for test in TEST.findall(claim)]
    assert len(named) >= len(claims)
    missing = [
        f"{file}::{test}"
        for file, test in named
        if not re.search(rf"^(async )?def {test}\(", _text(file), re.MULTILINE)
    ]
    assert [] == missing


def test_every_file_of_these_tests_shows_a_claim() -> None:
    here = {f"tests/security/{path.name}" for path in Path(__file__).parent.glob("test_*.py")} - {
        "tests/security/test_page.py"
    }
    assert here == {file for file, _ in TEST.findall(PAGE) if file.startswith("tests/security/")}


def _text(file: str) -> str:
    path = ROOT / file
    return path.read_text() if path.exists() else ""
