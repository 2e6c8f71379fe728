"""Cron schedules: which instants an expression means in a time zone, right at both changes of the clocks.

Five fields (minute, hour, day of month, month, day of week), or six with the second before them. What happens when the
clocks change follows Debian's cron, for six fields too:
- Minute and hour do not begin with `*`: times of day. One that the clocks skip comes when they have skipped it; one
that they
  show twice comes the first time only.
- Otherwise: whenever the clock on the wall shows a match. So `*/10 * * * *` comes every ten minutes of real time.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from penstock.engine.definition.identifiers import quoted
from penstock.engine.errors import Invalid

EXPRESSION_CHARS_MAX = 256
SECOND = timedelta(seconds=1)
STRIDE = timedelta(days=7)  # no zone changes its clocks and changes them back within a week

_ZONE = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*")
_ANY_TIME = datetime(2024, 1, 1)  # local time, to check whether the expression matches any date


class Cron:
    """One compiled, immutable schedule."""

    __slots__ = ("_expression", "_times_of_day", "_zone")

    def __init__(self, expression: str, timezone: str = "UTC") -> None:
        """Raises Invalid if the expression or the time zone is wrong; each problem begins with the name of the
        field."""
        if found := [*_expression_problems(expression), *_zone_problems(timezone)]:
            raise Invalid(*found)
        minute, hour = expression.split()[-5:-3]
        self._expression, self._zone = expression, ZoneInfo(timezone)
        self._times_of_day = not (minute.startswith("*") or hour.startswith("*"))

    def next(self, after: datetime) -> datetime | None:
        """The first instant after `after`, in UTC and whole seconds; None when there is none within 50 years."""
        after = after.astimezone(UTC)
        try:
            return self._next_time_of_day(after) if self._times_of_day else self._next_on_the_wall(after)
        except (StopIteration, OverflowError):
            return None

    def _next_time_of_day(self, after: datetime) -> datetime:
        matches = CronSim(self._expression, after.astimezone(self._zone).replace(tzinfo=None))
        while (instant := self._instant(next(matches))) <= after:
            pass
        return instant

    def _instant(self, wall: datetime) -> datetime:
        """The first instant at which local clocks show this time of day; for a skipped time, the instant of the
        change."""
        first = wall.replace(tzinfo=self._zone).astimezone(UTC)
        if first.astimezone(self._zone).replace(tzinfo=None) == wall:
            return first
        return self._change(wall.replace(tzinfo=self._zone, fold=1).astimezone(UTC), first) or first

    def _next_on_the_wall(self, after: datetime) -> datetime:
        """Search from one change of the clocks to the next: between them, local time and UTC differ by a constant."""
        begin = after
        while True:
            offset = self._offset(begin)
            wall = (after + offset).replace(tzinfo=None)
            found = next(CronSim(self._expression, wall)).replace(tzinfo=UTC) - offset
            change = self._change(begin, found)
            if change is None:
                return found
            after, begin = change - SECOND, change

    def _change(self, begin: datetime, end: datetime) -> datetime | None:
        """The first instant in (begin, end] at which the offset from UTC differs from that at `begin`."""
        offset = self._offset(begin)
        while begin < end:
            stop = min(begin + STRIDE, end)
            if self._offset(stop) != offset:
                return self._moment(begin, stop)
            begin = stop
        return None

    def _moment(self, before: datetime, since: datetime) -> datetime:
        """The first whole second in (before, since] with the offset of `since`."""
        offset = self._offset(since)
        span = int((since - before).total_seconds())
        low, high = 0, span  # counted back from `since`: at `low` the offset is that of `since`
        while high - low > 1:
            middle = (low + high) // 2
            if self._offset(since - middle * SECOND) == offset:
                low = middle
            else:
                high = middle
        return (since - low * SECOND).replace(microsecond=0)

    def _offset(self, at: datetime) -> timedelta:
        offset = at.astimezone(self._zone).utcoffset()
        assert offset is not None
        return offset


def _expression_problems(expression: str) -> list[str]:
    if len(expression) > EXPRESSION_CHARS_MAX:
        return [f"expression has {len(expression)} characters, {EXPRESSION_CHARS_MAX} is the most"]
    try:
        next(CronSim(expression, _ANY_TIME))
    except CronSimError as error:
        return [
            f"expression {quoted(expression)}: {str(error).lower()} (five fields are needed, or six with seconds first)"
        ]
    except (StopIteration, OverflowError):
        return [f"expression {quoted(expression)} matches no date"]
    return []


def _zone_problems(timezone: str) -> list[str]:
    try:
        if _ZONE.fullmatch(timezone):
            ZoneInfo(timezone)
            return []
    except (KeyError, ValueError, OSError):
        pass
    return [f"timezone {quoted(timezone)} is not known (write for example UTC or Europe/Amsterdam)"]
