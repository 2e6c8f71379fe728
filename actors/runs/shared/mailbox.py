"""Events that wait for their runs: one pending event, the queue of one partition, and the backlog of a whole shard."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import NamedTuple, Protocol

from penstock.actors.runs.shared.revisions import Revisions
from penstock.broker.nats.pull import Delivery, Pull
from penstock.config.limits import MIB
from penstock.engine.run.events import Event
from penstock.telemetry.meters import Histogram

BACKLOG_EVENTS_MAX = 5000  # beyond it the broker keeps the rest
BACKLOG_BYTES_MAX = 64 * MIB
CURRENT_MAX = 50_000  # of a partition


class PendingEvent:
    """One delivered history event that is not acknowledged yet.

    `received` is this process's monotonic time. `redelivered`: another owner, or an earlier life of this one, may have
    seen the event. `handled`: it was carried out, and a snapshot covers it where the run needs one. `event` is what it
    says, if somebody has decoded it before the run is advanced.
    """

    __slots__ = ("delivery", "event", "handled", "received", "redelivered")

    def __init__(self, delivery: Delivery, received: float, redelivered: bool) -> None:
        self.delivery, self.received, self.redelivered, self.handled = delivery, received, redelivered, False
        self.event: Event | None = None


class Backlog:
    """Events of a shard that are not carried out yet, by number and bytes. The shard adds, its actors take away."""

    __slots__ = ("bytes", "events")

    def __init__(self) -> None:
        self.events = self.bytes = 0

    @property
    def full(self) -> bool:
        """Whether no more events may be asked for."""
        return self.events >= BACKLOG_EVENTS_MAX or self.bytes >= BACKLOG_BYTES_MAX

    def remove(self, events: Sequence[PendingEvent]) -> None:
        """These are carried out. The run's state contains them now, so what they say is dropped; each event itself is
        kept until it is acknowledged."""
        self.events -= len(events)
        for event in events:
            delivery = event.delivery
            self.bytes -= len(delivery.data)
            delivery.data = delivery.headers = b""
            delivery.subject, event.event = "", None


class SharedReader(Protocol):
    """Reads several partitions by one consumer: see common_reader.py."""

    def handled(self, queue: PartitionQueue, delivery: Delivery) -> None: ...

    async def give_up(self, queue: PartitionQueue) -> None: ...


class _Handled(NamedTuple):
    """Handled events that follow each other in a partition: the sequence of the first one, and the last one, which is
    all that their acknowledgement takes."""

    first: int
    last: PendingEvent


class PartitionQueue:
    """One partition's pending events in the order of the log, until they are acknowledged. Owned by the shard.

    Events come by `consumer`, as long as there is a `pull`: its own, or by `reader` that of all partitions. All before
    the sequence `start` is handled, and acknowledged if the consumer is its own. What was delivered up to
    `takeover_seq` may have been seen before, by another owner or by this one. `dead_letters` are those that the broker
    has not stored yet, by the sequence of the event. `owned` ends when the shard forgets the partition. `current` are
    revisions of snapshots of runs that have left memory: as long as the shard owns the partition and gets no event of
    such a run, the snapshot has all that its log says. `ends` are the sequences of events, still to come, that the
    shard has stored and folded itself. `handled` is what was before `events`, and is not acknowledged yet.
    """

    __slots__ = (
        "consumer",
        "current",
        "dead_letters",
        "ends",
        "events",
        "handled",
        "number",
        "owned",
        "pull",
        "pulling",
        "reader",
        "start",
        "takeover_seq",
    )

    def __init__(self, number: int, consumer: str, start: int) -> None:
        self.number, self.consumer, self.start = number, consumer, start
        self.events: deque[PendingEvent] = deque()
        self.handled: deque[_Handled] = deque()
        self.dead_letters: dict[int, asyncio.Future[None]] = {}
        self.current = Revisions()
        self.ends: set[int] = set()
        self.takeover_seq = 0
        self.owned = True
        self.pulling = AsyncExitStack()
        self.pull: Pull | None = None
        self.reader: SharedReader | None = None

    async def close(self) -> None:
        """Take no more events."""
        self.pull = None
        await self.pulling.aclose()
        if self.reader is not None:
            await self.reader.give_up(self)

    def begin(self, takeover_seq: int) -> None:
        """Start anew: all that is not acknowledged will be delivered again, so the events from before cannot be
        acknowledged any more. A broker that was restarted may have lost what it had stored last, and uses its sequences
        again."""
        self.start = min(self.start, takeover_seq + 1)
        self.events.clear()
        self.handled.clear()
        self.current.clear()
        self.ends.clear()
        self.takeover_seq = takeover_seq

    def keep_current(self, revision: int) -> None:
        """Note that the snapshot with this revision is as new as the log. Of very many, the rest is not noted."""
        if len(self.current) < CURRENT_MAX:
            self.current.add(revision)

    def drop_handled(self) -> None:
        """Remove the longest handled beginning from memory, up to its last event: with what is held back for seconds,
        tens of thousands would be there in a burst. An event stays until its dead letter is stored."""
        events, dead_letters, first, last = self.events, self.dead_letters, 0, None
        while events and events[0].handled and events[0].delivery.seq not in dead_letters:
            last = events.popleft()
            first = first or last.delivery.seq
        if last is not None:
            self.handled.append(_Handled(first, last))

    @property
    def first(self) -> int | None:
        """The sequence of the first event that is not acknowledged; None if there is none."""
        if self.handled:
            return self.handled[0].first
        return self.events[0].delivery.seq if self.events else None

    def acknowledgeable(self, before: float) -> PendingEvent | None:
        """Remove what was handled of the events that were received before this time. Return the last of them, whose
        acknowledgement covers all."""
        self.drop_handled()
        last, handled = None, self.handled
        while handled and handled[0].last.received < before:
            last = handled.popleft().last
        return last


def observe(latency: Histogram, events: Sequence[PendingEvent]) -> None:
    """Record how long ago each of these was received. Histogram.observe is inlined: this runs twice for each event."""
    now, bounds, counts, total = time.monotonic(), latency.bounds, latency.counts, 0.0
    for event in events:
        waited = now - event.received
        counts[bisect_left(bounds, waited)] += 1
        total += waited
    latency.sum += total
