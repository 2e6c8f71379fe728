"""Mail of one run: history events that wait for its actor, and the record of what is handled."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from contextlib import AsyncExitStack

from penstock.broker.nats.pull import Delivery, Pull
from penstock.telemetry.meters import Histogram


class Mail:
    """One delivered history event. `received` is this process's monotonic time; `handled` means that a snapshot covers
    it."""

    __slots__ = ("delivery", "handled", "received")

    def __init__(self, delivery: Delivery, received: float) -> None:
        self.delivery, self.received, self.handled = delivery, received, False


def observe(latency: Histogram, mail: Sequence[Mail]) -> None:
    """How long ago each of these was received. Here and not in a call for each: it is done for every event, twice."""
    now, bounds, counts, total = time.monotonic(), latency.bounds, latency.counts, 0.0
    for one in mail:
        waited = now - one.received
        counts[bisect_left(bounds, waited)] += 1
        total += waited
    latency.sum += total


class Lane:
    """One partition's mail in the order of the log, until it is acknowledged. Owned by the shard.

    It comes by `consumer`, as long as there is a `pull`. All before the sequence `start` is handled and acknowledged.
    What was delivered up to `takeover_seq` may have been seen before, by another owner or by this one. `burials` are
    dead letters that are not stored yet, by the sequence of the event.
    """

    __slots__ = ("burials", "consumer", "pull", "pulling", "queue", "start", "takeover_seq")

    def __init__(self, consumer: str, start: int) -> None:
        self.consumer, self.start = consumer, start
        self.queue: deque[Mail] = deque()
        self.burials: dict[int, asyncio.Future[None]] = {}
        self.takeover_seq = 0
        self.pulling = AsyncExitStack()
        self.pull: Pull | None = None

    async def close(self) -> None:
        """Take no more mail."""
        self.pull = None
        await self.pulling.aclose()

    def begin(self, takeover_seq: int) -> None:
        """All that is not acknowledged will be delivered again: the mail from before is not ours to acknowledge any
        more."""
        self.queue.clear()
        self.takeover_seq = takeover_seq

    def acknowledgeable(self, before: float) -> Mail | None:
        """Take off the longest handled beginning that was received before this time; its last mail speaks for all of
        it."""
        last = None
        queue, unburied = self.queue, min(self.burials, default=None)
        while queue and queue[0].handled and queue[0].received < before:
            if unburied is not None and queue[0].delivery.seq >= unburied:
                break
            last = queue.popleft()
        return last
