"""Times and durations as people write them, and as they read them."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import click
from msgspec import UnsetType

MINUTE_S = 60
HOUR_S = 60 * MINUTE_S
DAY_S = 24 * HOUR_S
DAYS = re.compile(r"([0-9]+)d")


class Past(click.ParamType[str]):
    """A moment as RFC 3339 text: given so, or by how long ago it was (`90s`, `1h30m`, `7d`)."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        found = _given(value) or _from_now(value.removeprefix("-"), before=True)
        if found is None:
            self.fail(
                f"{value!r} is neither a time such as 2026-01-31T12:00:00Z nor a while ago such as 30m, 1h30m or 7d",
                param,
                ctx,
            )
        return found


class Future(click.ParamType[str]):
    """A moment as RFC 3339 text: given so, or by how far ahead it is (`+30s`, `+1h30m`, `+7d`)."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        found = _given(value) or _from_now(value.removeprefix("+"), before=False)
        if found is None:
            self.fail(
                f"{value!r} is neither a time such as 2027-01-31T12:00:00Z "
                "nor a while from now such as +30s, +1h30m or +7d",
                param,
                ctx,
            )
        return found


def took(started_at: str | None, finished_at: str | None, now: datetime | None = None) -> str:
    """The time between two RFC 3339 texts, or until `now` when the second is absent, as `lasting`. Empty when not
    started."""
    if started_at is None:
        return ""
    end = (now or datetime.now(UTC)) if finished_at is None else datetime.fromisoformat(finished_at)
    return lasting((end - datetime.fromisoformat(started_at)).total_seconds())


def lasting(seconds: float) -> str:
    """`12ms`, `1.5s`, `42s`, `3m05s`, `2h07m`, `3d04h`; nothing is shorter than 0."""
    if seconds < 0.9995:
        return f"{max(0, round(seconds * 1000))}ms"
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < MINUTE_S:
        return f"{whole}s"
    if whole < HOUR_S:
        return f"{whole // MINUTE_S}m{whole % MINUTE_S:02}s"
    if whole < DAY_S:
        return f"{whole // HOUR_S}h{whole % HOUR_S // MINUTE_S:02}m"
    return f"{whole // DAY_S}d{whole % DAY_S // HOUR_S:02}h"


def age(text: str | UnsetType | None, now: datetime | None = None) -> str:
    """How long ago (or ahead) an RFC 3339 text is on a terminal, as `3m ago`; anywhere else as `moment`."""
    at = None if text is None or isinstance(text, UnsetType) else _read(text)
    if at is None or not sys.stdout.isatty():
        return moment(text)
    seconds = ((now or datetime.now(UTC)) - at).total_seconds()
    return f"in {_coarse(-seconds)}" if seconds < 0 else f"{_coarse(seconds)} ago"


def moment(text: str | UnsetType | None, timespec: str = "seconds") -> str:
    """An RFC 3339 text without the digits that nobody reads; other text is returned unchanged."""
    if text is None or isinstance(text, UnsetType):
        return ""
    at = _read(text)
    return text if at is None else at.isoformat(timespec=timespec).replace("+00:00", "Z")


def _coarse(seconds: float) -> str:
    whole = round(seconds)
    for name, size in (("d", DAY_S), ("h", HOUR_S), ("m", MINUTE_S)):
        if whole >= size * (2 if name == "d" else 1):
            return f"{whole // size}{name}"
    return f"{whole}s"


def _given(value: str) -> str | None:
    at = _read(value)
    return None if at is None else at.isoformat().replace("+00:00", "Z")


def _read(text: str) -> datetime | None:
    """The moment of an RFC 3339 text in UTC; None for any other, also for a time without its zone."""
    try:
        at = datetime.fromisoformat(text)
        return None if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _from_now(text: str, *, before: bool) -> str | None:
    seconds = _seconds(text)
    if seconds is None:
        return None
    try:
        at = datetime.now(UTC) + timedelta(seconds=-seconds if before else seconds)
    except OverflowError:
        return None
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _seconds(text: str) -> float | None:
    """Those of a duration; `7d` besides what the service takes."""
    from penstock.engine.definition.durations import parse

    if days := DAYS.fullmatch(text):
        return int(days[1]) * DAY_S
    try:
        return parse(text)
    except ValueError:
        return None
