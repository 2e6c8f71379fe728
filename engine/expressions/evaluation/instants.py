"""Timestamps and durations of expressions, in whole nanoseconds."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from msgspec import Struct

from penstock.engine.definition import durations
from penstock.engine.definition.identifiers import quoted
from penstock.engine.expressions.evaluation.failures import EvaluationError

SECOND_NS = 1_000_000_000
_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_OFFSET = re.compile(r"([+-]?)(\d\d):(\d\d)", re.ASCII)
_ZONE = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_S, _LAST_S = -62_135_596_800, 253_402_300_799  # the years 1 to 9999
_SPAN_NS_MAX = 315_576_000_000 * SECOND_NS  # as CEL has it: 10,000 years


class Timestamp(Struct, frozen=True, order=True):
    """An instant: nanoseconds since 1970, UTC, in the years 1 to 9999."""

    ns: int

    def text(self) -> str:
        """RFC 3339 with `Z`, and none, three, six or nine digits after the second, as many as it takes."""
        seconds, rest = divmod(self.ns, SECOND_NS)
        whole = (_EPOCH + timedelta(seconds=seconds)).isoformat()[: -len("+00:00")]
        digits = f"{rest:09}"
        while digits.endswith("000"):
            digits = digits[:-3]
        return f"{whole}.{digits}Z" if digits else f"{whole}Z"


class TimeSpan(Struct, frozen=True, order=True):
    """A duration, which may be negative: nanoseconds."""

    ns: int

    def text(self) -> str:
        """Duration text as definitions write it; a negative one begins with `-`."""
        return durations.text_ns(abs(self.ns)) if self.ns >= 0 else f"-{durations.text_ns(-self.ns)}"


def timestamp(ns: int) -> Timestamp:
    if not _FIRST_S <= ns // SECOND_NS <= _LAST_S:
        raise EvaluationError("the timestamp is outside the years 1 to 9999")
    return Timestamp(ns)


def time_span(ns: int) -> TimeSpan:
    if abs(ns) > _SPAN_NS_MAX:
        raise EvaluationError("the duration is too long: 10,000 years is the most")
    return TimeSpan(ns)


def read_timestamp(text: str) -> Timestamp:
    found = _RFC3339.fullmatch(text)
    if found is None:
        raise EvaluationError(f"{quoted(text)} is no timestamp (RFC 3339, for example 2026-01-31T08:00:00Z)")
    day, clock, fraction, zone = found.groups()
    try:
        seconds = (datetime.fromisoformat(f"{day}T{clock}{zone.upper()}") - _EPOCH) // timedelta(seconds=1)
    except (ValueError, OverflowError) as error:
        raise EvaluationError(f"{quoted(text)} is no timestamp: {error}") from error
    return timestamp(seconds * SECOND_NS + int((fraction or "0").ljust(9, "0")))


def read_time_span(text: str) -> TimeSpan:
    bare = text.removeprefix("-")
    try:
        ns = 0 if bare == "0" else durations.nanoseconds(bare)
    except ValueError as error:
        raise EvaluationError(str(error)) from error
    return time_span(ns if bare == text else -ns)


def _at(instant: Timestamp, zone: str) -> datetime:
    return (_EPOCH + timedelta(seconds=instant.ns // SECOND_NS)).astimezone(_zone(zone))


def _zone(name: str) -> tzinfo:
    if found := _OFFSET.fullmatch(name):
        sign, hours, minutes = found.groups()
        offset = timedelta(hours=int(hours), minutes=int(minutes))
        if offset < timedelta(days=1):
            return timezone(-offset if sign == "-" else offset)
    try:
        if _ZONE.fullmatch(name):
            return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        pass
    raise EvaluationError(f"{quoted(name)} is no time zone (for example Europe/Berlin or +02:00)")


TIMESTAMP_PARTS: dict[str, Callable[[datetime], int]] = {
    "getFullYear": lambda local: local.year,
    "getMonth": lambda local: local.month - 1,
    "getDate": lambda local: local.day,
    "getDayOfMonth": lambda local: local.day - 1,
    "getDayOfWeek": lambda local: local.isoweekday() % 7,
    "getDayOfYear": lambda local: local.timetuple().tm_yday - 1,
    "getHours": lambda local: local.hour,
    "getMinutes": lambda local: local.minute,
    "getSeconds": lambda local: local.second,
}
SPAN_UNITS_NS = {"getHours": 3600 * SECOND_NS, "getMinutes": 60 * SECOND_NS, "getSeconds": SECOND_NS}


def part_of_timestamp(name: str, instant: Timestamp, zone: str) -> int:
    """What `getHours` and its like give for an instant in a time zone."""
    if name == "getMilliseconds":
        return instant.ns % SECOND_NS // 1_000_000
    try:
        return TIMESTAMP_PARTS[name](_at(instant, zone))
    except OverflowError as error:
        raise EvaluationError("the timestamp is outside the years 1 to 9999 in that time zone") from error


def part_of_span(name: str, span: TimeSpan) -> int:
    """The whole hours, minutes or seconds of a duration; the milliseconds beyond its last whole second."""
    size = SPAN_UNITS_NS.get(name)
    sign = -1 if span.ns < 0 else 1
    if size is None:
        return sign * (abs(span.ns) % SECOND_NS // 1_000_000)
    return sign * (abs(span.ns) // size)
