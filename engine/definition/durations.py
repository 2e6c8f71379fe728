"""Durations as users write them (`500ms`, `1h30m`) and as the engine counts them: in seconds.

The resolution is one nanosecond. An integer in JSON is a count of nanoseconds, as Go workers send it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction

from penstock.engine.definition.identifiers import quoted

SECOND_NS = 1_000_000_000
YEARS_MAX = 10
NS_MAX = YEARS_MAX * 365 * 86_400 * SECOND_NS

# Largest first: `text` uses them in this order, with the first spelling of each size.
UNITS_NS = {
    "h": 3600 * SECOND_NS,
    "m": 60 * SECOND_NS,
    "s": SECOND_NS,
    "ms": 1_000_000,
    "us": 1_000,
    "µs": 1_000,
    "\u03bcs": 1_000,  # Greek mu, which Go also reads
    "ns": 1,
}

_NUMBER = r"([0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
_UNIT = "(" + "|".join(sorted(UNITS_NS, key=len, reverse=True)) + ")"
_PART = re.compile(_NUMBER + _UNIT)
PATTERN = f"(?:{_NUMBER}{_UNIT})+"
_WHOLE = re.compile(PATTERN)
_LENGTH_MAX = 100
# Without the pattern, which is checked by the service.
SCHEMA = {"type": "string", "minLength": 1, "maxLength": _LENGTH_MAX, "examples": ["30s"]}


def parse(value: str | int) -> float:
    """Seconds, from 0 to 10 years, of duration text or of a count of nanoseconds.

    Raises ValueError, with a sentence for the user, for text without units and for an empty, negative or longer
    duration.
    """
    ns = value if isinstance(value, int) else nanoseconds(value)
    shown = quoted(value) if isinstance(value, str) else f"{value} ns"
    if ns < 0:
        raise ValueError(f"{shown} is negative")
    if ns > NS_MAX:
        raise ValueError(f"{shown} is longer than {YEARS_MAX} years")
    return ns / SECOND_NS


def text(seconds: float) -> str:
    """The normal form of `seconds`, which are not negative: whole numbers, largest unit first (`1m30s`, `1s500ms`,
    `0s`)."""
    # repr is the shortest text that names this float, so no binary noise comes through as nanoseconds.
    return text_ns(round(Decimal(repr(seconds)) * SECOND_NS))


def text_ns(ns: int) -> str:
    """The normal form of so many nanoseconds, which are not negative."""
    assert ns >= 0, ns
    return "".join(_parts(ns)) or "0s"


def seconds(value: str | None) -> float | None:
    """The seconds of valid duration text; None for None."""
    return None if value is None else parse(value)


def nanoseconds(value: str) -> int:
    """The nanoseconds of duration text, of any length, negative if it begins with `-`; raises ValueError with a
    sentence for the user."""
    bare = value.removeprefix("-")
    if len(bare) > _LENGTH_MAX or not _WHOLE.fullmatch(bare):
        raise ValueError(f"{quoted(value)} is not a duration (write for example 500ms, 30s, 5m, 1h30m)")
    ns = round(sum(Fraction(number) * UNITS_NS[unit] for number, unit in _PART.findall(bare)))
    return ns if bare == value else -max(ns, 1)


def _parts(ns: int) -> Iterator[str]:
    for unit, size in UNITS_NS.items():
        count, ns = divmod(ns, size)
        if count:
            yield f"{count}{unit}"
