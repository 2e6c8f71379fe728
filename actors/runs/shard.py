"""A shard: it owns partitions of the history, and the actors of the runs in them.

Continuous pull of each partition, or of all by one consumer -> partition queue -> RunActor -> effects. Acknowledgements
are held back for a while and then given for many events at once: the first unhandled event of a partition holds all
later ones. After a restart, what was not acknowledged comes again, in order.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

from penstock.actors.runs.asking_again import ask_again
from penstock.actors.runs.dead_letters import EventDeadLetters
from penstock.actors.runs.effects import Effects
from penstock.actors.runs.limits.limit_owner import LimitOwner
from penstock.actors.runs.packed_actors import PackedActors
from penstock.actors.runs.run_actor import RunActor, RunDeps
from penstock.actors.runs.shared.broker_clock import BrokerClock
from penstock.actors.runs.shared.common_reader import CommonReader
from penstock.actors.runs.shared.lease import LeaseLost, ShardLease
from penstock.actors.runs.shared.mailbox import Backlog, PartitionQueue, PendingEvent, observe
from penstock.actors.runs.shared.run_metrics import RunMetrics
from penstock.actors.runs.shared.snapshot_queue import SnapshotQueue
from penstock.actors.runs.shared.turn_queue import TurnQueue
from penstock.actors.runs.timers import Timers
from penstock.actors.runs.waits.event_waits import EventWaits
from penstock.broker import names
from penstock.broker.nats.pull import Delivery, Pull
from penstock.broker.store import Store
from penstock.config.limits import (
    ACK_HELD_BACK_S,
    ACTOR_IDLE_S,
    ACTORS_RESIDENT_MAX,
    HAND_OVER_S_MAX,
    SNAPSHOT_AFTER_S,
)
from penstock.config.logging import get_logger
from penstock.config.process.crash_points import reached
from penstock.config.process.memory import give_back
from penstock.config.process.rate_limited_log import log_rate_limited
from penstock.engine.errors import PenstockError, Unavailable

PULL_BATCH = 256  # events of a partition
COMMON_BATCH = 1024  # events of all of them
LOADS_AT_ONCE = 64  # runs that are read from the store
PASSIVATING_MAX = 10_000  # actors over the cap that are about to be saved and to leave
LEFT_MANY = 1000  # actors that leave at once: the memory they leave is worth returning
TICK_S = 0.1
ACK_TICKS = 10
SWEEP_S = 5.0

log = get_logger()


class Shard:
    """Lives as long as `open_shard` holds it, and has the partitions that ownership/ownership.py gives it."""

    def __init__(self, store: Store, number: int, lease: ShardLease, sample_ratio: float = 0.0) -> None:
        self.store, self.number, self.lease = store, number, lease
        self.metrics = RunMetrics(store, sample_ratio)
        self.clock = BrokerClock()
        self.timers = Timers(store, lease, self.clock)
        self.waits = EventWaits(store, lease, self.clock)
        self.limits = LimitOwner(store, lease, self.clock, self._ask_again)
        self.effects = Effects(store, lease, self.timers, self.waits)
        self.backlog = Backlog()
        self.snapshots = SnapshotQueue()
        self.actors: dict[str, RunActor] = {}
        self.packed = PackedActors()
        self._deps = RunDeps(
            store=store,
            lease=lease,
            clock=self.clock,
            timers=self.timers,
            effects=self.effects,
            metrics=self.metrics,
            backlog=self.backlog,
            snapshots=self.snapshots,
            dead_letters=EventDeadLetters(store, self.metrics),
            turns=TurnQueue(),
            loads=asyncio.Semaphore(LOADS_AT_ONCE),
            leave=self._leave,
            rest=self._rest,
        )
        self._queues: dict[int, PartitionQueue] = {}
        self._reader: CommonReader | None = None
        self._swept_at = 0.0
        self._ticks = 0
        self._left_last = self._resting = 0

    def register_metrics(self) -> None:
        """Register the shard's own gauges, which are read for each request for metrics."""
        meters = self.store.meters
        meters.reading("penstock_actors", lambda: len(self.actors) + len(self.packed))
        meters.reading("penstock_mailbox_events", lambda: self.backlog.events)
        meters.reading("penstock_unsaved_runs", lambda: len(self.snapshots))
        meters.reading("penstock_timers", lambda: self.timers.in_memory)
        self.limits.register_metrics()
        meters.readings("penstock_partition_owner", lambda: {(str(number),): 1 for number in self.partitions})

    def take(self, queue: PartitionQueue, delivery: Delivery) -> None:
        """Hand one event, whose place was read, to its run's actor."""
        run_id, received = delivery.subject[delivery.subject.rfind(".") + 1 :], time.monotonic()
        redelivered = delivery.deliveries > 1 or delivery.seq <= queue.takeover_seq
        if not redelivered:  # an old event has an old time
            self.clock.observe(delivery.at, received)
        event = PendingEvent(delivery, received, redelivered)
        queue.events.append(event)
        if delivery.seq in queue.ends:
            self._take_own(queue, event)
            return
        backlog = self.backlog  # inline: this runs for every event
        backlog.events += 1
        backlog.bytes += len(delivery.data)
        actor = self.actors.get(run_id)
        if actor is None:
            actor = self.actors[run_id] = self.packed.take(run_id) or RunActor(self._deps, run_id, queue)
        actor.deliver(event)
        reached("shard.received")

    def _take_own(self, queue: PartitionQueue, event: PendingEvent) -> None:
        """Take an event that the actor has folded when it stored it: it is handled."""
        queue.ends.remove(event.delivery.seq)
        event.handled, event.delivery.data = True, b""
        observe(self.metrics.handling, (event,))
        observe(self.metrics.commit, (event,))

    def room(self) -> int:
        """The number of events that may be asked for: none while the backlog is full, or too many runs are in
        memory."""
        full = self.backlog.full or len(self.actors) >= ACTORS_RESIDENT_MAX + PASSIVATING_MAX
        return 0 if full else COMMON_BATCH

    @property
    def partitions(self) -> tuple[int, ...]:
        """The partitions whose events come to this shard."""
        return tuple(sorted(number for number, queue in self._queues.items() if queue.pull is not None))

    @property
    def handled_before(self) -> dict[int, int]:
        """By partition the sequence before which everything is handled."""
        return {number: queue.start for number, queue in self._queues.items()}

    async def own(self, number: int, consumer: str, start: int, *, fresh: bool) -> None:
        """Take the events of a partition from here on, by this consumer. A `fresh` one is created first: it delivers
        what was stored from the sequence `start` on. Raises Unavailable."""
        queue = self._add(number, consumer, start)
        try:
            if fresh:
                await self.store.consumers.open(consumer, number, start)
                reached("handover.consumer_made")
            queue.pull = await queue.pulling.enter_async_context(self._consume(number, queue, fresh))
        except BaseException:
            await self._forget(number)
            raise

    async def own_all(self, consumer: str, starts: Mapping[int, int]) -> None:
        """Take the events of all partitions, none of which this shard has, from these sequences on. The consumer is
        created first. Raises Unavailable."""
        queues = [self._add(number, consumer, start) for number, start in starts.items()]
        reader = self._reader = CommonReader(consumer, queues, self.take)
        for queue in queues:
            queue.reader = reader
        try:
            await self.store.consumers.open(consumer, None, min(starts.values()))
            reached("handover.common_consumer_made")
            pull = await reader.pulling.enter_async_context(self._consume_all(reader))
        except BaseException:
            for number in starts:
                await self._forget(number)
            raise
        for queue in queues:
            queue.pull = pull

    def _add(self, number: int, consumer: str, start: int) -> PartitionQueue:
        queue = self._queues[number] = PartitionQueue(number, consumer, start)
        self.waits.own(number)
        self.limits.own(number)
        return queue

    def _consume(self, number: int, queue: PartitionQueue, fresh: bool) -> AbstractAsyncContextManager[Pull]:
        skip_reset = fresh

        async def begin() -> None:
            """Also called after a reconnect: what was in flight is lost, so all that is not handled comes again."""
            nonlocal skip_reset
            tip = await self.store.history.tip()
            self.clock.observe(tip.at, time.monotonic())  # later than any event that comes again from here on
            queue.begin(tip.seq)
            self.timers.learn(number, tip.seq)
            self.lease.check()  # a former owner would create the consumer again that its successor has removed
            if not skip_reset and not await self.store.consumers.reset(queue.consumer, queue.start):
                await self.store.consumers.open(queue.consumer, number, queue.start)
            skip_reset = False

        def take(delivery: Delivery) -> None:
            delivery.read_place()
            self.take(queue, delivery)

        return self.store.history.consume(queue.consumer, take, batch=PULL_BATCH, room=self.room, before=begin)

    def _consume_all(self, reader: CommonReader) -> AbstractAsyncContextManager[Pull]:
        """As `_consume`, for all partitions, by a consumer that was just created."""
        skip_reset = True

        async def begin() -> None:
            nonlocal skip_reset
            tip = await self.store.history.tip()
            self.clock.observe(tip.at, time.monotonic())
            start = reader.begin(tip.seq)
            for number in reader.partitions:
                self.timers.learn(number, tip.seq)
            self.lease.check()
            if not reader.partitions:  # all were given up meanwhile: the consumer is not needed any more
                return
            if not skip_reset and not await self.store.consumers.reset(reader.consumer, start):
                await self.store.consumers.open(reader.consumer, None, start)
            skip_reset = False

        return self.store.history.consume(
            reader.consumer, reader.take, batch=COMMON_BATCH, room=self.room, before=begin
        )

    async def hand_over(self, number: int) -> int:
        """Finish the work on a partition's runs, save and acknowledge them, and forget them.

        What is not finished within HAND_OVER_S_MAX goes on at the next owner from the log. Returns the first sequence
        that may not be handled (0: unknown). Raises Unavailable.
        """
        queue = self._queues.get(number)
        if queue is None:
            return 0
        await queue.close()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(HAND_OVER_S_MAX):
                    await self._finish(queue)
                    await self.timers.settle(number)
                    await self.waits.save(number)
                    await self.limits.settle(number)
                    await self._acknowledge_queue(number, queue, float("inf"))
                    await self.store.broker.flush()
                    reached("shard.drained")
        finally:
            await self._forget(number)
        return queue.start

    async def give_up(self, number: int) -> int:
        """Forget a partition without finishing it. Returns the first sequence that is not acknowledged (0: unknown)."""
        queue = self._queues.get(number)
        if queue is None:
            return 0
        await self._forget(number)
        return queue.start

    async def abandon(self) -> None:
        """Forget everything, and send nothing."""
        for number in list(self._queues):
            await self._forget(number)

    async def _finish(self, queue: PartitionQueue) -> None:
        while True:
            self.lease.check()
            actors = [actor for actor in self.actors.values() if actor.queue is queue]
            for actor in actors:
                if self.snapshots.remove(actor.run_id):
                    actor.save_soon()
            tasks: list[asyncio.Future[Any]] = [actor.task for actor in actors if actor.task is not None]
            tasks += queue.dead_letters.values()
            if tasks:
                await asyncio.wait(tasks)
            elif any(actor.waits for actor in actors):
                await asyncio.sleep(0)
            else:
                return

    async def _ask_again(self, partitions: Collection[int]) -> None:
        """Have the runs of these partitions ask for all their slots again. Raises Unavailable."""
        also = [run_id for run_id, actor in self.actors.items() if actor.run is not None and actor.run.slots]
        await ask_again(self.store, self.effects, self.lease, partitions, also, time.monotonic())

    def _leave(self, actor: RunActor) -> None:
        """Forget an actor that has nothing left to do, and whose run will hardly have more events."""
        if self.actors.get(actor.run_id) is actor:
            del self.actors[actor.run_id]
        self.snapshots.remove(actor.run_id)

    async def _forget(self, number: int) -> None:
        queue = self._queues.pop(number)
        queue.owned = False
        await queue.close()
        for actor in [actor for actor in self.actors.values() if actor.queue is queue]:
            actor.dismiss()
            self._leave(actor)
        self.packed.remove_of(queue)
        self.timers.forget(number)
        self.waits.forget(number)
        self.limits.forget(number)

    async def run(self) -> None:
        """Do what is due by time, until the lease is over."""
        while True:
            await asyncio.sleep(TICK_S)
            try:
                await self.tick()
            except LeaseLost:
                return
            except Unavailable as error:
                log_rate_limited(log, "shard_waits_for_broker", shard=self.number, error=str(error))
            except PenstockError as error:
                log_rate_limited(log, "shard_tick_failed", "error", shard=self.number, error=str(error))

    async def tick(self) -> None:
        """Do what is due by time: snapshots, acknowledgements, idle actors, pulls that were held back. Raises
        Unavailable."""
        self.lease.check()
        now = time.monotonic()
        self._save_older_than(now - SNAPSHOT_AFTER_S)
        await self._acknowledge(now - ACK_HELD_BACK_S)
        if now - self._swept_at > SWEEP_S or len(self.actors) > ACTORS_RESIDENT_MAX:
            self._swept_at = now
            self._passivate(now)
        for pull in {queue.pull for queue in self._queues.values()}:
            if pull is not None:
                await pull.top_up()

    def _save_older_than(self, before: float) -> None:
        for run_id in self.snapshots.pop_older_than(before):
            if actor := self.actors.get(run_id):
                actor.save_soon()

    async def _acknowledge(self, before: float) -> None:
        """Acknowledge what some of the partitions have handled, others each time: once a second each is enough."""
        self._ticks += 1
        for number, queue in list(self._queues.items()):
            queue.drop_handled()
            if (number + self._ticks) % ACK_TICKS == 0:
                await self._acknowledge_queue(number, queue, before)
        if self._reader is not None and self._ticks % ACK_TICKS == 0:
            last = self._reader.acknowledgeable()
            if last is not None:
                await self._acknowledge_up_to(last)

    async def _acknowledge_queue(self, number: int, queue: PartitionQueue, before: float) -> None:
        last = queue.acknowledgeable(min(before, self.timers.holds_from(number)))
        if last is None:
            return
        if queue.reader is None:
            await self._acknowledge_up_to(last.delivery)
        else:
            queue.reader.handled(queue, last.delivery)
        queue.start = last.delivery.seq + 1
        reached("shard.acknowledged")

    async def _acknowledge_up_to(self, delivery: Delivery) -> None:
        self.lease.check()
        reached("shard.acknowledging")
        await delivery.ack()

    def _passivate(self, now: float) -> None:
        """Remove from memory the actors that are idle for long. Over the cap, others that are idle are packed."""
        over = len(self.actors) - ACTORS_RESIDENT_MAX
        gone = []
        for actor in self.actors.values():
            if actor.idle and (over > 0 or now - actor.active_at > ACTOR_IDLE_S):
                gone.append(actor)
                over -= 1
        for actor in gone:
            del self.actors[actor.run_id]
            if now - actor.active_at > ACTOR_IDLE_S or not self.packed.add(actor):
                self._put_aside(actor)
        for actor in self.packed.remove_older_than(now - ACTOR_IDLE_S):
            self._put_aside(actor)
            gone.append(actor)
        if self._left_last >= LEFT_MANY:  # not at once: what the actors held goes in the turns that follow
            names.partition.cache_clear()
            give_back(thoroughly=len(self.actors) < LEFT_MANY)
        self._left_last, self._resting = len(gone) + self._resting, 0

    def _rest(self, actor: RunActor) -> None:
        """Remove an actor at once whose run sleeps for longer than an idle one stays: a burst of runs that go to sleep
        would be in memory together else."""
        if self.actors.get(actor.run_id) is actor:
            del self.actors[actor.run_id]
            self._put_aside(actor)
            self._resting += 1

    def _put_aside(self, actor: RunActor) -> None:
        """An idle actor has left memory: note its snapshot, if that is up to date."""
        if revision := actor.current_revision:
            actor.queue.keep_current(revision)
