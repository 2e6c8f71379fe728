"""The time for which a shard may act as the owner of its partitions, by its own clock."""

from __future__ import annotations

import asyncio
import time

from penstock.config.limits import LEASE_S
from penstock.engine.errors import Unavailable


class LeaseLost(Unavailable):
    """Others may own by now what this shard owned. What it has in memory is of no use any more."""


class ShardLease:
    """Owned by one life of a shard. Once it is over it stays so; `over` says that somebody has noticed."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self._until = 0.0

    @property
    def good(self) -> bool:
        return now() < self._until

    def check(self) -> None:
        """Raise LeaseLost unless the lease is good. Whoever does what a later owner must not see asks right before."""
        if now() >= self._until:
            raise LeaseLost("the lease is over")

    def renewed(self, asked_at: float) -> None:
        """The broker has stored a sign of life that was sent at this time (`now`)."""
        if not self.over.is_set():
            self._until = asked_at + LEASE_S

    def end(self) -> None:
        self._until = 0.0
        self.over.set()


def now() -> float:
    """Seconds that go on while this process, or the machine, is asleep; and that nobody sets."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
