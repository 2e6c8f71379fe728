"""Limits that are to take a turn at a time of the broker, as when the next token of a rate is due."""

from __future__ import annotations

import asyncio
import heapq
import itertools

from penstock.actors.runs.limits.limit_actor import LimitActor
from penstock.actors.runs.shared.broker_clock import BrokerClock

SOON_S = 0.001


class TokenTimers:
    """Owned by the limits of a shard. One timer of the event loop serves all of them."""

    def __init__(self, clock: BrokerClock) -> None:
        self._clock = clock
        self._due: list[tuple[float, int, LimitActor]] = []
        self._at: dict[LimitActor, float] = {}
        self._numbers = itertools.count()
        self._timer: asyncio.TimerHandle | None = None

    def wake(self, actor: LimitActor, at: float) -> None:
        """Have the limit take a turn at `at` (s since the epoch), and at no other time that was set before."""
        if self._at.get(actor) == at:
            return
        self._at[actor] = at
        heapq.heappush(self._due, (at, next(self._numbers), actor))
        if self._due[0][2] is actor:
            self._set()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due.clear()
        self._at.clear()

    def _set(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._due:
            delay_s = max(SOON_S, self._due[0][0] - self._clock.now())
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._fire)

    def _fire(self) -> None:
        self._timer, now = None, self._clock.now()
        while self._due and self._due[0][0] <= now:
            at, _, actor = heapq.heappop(self._due)
            if self._at.get(actor) == at:
                del self._at[actor]
                actor.wake()
        self._set()
