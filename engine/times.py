"""Instants as text."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from math import modf

SECOND = len("2026-01-01T12:00:00")

_is_utc = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z", re.ASCII).fullmatch
_is_rfc3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII).fullmatch


def rfc3339(at: float) -> str:
    """Seconds since the epoch as RFC 3339 text, UTC, with microseconds and `Z`. It rounds as datetime does, in a third
    of its time: there are some for each event."""
    fraction, whole = modf(at)
    return _of(int(whole), round(fraction * 1e6))


def rfc3339_ns(at: int) -> str:
    """As `rfc3339`, of nanoseconds since the epoch, rounded down."""
    second, rest = divmod(at, 10**9)
    return _of(second, rest // 1000)


def is_utc(text: str) -> bool:
    """Whether the text is an RFC 3339 instant in UTC, with `Z`."""
    try:
        return _is_utc(text) is not None and datetime.fromisoformat(text) is not None  # raises for no date or time
    except ValueError:
        return False


def utc(text: str, at: float) -> str:
    """The RFC 3339 instant `text` in UTC, with `Z`; unchanged if it is that already. Other text becomes `at` (s since
    the epoch).

    A leap second (`:60`) is refused, because no clock of the service can show it.
    """
    try:
        if is_utc(text):
            return text
        if _is_rfc3339(text):
            return _text(datetime.fromisoformat(text.upper()).astimezone(UTC))
    except (ValueError, OverflowError):
        pass
    return rfc3339(at)


def instant(text: str) -> float:
    """The s since the epoch of an RFC 3339 time. Raises ValueError for anything else."""
    if not _is_rfc3339(text):
        raise ValueError(f"{text[:64]!r} is not an RFC 3339 time")
    try:
        return datetime.fromisoformat(text.upper()).timestamp()
    except OverflowError as error:
        raise ValueError(str(error)) from error


def _of(second: int, us: int) -> str:
    if not 0 <= us < 1_000_000:
        more, us = divmod(us, 1_000_000)
        second += more
    return f"{_second(second)}.{us:06d}Z"


@lru_cache(maxsize=100)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat()[:SECOND]


def _text(instant: datetime) -> str:
    return instant.isoformat(timespec="microseconds").replace("+00:00", "Z")
