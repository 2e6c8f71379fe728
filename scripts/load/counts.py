"""What a load has done so far, and what came of it."""

from __future__ import annotations

import time
from collections import Counter

from msgspec import Struct

from .figures import Percentiles, per_second, percentiles


class Result(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`seconds` is from the first request to the last end that was seen; `complete`: every accepted run was seen to
    end."""

    mode: str
    steps: int
    begun: int
    accepted: int
    ended: dict[str, int]
    errors: dict[str, int]
    complete: bool
    seconds: float
    runs_per_s: float
    accepted_per_s: float
    acceptance_ms: Percentiles | None = None
    run_ms: Percentiles | None = None
    ended_per_second: list[int] = []


class Counts:
    """Owned by one load; the modes write into it, progress and report read it at any time."""

    def __init__(self, expected: int | None) -> None:
        self.expected = expected
        self.begin = self.accepted_at = self.last = self.now()
        self.begun = self.accepted = 0
        self.ended: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self._acceptance_s: list[float] = []
        self._run_s: list[float] = []
        self._moments: list[float] = []

    def now(self) -> float:
        """In s, exact to the microsecond; the loop's own clock counts milliseconds."""
        return time.perf_counter()

    @property
    def open(self) -> int:
        """Runs that were accepted and not yet seen to end."""
        return self.accepted - self.ended.total()

    def accept(self, since: float, runs: int = 1) -> None:
        """The service answered a request that was meant to be sent at `since`."""
        self.accepted_at = self.now()
        self.accepted += runs
        self._acceptance_s.append(self.accepted_at - since)

    def end(self, status: str, since: float) -> None:
        """A run that was meant to start at `since` is seen to have ended."""
        self._run_s.append(self.now() - since)
        self.end_many(status, 1)

    def end_many(self, status: str, runs: int) -> None:
        """So many runs more are seen to have ended, since nobody knows when exactly."""
        self.last = self.now()
        self.ended[status] += runs
        self._moments += [self.last] * runs

    def fail(self, error: Exception) -> None:
        """A request went wrong."""
        self.errors[str(error) or type(error).__name__] += 1

    def result(self, mode: str, steps: int) -> Result:
        total = self.ended.total()
        return Result(
            mode=mode,
            steps=steps,
            begun=self.begun,
            accepted=self.accepted,
            ended=dict(self.ended),
            errors=dict(self.errors),
            complete=self.open == 0 and not self.errors,
            seconds=round(self.last - self.begin, 3),
            runs_per_s=_rate(total, self.last - self.begin),
            accepted_per_s=_rate(self.accepted, self.accepted_at - self.begin),
            acceptance_ms=percentiles(self._acceptance_s),
            run_ms=percentiles(self._run_s),
            ended_per_second=per_second(self._moments, self.begin),
        )


def _rate(count: int, seconds: float) -> float:
    return round(count / seconds, 1) if seconds > 0 else 0.0
