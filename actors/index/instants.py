"""Times of events as numbers: thousands of texts a second."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

import msgspec

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
AS_WRITTEN = "2026-01-01T12:00:00.123456Z"  # by this service
FRACTION = AS_WRITTEN.index(".") + 1


def instant_us(text: str) -> int | None:
    """Microseconds since the epoch of an RFC 3339 text; None for any other."""
    fraction = text[FRACTION:-1]
    if len(text) == len(AS_WRITTEN) and text[-1] == "Z" and fraction.isascii() and fraction.isdigit():
        second_us = _second_us(text[:FRACTION])
        return None if second_us is None else second_us + int(fraction)
    return _converted(text)


@lru_cache(maxsize=1000)
def _second_us(text: str) -> int | None:
    """Of a text without the digits after its point."""
    return _converted(f"{text}0Z")


def _converted(text: str) -> int | None:
    try:
        at = msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        return None
    return None if at.tzinfo is None else (at - EPOCH) // MICROSECOND
