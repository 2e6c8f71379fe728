"""Time as the test kit has it: it stands still, until it is moved to the next thing that is due."""

from __future__ import annotations

import heapq
import itertools
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import lru_cache

from penstock.engine.definition.durations import parse
from penstock.engine.errors import Invalid
from penstock.engine.times import instant, rfc3339

DAY_S = 86_400.0
_DAYS = re.compile(r"(\d+(?:\.\d+)?)d(.*)")


class DueAction:
    """Something that is to happen at `at` (s since the epoch), unless it is dropped before. What `repeats` plans itself
    again, for ever."""

    __slots__ = ("act", "at", "live", "repeats")

    def __init__(self, at: float, act: Callable[[], None], repeats: bool) -> None:
        self.at, self.act, self.live, self.repeats = at, act, True, repeats

    def drop(self) -> None:
        self.live = False


class Timeline:
    """Owned by a service in memory. What is due at the same time happens in the order in which it was planned."""

    def __init__(self, now: float) -> None:
        self.now = now
        self._due: list[tuple[float, int, DueAction]] = []
        self._numbers = itertools.count()
        self._repeats = False

    @property
    def stamp(self) -> str:
        """The time as RFC 3339 text."""
        return _stamp(self.now)

    @property
    def next_at(self) -> float | None:
        """When the next thing is due; None: nothing is."""
        while self._due and not self._due[0][2].live:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    @property
    def only_repeats(self) -> bool:
        """Whether nothing is due any more but what repeats for ever."""
        return self._repeats and all(planned.repeats for _, _, planned in self._due if planned.live)

    def at(self, when: float, act: Callable[[], None], *, repeats: bool = False) -> DueAction:
        """Plan something for a time; what should have happened before is due now."""
        self._repeats = self._repeats or repeats
        planned = DueAction(max(when, self.now), act, repeats)
        heapq.heappush(self._due, (planned.at, next(self._numbers), planned))
        return planned

    def after(self, delay_s: float, act: Callable[[], None]) -> DueAction:
        return self.at(self.now + delay_s, act)

    def step(self, until: float) -> bool:
        """Do the next thing, if it is due by then, at its time. Returns False when there is none."""
        when = self.next_at
        if when is None or when > until:
            return False
        self.now = max(self.now, when)
        heapq.heappop(self._due)[2].act()
        return True


def seconds_of(duration: str | float | timedelta) -> float:
    """The seconds of a duration: text (`30s`, `1h30m`, `30d`, `1d12h`), a number of seconds, or a timedelta. Raises
    Invalid."""
    if isinstance(duration, timedelta):
        found = duration.total_seconds()
    elif isinstance(duration, str):
        days = _DAYS.fullmatch(duration)
        number, rest = days.groups() if days else ("0", duration)
        try:
            found = float(number) * DAY_S + (parse(rest) if rest else 0.0)
        except ValueError as error:
            raise Invalid(str(error)) from error
    else:
        found = float(duration)
    if not 0 <= found < float("inf"):
        raise Invalid(f"time goes forward: {duration!r} is no duration")
    return found


def epoch_of(when: str | float | datetime) -> float:
    """The s since the epoch of a time: RFC 3339 text, a datetime with a zone, or such a number. Raises Invalid."""
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise Invalid(f"{when!r} has no time zone")
        return when.timestamp()
    try:
        return instant(when) if isinstance(when, str) else float(when)
    except ValueError as error:
        raise Invalid(str(error)) from error


@lru_cache(8)
def _stamp(now: float) -> str:
    return rfc3339(now)
