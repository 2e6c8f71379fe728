"""Actors whose turn is due, begun few at a time: between them the event loop reads what the broker has sent.

Without it, all actors that got an event at once have their turn in the same pass of the loop. When each sends many
messages, the answer to a heartbeat waits behind all of them, and the shard loses its lease.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

TOGETHER = 64  # in one pass of the event loop


class TurnQueue:
    """Owned by a shard."""

    __slots__ = ("_begins", "_left", "_loop", "_scheduled")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._begins: deque[Callable[[], None]] = deque()
        self._left, self._scheduled = TOGETHER, False

    def add(self, begin: Callable[[], None]) -> None:
        """Call `begin` at once, or in one of the next passes of the loop, in the order of the calls."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._next)
        if self._left:
            self._left -= 1
            begin()
        else:
            self._begins.append(begin)

    def _next(self) -> None:
        begins = self._begins
        count = min(TOGETHER, len(begins))
        self._left = TOGETHER - count
        self._scheduled = count > 0
        if count:
            self._loop.call_soon(self._next)
        for _ in range(count):
            begins.popleft()()
