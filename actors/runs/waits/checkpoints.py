"""Checkpoints of waits: how far the waits of a partition have seen the stream of events.

A shard that takes a partition over reads for its waits only what was stored since the checkpoint, however old they are.
A checkpoint lists the waits that it is about. What it says of them stays true: a wait has looked at all events up to a
sequence, and none has ended it. So it may be lost, repeated, or written late by a former owner: then the next owner
reads more, and finds the same. A wait that is not listed, as a new one, is served from its beginning.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from penstock.actors.runs.shared.lease import LeaseLost, ShardLease
from penstock.actors.runs.waits.wait_index import OpenWait
from penstock.broker.records.event_waits import MARK_BYTES, SeenBy, WaitCheckpoint, WaitRecords
from penstock.broker.streams.events import EventsTip
from penstock.config.limits import WAIT_CHECKPOINT_S
from penstock.config.logging import get_logger
from penstock.config.process.background import report
from penstock.config.process.crash_points import reached
from penstock.config.process.rate_limited_log import log_rate_limited
from penstock.engine.errors import PenstockError

log = get_logger()


class WaitCheckpoints:
    """Owned by the waits of a shard. `run` writes at intervals for partitions that have waits or a checkpoint."""

    def __init__(
        self, records: WaitRecords, lease: ShardLease, current: Callable[[int], WaitCheckpoint | None]
    ) -> None:
        """`current` returns a partition's checkpoint as of now: empty when the partition has no waits; None while there
        is nothing to be said, and what is stored stays."""
        self._records, self._lease, self._current = records, lease, current
        self._stored: dict[int, WaitCheckpoint | None] = {}
        self._wanted = asyncio.Event()

    def want(self, partition: int) -> None:
        """The partition has waits from now on."""
        self._stored.setdefault(partition, None)
        self._wanted.set()

    def learn(self, partition: int, checkpoint: WaitCheckpoint) -> None:
        """This one is stored: it is replaced, or removed when the partition has no waits."""
        self._stored[partition] = checkpoint
        self._wanted.set()

    def forget(self, partition: int) -> None:
        """Another shard may own the partition."""
        self._stored.pop(partition, None)

    async def run(self) -> None:
        """Write at intervals what has changed, for ever."""
        while True:
            await self._wanted.wait()
            await asyncio.sleep(WAIT_CHECKPOINT_S)
            for partition in list(self._stored):
                await self.save(partition)
            if not self._stored:
                self._wanted.clear()

    async def save(self, partition: int) -> None:
        """Write the partition's checkpoint if it has changed. Without an answer of the broker it stays as it was."""
        try:
            found = self._current(partition)
            if found is not None and found != self._stored.get(partition):
                self._lease.check()
                await self._replace(partition, found)
        except LeaseLost:
            return
        except Exception as error:
            if not isinstance(error, PenstockError):
                report("event_wait_checkpoints", error)
            log_rate_limited(log, "event_waits_not_checkpointed", partition=partition, error=str(error))

    async def _replace(self, partition: int, found: WaitCheckpoint) -> None:
        if found.seen:
            await self._write(partition, found)
        elif self._stored.pop(partition, None) is not None:
            await self._records.remove_checkpoint(partition)

    async def _write(self, partition: int, checkpoint: WaitCheckpoint) -> None:
        await self._records.write_checkpoint(partition, checkpoint)
        reached("event_wait.checkpointed")
        if partition in self._stored:
            self._stored[partition] = checkpoint


def checkpoint_of(waits: Iterable[OpenWait], position: int, created: str) -> WaitCheckpoint | None:
    """What these waits have seen, when their shard has read the stream that was `created` then up to this position;
    None: nothing yet."""
    marks: dict[int, list[bytes]] = {}
    for waiting in waits:
        seq = waiting.past if waiting.busy else max(waiting.past, position)
        if seq:
            marks.setdefault(seq, []).append(waiting.mark)
    seen = tuple(SeenBy(seq, b"".join(found)) for seq, found in sorted(marks.items()))
    return WaitCheckpoint(created, seen) if seen else None


def seen_by(checkpoint: WaitCheckpoint, tip: EventsTip) -> dict[bytes, int]:
    """The sequences up to which waits have seen the stream, by their marks; none if it is another stream by now."""
    if checkpoint.created != tip.created or any(part.seq > tip.seq for part in checkpoint.seen):
        return {}
    return {
        part.marks[start : start + MARK_BYTES]: part.seq
        for part in checkpoint.seen
        for start in range(0, len(part.marks), MARK_BYTES)
    }
