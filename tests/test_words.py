"""The product is written in the field's words: no private vocabulary in names, docstrings, comments or strings.

docs/glossary.md has the words to use. A word stands here once nothing in the product needs it any more.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("engine", "broker", "actors", "http", "client", "worker", "cli", "config", "telemetry", "demo")
INSTEAD = {
    "burial": "dead letter",
    "buries": "writes a dead letter",
    "desk": "task intake",
    "lodger": "subscriber",
    "occasion": "trigger event",
    "occasions": "trigger events",
    "restless": "interrupted",
    "waif": "lost task",
}
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def _words(source: str) -> Iterator[str]:
    """Every word of names, comments and strings, in lower case: `askedFor_this` has three."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if (
            token.type in (tokenize.NAME, tokenize.COMMENT, tokenize.STRING)
            or "FSTRING" in tokenize.tok_name[token.type]
        ):
            yield from (word.lower() for word in WORD.findall(token.string))


def _used() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for path in (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        for word in _words(path.read_text()):
            found.setdefault(word, set()).add(path.relative_to(ROOT).as_posix())
    return found


USED = _used()


@pytest.mark.parametrize("word", sorted(INSTEAD))
def test_no_word_of_a_private_vocabulary_stands_in_the_product(word: str) -> None:
    assert USED.get(word, set()) == set(), f"write {INSTEAD[word]!r} instead"


@pytest.mark.parametrize(
    "line",
    ["lost_waif = 1", "class Waif: ...", "LOST_WAIF = 1", "x = 1  # a waif", '"""The waif."""', 'f"no {waif} here"'],
)
def test_a_word_is_found_wherever_it_stands(line: str) -> None:
    assert "waif" in set(_words(line))
