"""The waits for events of the runs of a shard.

A wait is in memory, and in a bucket for the next owner of its partition. One reader of the stream of events serves all
waits of the shard; it is there while there are waits. What was stored before a wait began, or while nobody looked, is
read once for all waits that need it; while nobody looked is known by the last checkpoint (checkpoints.py). Up to a
certain sequence a wait is served by that, from there on by the reader: so there is no gap, and each wait sees events in
the order of the stream. Whoever looks finds the same event first.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from penstock.actors.runs.shared.broker_clock import BrokerClock
from penstock.actors.runs.shared.lease import LeaseLost, ShardLease
from penstock.actors.runs.waits.checkpoints import WaitCheckpoints, checkpoint_of, seen_by
from penstock.actors.runs.waits.endings import received, timed_out
from penstock.actors.runs.waits.matching import EventMatching
from penstock.actors.runs.waits.wait_index import EventWaitIndex, FoundEvent, OpenWait, RecentEvents
from penstock.broker import names, record_keys
from penstock.broker.nats.direct import Stored
from penstock.broker.nats.tail import Lost, ReadBatch, Tail
from penstock.broker.records.event_waits import StoredWaits, WaitCheckpoint, WaitRecord
from penstock.broker.store import Store
from penstock.config.logging import get_logger
from penstock.config.process.background import begin, end, report, start
from penstock.config.process.crash_points import reached
from penstock.config.process.rate_limited_log import log_rate_limited
from penstock.engine.errors import PenstockError
from penstock.engine.run.commands import AwaitEvent, StopWaiting
from penstock.engine.run.events import Event
from penstock.engine.run.state import Run
from penstock.engine.times import instant

BATCH = 256
DEAD_MAX = 1000  # deadlines of waits that have ended
LOOKS_AT_ONCE = 64  # names of events whose older ones are read
IDLE_S = 30.0
AGAIN_S = 0.5
CHECK_S = 1.0  # the clock may learn the broker's time
BUSY_S = 0.05  # a wait whose deadline is over is asked again so much later whether it has looked at everything

log = get_logger()


class EventWaits:
    """Owned by one shard, as long as it lives. `run` does the work; times are the broker's."""

    def __init__(self, store: Store, lease: ShardLease, clock: BrokerClock) -> None:
        self._store, self._lease, self._clock = store, lease, clock
        self._matching = EventMatching(store)
        self._index = EventWaitIndex()
        self._waits: dict[int, dict[str, OpenWait]] = {}
        self._count = 0
        self._stopped: dict[int, set[str]] = {}
        self._to_look: dict[str, list[OpenWait]] = {}
        self._looking: set[str] = set()
        self._looks = asyncio.Semaphore(LOOKS_AT_ONCE)
        self._deadlines: list[tuple[float, int, OpenWait]] = []
        self._numbers = itertools.count()
        self._checkpoints = WaitCheckpoints(store.event_waits, lease, self._checkpoint)
        self._recent = RecentEvents(float("inf"))
        self._position, self._created = 0, ""
        self._wanted, self._placed, self._moved, self._timed = (asyncio.Event() for _ in range(4))

    @property
    def in_memory(self) -> int:
        """The number of waits."""
        return self._count

    def begin(self, run: Run, command: AwaitEvent, conditional: bool) -> asyncio.Future[bytes]:
        """Look for an event from now on. The future ends when the wait is stored: whoever owns the run next goes on."""
        run_id, since = run.run_id, instant(run.step(command.step_id).started_at or run.created_at)
        began = since if command.wait.since < since else 0.0
        record = WaitRecord(run_id, command.step_id, command.attempt, command.wait, conditional, began)
        self._add(names.partition(run_id), record)
        return self._store.event_waits.send(record)

    def end(self, run_id: str, command: StopWaiting) -> asyncio.Future[bytes]:
        """Look no more. The future ends when the broker has noted it."""
        key, partition = record_keys.wait_key(run_id, command.step_id, command.attempt), names.partition(run_id)
        if partition in self._stopped:
            self._stopped[partition].add(key)
        waiting = self._waits.get(partition, {}).get(key)
        if waiting is not None:
            self._drop(partition, waiting)
        return self._store.event_waits.remove(key)

    def own(self, partition: int) -> None:
        """Take over the waits of a partition that the shard owns from now on."""
        self._stopped[partition] = set()
        start(self._restore(partition, self._stopped[partition]), name="event_waits_restored")

    def forget(self, partition: int) -> None:
        """Drop the waits of a partition that this shard does not own any more."""
        self._stopped.pop(partition, None)
        self._checkpoints.forget(partition)
        for waiting in list(self._waits.get(partition, {}).values()):
            self._drop(partition, waiting)

    async def save(self, partition: int) -> None:
        """Write down for the next owner of a partition how far its waits have seen the events."""
        await self._checkpoints.save(partition)

    async def run(self) -> None:
        """Read events while there are waits, for ever."""
        deadlines = start(self._watch_deadlines(), name="event_wait_deadlines")
        checkpoints = start(self._checkpoints.run(), name="event_wait_checkpoints")
        try:
            async with self._matching:
                while True:
                    await self._wanted.wait()
                    try:
                        await self._follow()
                    except LeaseLost:
                        return
                    except Exception as error:
                        self._report(error)
                        await asyncio.sleep(AGAIN_S)
        finally:
            self._placed.set()  # whoever waits for the reader sees that its waits are dropped, and ends
            await end(deadlines, checkpoints)

    def _add(self, partition: int, record: WaitRecord, past: int = 0) -> None:
        """Look for the event of a wait among those after the sequence `past`; 0: from the beginning of the wait."""
        waits = self._waits.setdefault(partition, {})
        if (known := waits.get(record.key)) is not None:  # its run has begun it again before it was restored
            known.past = max(known.past, past)
            return
        waiting = waits[record.key] = OpenWait(record, past)
        self._count += 1
        self._checkpoints.want(partition)
        self._index.add(waiting)
        if record.wait.until is not None:
            self._push(record.wait.until, waiting)
        self._wanted.set()
        if not self._placed.is_set() or not self._recent.has_none(record.wait.event, record.wait.since):
            self._look_back(waiting)

    def _drop(self, partition: int, waiting: OpenWait) -> None:
        waiting.live = False
        del self._waits[partition][waiting.record.key]
        if not self._waits[partition]:
            del self._waits[partition]
        self._count -= 1
        self._index.remove(waiting)
        self._matching.forget(waiting.record)

    async def _restore(self, partition: int, stopped: set[str]) -> None:
        while self._stopped.get(partition) is stopped:
            try:
                stored = await self._store.event_waits.of_partition(partition)
                seen = await self._seen(stored)
            except PenstockError as error:
                log_rate_limited(log, "event_waits_not_restored", partition=partition, error=str(error))
                await asyncio.sleep(AGAIN_S)
                continue
            if self._stopped.get(partition) is stopped:
                del self._stopped[partition]
                if stored.checkpoint is not None:
                    self._checkpoints.learn(partition, stored.checkpoint)
                for record in stored.records:
                    if record.key not in stopped:
                        self._add(partition, record, seen.get(record.mark, 0) if seen else 0)

    async def _seen(self, stored: StoredWaits) -> Mapping[bytes, int]:
        """The sequences up to which waits were served before, by their marks."""
        if stored.checkpoint is None or not stored.records:
            return {}
        return seen_by(stored.checkpoint, await self._store.events.tip())

    def _checkpoint(self, partition: int) -> WaitCheckpoint | None:
        """How far a partition's waits have seen the events; None: not known now."""
        waits = self._waits.get(partition)
        if partition in self._stopped or (waits and not self._placed.is_set()):
            return None
        if not waits:
            return WaitCheckpoint(self._created)
        return checkpoint_of(waits.values(), self._position, self._created)

    async def _follow(self) -> None:
        """Read from where the reader was; with no waits any more, forget where that is."""
        if not self._placed.is_set():
            tip = await self._store.events.tip()
            self._position, self._created, self._recent = tip.seq, tip.created, RecentEvents(tip.at)
            self._placed.set()
        async with self._store.events.tail(self._position) as tail:
            while self._count:
                await self._read(tail)
        if not self._count:
            self._placed.clear()
            self._wanted.clear()

    async def _read(self, tail: Tail) -> None:
        batch = await tail.next(IDLE_S)
        self._take(batch)
        while batch.last is not None and batch.last.pending:
            batch = await tail.waiting(BATCH)
            self._take(batch)
            await asyncio.sleep(0)

    def _take(self, batch: ReadBatch) -> None:
        for delivery in batch.wanted:
            self._position = delivery.seq
            name = names.event_of(delivery.subject)
            if name is None:
                continue
            self._recent.add(name, delivery.at)
            event = FoundEvent(delivery.seq, delivery.at, delivery.data or b"null")
            for waiting in self._index.found(name, event.body):
                if waiting.counts(event):
                    waiting.add(event)
                    self._settle_soon(waiting)
        if batch.wanted:
            self._moved.set()

    def _look_back(self, waiting: OpenWait) -> None:
        """Read the events from before the reader's position for this wait, too."""
        name = waiting.record.wait.event
        waiting.looking, waiting.until_seq = True, 0
        self._to_look.setdefault(name, []).append(waiting)
        if name not in self._looking:
            self._looking.add(name)
            start(self._look(name), name="event_waits_look_back")

    async def _look(self, name: str) -> None:
        """Read for all waits for events of this name, those that come meanwhile in the next round."""
        try:
            await self._placed.wait()  # so that waits that are restored together are looked for together
            while group := [waiting for waiting in self._to_look.pop(name, ()) if waiting.live]:
                try:
                    await self._placed.wait()
                    async with self._looks:
                        await self._look_for(name, group)
                except LeaseLost:
                    return
                except Exception as error:
                    self._report(error)
                    self._to_look.setdefault(name, []).extend(group)
                    await asyncio.sleep(AGAIN_S)
        finally:
            self._looking.discard(name)

    async def _look_for(self, name: str, group: list[OpenWait]) -> None:
        subject, until_seq = names.event_subject(name), self._position
        for waiting in group:
            waiting.until_seq = until_seq
        first = await self._first(subject, group)
        if 0 < first <= until_seq:
            await self._look_from(name, first, until_seq, group)
        for waiting in group:
            waiting.looking = False
            if waiting.live and (waiting.older or waiting.queue):
                self._settle_soon(waiting)

    async def _first(self, subject: str, group: list[OpenWait]) -> int:
        """A sequence before which there is no event for these waits; 0: there is none at all."""
        firsts = [waiting.past + 1 for waiting in group if waiting.past]
        fresh = [waiting.record.wait.since for waiting in group if not waiting.past]
        if fresh and (first := await self._store.events.first_since(subject, min(fresh))):
            firsts.append(first)
        return min(firsts, default=0)

    async def _look_from(self, name: str, first: int, until_seq: int, group: list[OpenWait]) -> None:
        async for page in self._store.events.stored(names.event_subject(name), first):
            self._take_older(name, (one for one in page if one.seq <= until_seq))
            for waiting in group:
                await self._settle_older(waiting)
            if page[-1].seq >= until_seq or not any(waiting.live for waiting in group):
                return

    def _take_older(self, name: str, page: Iterable[Stored]) -> None:
        for one in page:
            event = FoundEvent(one.seq, one.at, one.data or b"null")
            for waiting in self._index.found(name, event.body):
                if waiting.looking and event.seq <= waiting.until_seq and waiting.counts(event):
                    waiting.add(event, older=True)

    async def _settle_older(self, waiting: OpenWait) -> None:
        """Look at a page of older events at once, so that few of them are in memory."""
        while waiting.live and waiting.older:
            await self._look_at(waiting, waiting.older[0])
            if waiting.older and waiting.live:
                waiting.older.popleft()

    def _settle_soon(self, waiting: OpenWait) -> None:
        if waiting.task is None and not waiting.looking:
            waiting.task = begin(self._settle(waiting), name="event_wait")

    async def _settle(self, waiting: OpenWait) -> None:
        """Look at the wait's events in their order, until one ends it or none is left."""
        try:
            while waiting.live and (event := waiting.first()) is not None:
                try:
                    await self._look_at(waiting, event)
                except LeaseLost:
                    return
                except Exception as error:
                    self._report(error)
                    await asyncio.sleep(AGAIN_S)
        finally:
            waiting.task = None
        if waiting.live and waiting.overflown:
            waiting.overflown = False
            self._look_back(waiting)

    async def _look_at(self, waiting: OpenWait, event: FoundEvent) -> None:
        """End the wait by this event if it meets the condition, else note that it does not. Raises Unavailable."""
        record = waiting.record
        if not record.conditional or await self._matching.holds(record, event.body):
            reached("event_wait.found")
            await self._append(waiting, received(record, event, self._clock.now()))
            reached("event_wait.received")
        waiting.past = max(waiting.past, event.seq)

    async def _append(self, waiting: OpenWait, event: Event, message_id: str | None = None) -> None:
        """Append what ends the wait. The record stays until the run has taken note of it."""
        if self._store.publisher.full:
            await self._store.publisher.room()
        if not waiting.live:
            return
        self._lease.check()
        await self._store.history.send(event, message_id)
        if waiting.live:
            self._drop(names.partition(waiting.record.run_id), waiting)

    def _report(self, error: Exception) -> None:
        if not isinstance(error, PenstockError | Lost):
            report("event_waits", error)
        log_rate_limited(log, "event_waits_wait_for_broker", error=str(error))

    def _push(self, at: float, waiting: OpenWait) -> None:
        if len(self._deadlines) > DEAD_MAX + 2 * self._count:  # most of them ended long before
            self._deadlines = [entry for entry in self._deadlines if entry[2].live]
            heapq.heapify(self._deadlines)
        heapq.heappush(self._deadlines, (at, next(self._numbers), waiting))
        if self._deadlines[0][2] is waiting:
            self._timed.set()

    async def _watch_deadlines(self) -> None:
        """End waits whose time is over, for ever."""
        while True:
            self._timed.clear()
            wait_s = self._deadlines[0][0] - self._clock.now() if self._deadlines else None
            if wait_s is None or wait_s > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(None if wait_s is None else min(wait_s, CHECK_S)):
                        await self._timed.wait()
                continue
            try:
                await self._end_overdue()
            except LeaseLost:
                return
            except Exception as error:
                self._report(error)
                await asyncio.sleep(AGAIN_S)

    async def _end_overdue(self) -> None:
        """Append the timer of each wait that has no event in time. What was stored in time was stored by now, and has
        been read when the reader is here."""
        tip = await self._store.events.tip()
        await self._read_up_to(tip.seq)
        overdue = [waiting for waiting in self._pop_until(tip.now) if waiting.live]
        for waiting in overdue:
            if not waiting.busy:
                waiting.task = begin(self._give_up(waiting), name="event_wait")
            self._push(tip.now + BUSY_S, waiting)  # until it has ended
        await asyncio.sleep(0 if overdue else BUSY_S)

    def _pop_until(self, now: float) -> Iterator[OpenWait]:
        while self._deadlines and self._deadlines[0][0] < now:
            yield heapq.heappop(self._deadlines)[2]

    async def _give_up(self, waiting: OpenWait) -> None:
        try:
            await self._append(waiting, *timed_out(waiting.record))
        except LeaseLost:
            return
        except Exception as error:
            self._report(error)
        finally:
            waiting.task = None

    async def _read_up_to(self, seq: int) -> None:
        await self._placed.wait()
        while self._position < seq and self._count:
            self._moved.clear()
            await self._moved.wait()
