"""Starts of executions that are held back for a moment: of one that is answered meanwhile, the answer says when it
began, and the log has one event less.

One timer for all of them, so that a short task costs none.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from penstock.config.limits import START_HELD_BACK_S

TICK_S = START_HELD_BACK_S / 5
WAIT_S = START_HELD_BACK_S - TICK_S  # a start is reported by the first tick after this


class Beginning(Protocol):
    """An execution that has begun."""

    def report_start(self) -> None:
        """Report the start, unless it is reported or over."""


class HeldStarts:
    """Owned by a transport."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._held: deque[tuple[float, Beginning]] = deque()
        self._ticks = False

    def hold(self, beginning: Beginning) -> None:
        """Have its start reported within START_HELD_BACK_S."""
        now = self._loop.time()
        self._held.append((now + WAIT_S, beginning))
        if not self._ticks:
            self._ticks = True
            self._loop.call_at(now + WAIT_S, self._tick)

    def _tick(self) -> None:
        now = self._loop.time()
        while self._held and self._held[0][0] <= now:
            self._held.popleft()[1].report_start()
        self._ticks = bool(self._held)
        if self._ticks:
            self._loop.call_at(max(self._held[0][0], now + TICK_S), self._tick)
