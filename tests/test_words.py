"""The product and its pages are written in the field's words: no private vocabulary in names, comments or sentences.

docs/glossary.md has the words to use. A word stands here once nothing in the product needs it any more.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
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
INSTEAD = {
    "burial": "dead letter",
    "burials": "dead letters",
    "buried": "written to the dead letters",
    "buries": "writes a dead letter",
    "bury": "write to the dead letters",
    "desk": "task intake",
    "doorbell": "change notification",
    "gulp": "batch",
    "gulps": "batches",
    "hear": "receive",
    "heard": "received",
    "hears": "receives",
    "laid": "stored",
    "lane": "partition queue",
    "lanes": "partition queues",
    "lays": "stores",
    "lodger": "subscriber",
    "mail": "deliveries",
    "occasion": "trigger event",
    "occasions": "trigger events",
    "occurrence": "trigger event",
    "occurrences": "trigger events",
    "owe": "be due",
    "owed": "due",
    "owes": "is due to",
    "patience": "time limit",
    "played": "run",
    "plays": "runs",
    "rang": "notified",
    "restless": "interrupted",
    "rung": "notified",
    "sparing": "rate-limited",
    "sparingly": "rate-limited",
    "stranger": "anyone without a token, or another machine",
    "strangers": "anyone without a token, or other machines",
    "stray": "stays behind",
    "strays": "lost tasks",
    "tallies": "run metrics",
    "tally": "run metrics",
    "tell": "report",
    "telling": "reporting",
    "tells": "reports",
    "upkeep": "maintenance",
    "verbs": "operations",
    "waif": "lost task",
}
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
ENTRY = re.compile(r"^\| \*\*(.+)\*\* \| (.+) \|$", re.MULTILINE)
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def _words(source: str) -> Iterator[str]:
    """Every word of names, comments and strings, in lower case: `askedFor_this` has three."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if (
            token.type in (tokenize.NAME, tokenize.COMMENT, tokenize.STRING)
            or "FSTRING" in tokenize.tok_name[token.type]
        ):
            yield from (word.lower() for word in WORD.findall(token.string))


@cache
def _used() -> dict[str, set[str]]:
    """The files with each word. It takes seconds, which the collection of the tests must not."""
    found: dict[str, set[str]] = {}
    for path in (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        for word in set(_words(path.read_text())):
            found.setdefault(word, set()).add(name)
    return found


IN_PAGES = INSTEAD | {
    "letter": "dead letter",
    "letters": "dead letters",
    "told": "answered, reported or notified",
}
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
CODE = re.compile(r"^```(?s:.*?)^```$|^ {4}.*$|`[^`]*`|\]\([^)]*\)|^\[.*\]: .*$", re.MULTILINE)


def _words_of_a_page(text: str) -> set[str]:
    """Every word of the sentences and tables of a page, in lower case, without code and addresses."""
    prose = re.sub(r"dead[\s-]letter", "", CODE.sub(" ", text), flags=re.IGNORECASE)
    return {word.lower() for word in re.findall(r"[A-Za-z]+", prose)}


@cache
def _written() -> dict[str, set[str]]:
    """The words of each page."""
    return {path.relative_to(ROOT).as_posix(): _words_of_a_page(path.read_text()) for path in PAGES}


@pytest.mark.parametrize("word", sorted(INSTEAD))
def test_no_word_of_a_private_vocabulary_stands_in_the_product(word: str) -> None:
    assert _used().get(word, set()) == set(), f"write {INSTEAD[word]!r} instead"


@pytest.mark.parametrize(
    "line",
    ["lost_waif = 1", "class Waif: ...", "LOST_WAIF = 1", "x = 1  # a waif", '"""The waif."""', 'f"no {waif} here"'],
)
def test_a_word_is_found_wherever_it_stands(line: str) -> None:
    assert "waif" in set(_words(line))


@pytest.mark.parametrize("word", sorted(IN_PAGES))
def test_no_word_of_a_private_vocabulary_stands_in_a_page(word: str) -> None:
    assert [page for page, words in _written().items() if word in words] == [], f"write {IN_PAGES[word]!r} instead"


def test_a_word_is_found_in_a_page_but_not_in_its_code() -> None:
    page = "A waif, *Lanes*.\n\n| a mail |\n\n```\nbury\n```\n\n    desk\n\n`stray` [x](tally.md) Dead letters, letters"

    words = _words_of_a_page(page)

    assert words & set(IN_PAGES) == {"waif", "lanes", "mail", "letters"}
    assert _words_of_a_page("A dead letter and dead\nletters.") & set(IN_PAGES) == set()


TERMS = [term for term, _ in ENTRY.findall(GLOSSARY)]


@cache
def _text_of_everything_but_the_glossary() -> str:
    pages = [path for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")) if path.name != "glossary.md"]
    sources = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    return "\n".join(path.read_text() for path in (*pages, *sources)).lower()


def test_the_glossary_defines_each_term_once_in_order() -> None:
    assert len(TERMS) > 40
    assert sorted(set(TERMS), key=str.lower) == TERMS


def test_a_definition_is_at_most_three_sentences() -> None:
    long = [term for term, text in ENTRY.findall(GLOSSARY) if len(re.findall(r"\.(?: |$)", text)) > 3]

    assert long == []


@pytest.mark.parametrize("term", TERMS)
def test_a_term_of_the_glossary_is_used(term: str) -> None:
    assert re.search(rf"\b{term.lower().replace(' ', '[ _-]?')}", _text_of_everything_but_the_glossary())


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/concepts.md"])
def test_the_glossary_is_found_from(page: str) -> None:
    assert "glossary.md" in (ROOT / page).read_text()


def test_no_other_page_defines_a_term_again() -> None:
    concepts = (ROOT / "docs" / "concepts.md").read_text()

    assert re.findall(r"^\*\*(.+?)\.?\*\*", concepts, re.MULTILINE) == []
