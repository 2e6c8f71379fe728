"""What the documentation shows is true: definitions that it prints can be registered, pages that it links exist."""

from __future__ import annotations

import re
from pathlib import Path

import orjson
import pytest

from penstock.engine.definition.validation import problems

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
DEFINITION = re.compile(r"```json\n(\{.*?\n\})\n```", re.DOTALL)
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")


def shown_definitions() -> list[tuple[str, str]]:
    return [
        (page.name, body)
        for page in PAGES
        for body in DEFINITION.findall(page.read_text())
        if '"steps": [' in body and '"name"' in body
    ]


def test_there_are_definitions_to_look_at() -> None:
    assert len(shown_definitions()) >= 4


@pytest.mark.parametrize(("page", "body"), shown_definitions())
def test_a_definition_in_the_docs_can_be_registered(page: str, body: str) -> None:
    assert problems(orjson.loads(body)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    broken = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert broken == []
