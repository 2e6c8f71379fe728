"""The time for which a shard may act as the owner of its partitions, by its own clock."""

from __future__ import annotations

import asyncio
import time

from penstock.config.limits import LEASE_S
from penstock.engine.errors import Unavailable


class LeaseLost(Unavailable):
    """The shard's partitions may have other owners now. What it has in memory is out of date."""


class ShardLease:
    """Owned by one shard process. It must be renewed in time. Once `end` was called (`over`), it cannot be renewed."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self._until = 0.0
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def good(self) -> bool:
        return now() < self._until

    def check(self) -> None:
        """Raise LeaseLost unless the lease is good. Call it right before whatever a later owner must not see."""
        if now() >= self._until:
            raise LeaseLost("the lease is over")

    def renewed(self, asked_at: float) -> None:
        """Extend the lease: the broker has stored a heartbeat that was sent at this time (`now`)."""
        if not self.over.is_set():
            self._until = asked_at + LEASE_S
            self._let_go_on()

    def end(self) -> None:
        self._until = 0.0
        self.over.set()

    async def until_good(self) -> None:
        """Return when the lease is good; never when it is over."""
        while not self.good:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter

    def _let_go_on(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():  # else it was cancelled
                waiter.set_result(None)


def now() -> float:
    """Seconds of a clock that nobody sets, and that runs on while the process or the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
