"""Limits of a worker on its own tasks of one type: how many at one time, and how many begin in a span of time.

They hold within one process, by its own clock. What all workers together may do is limited by the service.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from penstock.engine.definition import durations
from penstock.engine.definition.identifiers import quoted
from penstock.engine.errors import Invalid

RATE_COUNT_MAX = 100_000
RATE_SPAN_S_MIN = 0.001
RATE_SPAN_S_MAX = 86_400.0
OPENS_S_MIN = 0.02  # what a full rate waits at least: so a high one begins several tasks at a time
OPENS_LATE_S = 0.001  # a timer may fire a moment early

_RATE = re.compile(r"([0-9]{1,9})/(.{1,20})")


class Rate(NamedTuple):
    """At most `tasks` tasks begin in any span of `span_s` seconds."""

    tasks: int
    span_s: float


class TaskLimits(NamedTuple):
    """Those of one task type, as the user wrote them. None: no such limit."""

    rate: str | None = None
    max_concurrency: int | None = None

    @property
    def text(self) -> str:
        """For people: `10/s, 2 at a time`."""
        at_a_time = "" if self.max_concurrency is None else f"{self.max_concurrency} at a time"
        return ", ".join(filter(None, (self.rate, at_a_time)))

    def problems(self, task: str) -> list[str]:
        """What is wrong with them, each with the name of the task type."""
        found = []
        count = self.max_concurrency
        if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
            found.append(f'task "{task}": max_concurrency must be a whole number from 1, not {count!r}')
        if self.rate is not None:
            try:
                read_rate(self.rate)
            except Invalid as error:
                found += [f'task "{task}": {problem}' for problem in error.problems]
        return found


UNLIMITED = TaskLimits()


def read_rate(text: str) -> Rate:
    """The rate in `10/s`, `600/m` or `5/2s`: a count, then a unit or a duration. Raises Invalid."""
    found = _RATE.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise Invalid(f'rate must be a count and a time as in "10/s", "600/m" or "5/2s", not {_shown(text)}')
    count, span = int(found[1]), found[2]
    try:
        span_s = durations.parse(f"1{span}" if span in durations.UNITS_NS else span)
    except ValueError as error:
        raise Invalid(f"rate {quoted(text)}: {error}") from error
    if not 1 <= count <= RATE_COUNT_MAX:
        raise Invalid(f"rate {quoted(text)}: the count must be from 1 to {RATE_COUNT_MAX}")
    if not RATE_SPAN_S_MIN <= span_s <= RATE_SPAN_S_MAX:
        raise Invalid(f"rate {quoted(text)}: the time must be from 1ms to 24h")
    return Rate(count, span_s)


class TaskAllowance:
    """How many tasks of one type may begin now. Owned by an intake; `now` is a clock in seconds that never goes back.

    A task counts for the rate from its beginning until the span is over, whatever becomes of it.
    """

    def __init__(self, limits: TaskLimits, now: Callable[[], float]) -> None:
        self._rate = None if limits.rate is None else read_rate(limits.rate)
        self._max, self._now = limits.max_concurrency, now
        self._running = 0
        self._begun: deque[float] = deque()

    def begin(self) -> None:
        self._running += 1
        if self._rate is not None:
            self._begun.append(self._now())

    def end(self) -> None:
        self._running -= 1

    @property
    def room(self) -> int:
        """How many tasks may begin now; less than 1: none."""
        free = [] if self._max is None else [self._max - self._running]
        if self._rate is not None:
            self._forget()
            free.append(self._rate.tasks - len(self._begun))
        return min(free)

    @property
    def opens_in_s(self) -> float | None:
        """When the rate allows another task, if it allows none now."""
        if self._rate is None:
            return None
        self._forget()
        excess = len(self._begun) - self._rate.tasks
        if excess < 0:
            return None
        return max(self._begun[excess] + self._rate.span_s - self._now() + OPENS_LATE_S, OPENS_S_MIN)

    def _forget(self) -> None:
        assert self._rate is not None
        while self._begun and self._now() - self._begun[0] >= self._rate.span_s:
            self._begun.popleft()


def allowance_of(limits: TaskLimits, now: Callable[[], float]) -> TaskAllowance | None:
    """None for a type without limits: it costs nothing."""
    return None if limits == UNLIMITED else TaskAllowance(limits, now)


def _shown(value: object) -> str:
    return quoted(value) if isinstance(value, str) else repr(value)
