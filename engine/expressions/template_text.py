"""The parts of a text with `${{ … }}` in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from penstock.engine.errors import Invalid

OPEN, CLOSE, LITERAL = "${{", "}}", "$${{"


class Placeholder(NamedTuple):
    """An expression in a text: what stands between the braces, and where that begins, in characters from 0."""

    expression: str
    at: int


def split(text: str) -> list[str | Placeholder]:
    """The parts in their order; `$${{` has become `${{` in those that are plain text. Raises Invalid for a `${{` that
    has no end."""
    return list(_joined(_parts(text)))


def has_placeholder(text: str) -> bool:
    """Whether anything in the text is not as it stands there."""
    return OPEN in text


def _parts(text: str) -> Iterator[str | Placeholder]:
    place = 0
    while (found := text.find(OPEN, place)) >= 0:
        if text.startswith(LITERAL, found - 1) and found > place:
            yield text[place : found - 1] + OPEN
            place = found + len(OPEN)
            continue
        begin = found + len(OPEN)
        end = _end(text, begin)
        if end is None:
            raise Invalid(
                f'column {found + 1}: "{OPEN}" has no "{CLOSE}" (write "{LITERAL}" for the characters themselves)'
            )
        yield text[place:found]
        yield Placeholder(text[begin:end], begin)
        place = end + len(CLOSE)
    yield text[place:]


def _joined(parts: Iterator[str | Placeholder]) -> Iterator[str | Placeholder]:
    """The same with neighbouring pieces of plain text in one, and without empty ones."""
    plain = ""
    for part in parts:
        if isinstance(part, str):
            plain += part
            continue
        if plain:
            yield plain
        plain = ""
        yield part
    if plain:
        yield plain


def _end(text: str, place: int) -> int | None:
    """Where the first `}}` outside strings and braces begins."""
    depth = 0
    while place < len(text):
        character = text[place]
        if character in "'\"":
            place = _after_string(text, place)
            continue
        if character == "{":
            depth += 1
        elif character == "}" and depth:
            depth -= 1
        elif text.startswith(CLOSE, place):
            return place
        place += 1
    return None


def _after_string(text: str, place: int) -> int:
    """The place after the string of CEL that begins here: one quote or three, raw ones without escapes."""
    quote = text[place] * 3 if text.startswith(text[place] * 3, place) else text[place]
    is_raw = _is_raw(text, place)
    place += len(quote)
    while place < len(text) and not text.startswith(quote, place):
        place += 1 if is_raw or text[place] != "\\" else 2
    return place + len(quote)


def _is_raw(text: str, place: int) -> bool:
    """Whether the quote here follows a prefix with an `r` in it: r, br or rb, in either case, and no longer word."""
    begin = place
    while begin and (text[begin - 1].isalnum() or text[begin - 1] == "_"):
        begin -= 1
    return text[begin:place].lower() in ("r", "rb", "br")
