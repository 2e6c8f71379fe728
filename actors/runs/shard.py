"""A shard: it owns partitions of the history, and the actors of the runs in them.

Continuous pull of each partition -> mail -> RunActor -> commands. Acknowledgements are held back for a while and then
given for whole stretches: the first unhandled event of a partition holds all later ones. After a restart, what was not
acknowledged comes again, in order.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

from penstock.actors.runs.broker_clock import BrokerClock
from penstock.actors.runs.lease import Lease, LeaseLost
from penstock.actors.runs.loading import is_young
from penstock.actors.runs.mailbox import Lane, Mail
from penstock.actors.runs.run_actor import RunActor
from penstock.actors.runs.run_metrics import Tally
from penstock.actors.runs.timers import Timers
from penstock.broker.nats.pull import Delivery, Pull
from penstock.broker.store import Store
from penstock.config.limits import (
    ACK_HELD_BACK_S,
    ACTOR_IDLE_S,
    ACTORS_RESIDENT_MAX,
    HAND_OVER_S_MAX,
    MIB,
    SNAPSHOT_AFTER_S,
)
from penstock.config.logging import get_logger
from penstock.config.process.crash_points import reached
from penstock.config.process.memory import give_back
from penstock.config.process.rate_limited_log import log_rate_limited
from penstock.engine.errors import PenstockError, Unavailable

PULL_BATCH = 256
WAITING_MAX = 20_000  # mail in all mailboxes; beyond it the broker keeps the backlog
WAITING_BYTES_MAX = 64 * MIB  # of that mail
LOADS_AT_ONCE = 64  # runs that are read from the store
HEAVY_AT_ONCE = 4  # messages with large payloads that are put together and on their way
PASSING_MAX = 10_000  # actors over the cap that are about to be written and to leave
MANY = 1000  # actors that leave at once: the memory they leave is worth returning
TICK_S = 0.1
SWEEP_S = 5.0
LETTER_AGAIN_S = 1.0  # after the broker has refused a dead letter

log = get_logger()


class Shard:
    """Lives as long as `open_shard` holds it, and has the partitions that ownership/ownership.py gives it."""

    def __init__(self, store: Store, number: int, lease: Lease, sample_ratio: float = 0.0) -> None:
        self.store, self.number, self.lease = store, number, lease
        self.tally = Tally(store, sample_ratio)
        self.clock = BrokerClock()
        self.timers = Timers(store, lease, self.clock)
        self.actors: dict[str, RunActor] = {}
        self.dirty: dict[str, float] = {}
        self.heavy = asyncio.Semaphore(HEAVY_AT_ONCE)
        self.loads = asyncio.Semaphore(LOADS_AT_ONCE)
        self.waiting = 0
        self._waiting_bytes = 0
        self._lanes: dict[int, Lane] = {}
        self._swept_at = 0.0
        self._left_behind = 0

    def is_new(self, run_id: str, delivery: Delivery) -> bool:
        """Whether this can only be the first that anyone sees of the run: its time-ordered id was made just before it
        was stored.

        A repeat of its start within that time is refused by the broker; a later one comes with an id that is not fresh.
        """
        return not self.is_repeat(delivery) and is_young(run_id, delivery.at)

    def is_repeat(self, delivery: Delivery) -> bool:
        """Whether another owner, or a former life of this one, may have seen it. Raises LeaseLost when its partition
        was given up."""
        lane = self._lanes.get(_partition(delivery))
        if lane is None:
            raise LeaseLost("the partition is another's by now")
        return _is_repeat(lane, delivery)

    def bury(self, run_id: str, delivery: Delivery, error: str) -> None:
        """Keep an event that cannot be applied as a dead letter. Until that is stored, the event is not
        acknowledged."""
        log.error("event_buried", run_id=run_id, seq=delivery.seq, error=error)
        self.tally.buried += 1
        reached("shard.burying")
        lane, body = self._lanes.get(_partition(delivery)), delivery.data
        if lane is not None:
            lane.burials.setdefault(delivery.seq, asyncio.get_running_loop().create_future())
        self._send_letter(
            lambda: self.store.dead_letters.send_history(run_id, delivery.seq, body, error), lane, delivery.seq
        )

    def _send_letter(self, send: Callable[[], asyncio.Future[bytes]], lane: Lane | None, seq: int) -> None:
        """Until the broker has it, or the partition is another's: whoever owns it then finds the event not
        acknowledged."""

        def answered(letter: asyncio.Future[bytes]) -> None:
            if letter.cancelled() or (error := letter.exception()) is None:
                _settle(lane, seq)
                return
            log.error("dead_letter_refused", seq=seq, error=str(error))
            if lane is not None and lane in self._lanes.values():
                asyncio.get_running_loop().call_later(LETTER_AGAIN_S, self._send_letter, send, lane, seq)

        send().add_done_callback(answered)

    def leave(self, actor: RunActor) -> None:
        """The actor has nothing left to do, and its run will hardly have more."""
        if self.actors.get(actor.run_id) is actor:
            del self.actors[actor.run_id]
        self.dirty.pop(actor.run_id, None)

    def take(self, lane: Lane, delivery: Delivery) -> None:
        """Hand one event to its run's actor."""
        run_id = delivery.subject[delivery.subject.rfind(".") + 1 :]
        mail = Mail(delivery, time.monotonic())
        if not _is_repeat(lane, delivery):  # an old event tells an old time
            self.clock.saw(delivery.at, mail.received)
        lane.queue.append(mail)
        self.waiting += 1
        self._waiting_bytes += len(delivery.data)
        actor = self.actors.get(run_id)
        if actor is None:
            actor = self.actors[run_id] = RunActor(self, run_id, lane)
        actor.deliver(mail)
        reached("shard.received")

    def carried_out(self, mail: Sequence[Mail]) -> None:
        """This mail waits no longer. What it says is in the state now: until it is acknowledged, only its place is
        kept."""
        self.waiting -= len(mail)
        for one in mail:
            self._waiting_bytes -= len(one.delivery.data)
            one.delivery.data = b""

    def room(self) -> int:
        """Deliveries that may be asked for: none while too much waits, or too many runs are in memory."""
        full = (
            self.waiting >= WAITING_MAX
            or self._waiting_bytes >= WAITING_BYTES_MAX
            or len(self.actors) >= ACTORS_RESIDENT_MAX + PASSING_MAX
        )
        return 0 if full else PULL_BATCH

    @property
    def partitions(self) -> tuple[int, ...]:
        """Those whose events come to this shard."""
        return tuple(sorted(number for number, lane in self._lanes.items() if lane.pull is not None))

    async def own(self, number: int, consumer: str, start: int, *, fresh: bool) -> None:
        """Take the events of a partition from here on, by this consumer; a `fresh` one is made, to deliver what was
        stored from the sequence `start` on. Raises Unavailable."""
        lane = self._lanes[number] = Lane(consumer, start)
        try:
            if fresh:
                await self.store.consumers.open(consumer, number, start)
                reached("handover.consumer_made")
            lane.pull = await lane.pulling.enter_async_context(self._consume(number, lane, fresh))
        except BaseException:
            await self._forget(number)
            raise

    def _consume(self, number: int, lane: Lane, fresh: bool) -> AbstractAsyncContextManager[Pull]:
        skip_reset = fresh

        async def begin() -> None:
            """Also after a reconnect: what was on its way then is lost, so all that is not acknowledged comes again."""
            nonlocal skip_reset
            tip = await self.store.history.tip()
            self.clock.saw(tip.at, time.monotonic())  # later than any event that comes again from here on
            lane.begin(tip.seq)
            self.timers.learn(number, tip.seq)
            self.lease.check()  # a former owner would make the consumer anew that its successor has removed
            if not skip_reset and not await self.store.consumers.reset(lane.consumer):
                await self.store.consumers.open(lane.consumer, number, lane.start)
            skip_reset = False

        return self.store.history.consume(
            lane.consumer, lambda delivery: self.take(lane, delivery), batch=PULL_BATCH, room=self.room, before=begin
        )

    async def hand_over(self, number: int) -> int:
        """Let the runs of a partition come to rest, written and acknowledged, and forget them. What does not come to
        rest in HAND_OVER_S_MAX goes on at the next owner from the log. Returns the first sequence that may not be
        handled (0: unknown).

        Raises Unavailable.
        """
        lane = self._lanes.get(number)
        if lane is None:
            return 0
        await lane.close()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(HAND_OVER_S_MAX):
                    await self._come_to_rest(lane)
                    await self.timers.settle(number)
                    await self._acknowledge_lane(number, lane, float("inf"))
                    await self.store.broker.flush()
                    reached("shard.drained")
        finally:
            await self._forget(number)
        return lane.start

    async def give_up(self, number: int) -> int:
        """Forget a partition as it is. Returns the first sequence that is not acknowledged (0: unknown)."""
        lane = self._lanes.get(number)
        if lane is None:
            return 0
        await self._forget(number)
        return lane.start

    async def abandon(self) -> None:
        """Forget everything, without a word to anybody."""
        for number in list(self._lanes):
            await self._forget(number)

    async def _come_to_rest(self, lane: Lane) -> None:
        while True:
            self.lease.check()
            actors = [actor for actor in self.actors.values() if actor.lane is lane]
            for actor in actors:
                if self.dirty.pop(actor.run_id, None) is not None:
                    actor.save_soon()
            tasks: list[asyncio.Future[Any]] = [actor.task for actor in actors if actor.task is not None]
            tasks += lane.burials.values()
            if not tasks:
                return
            await asyncio.wait(tasks)

    async def _forget(self, number: int) -> None:
        lane = self._lanes.pop(number)
        await lane.close()
        for actor in [actor for actor in self.actors.values() if actor.lane is lane]:
            actor.dismiss()
            self.leave(actor)
        self.timers.forget(number)

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
        """What is due by time: snapshots, acknowledgements, idle actors, pulls that were held back. Raises
        Unavailable."""
        self.lease.check()
        now = time.monotonic()
        self._save_older_than(now - SNAPSHOT_AFTER_S)
        await self._acknowledge(now - ACK_HELD_BACK_S)
        if now - self._swept_at > SWEEP_S or len(self.actors) > ACTORS_RESIDENT_MAX:
            self._swept_at = now
            self._passivate(now)
        for lane in list(self._lanes.values()):
            if lane.pull is not None:
                await lane.pull.top_up()

    def _save_older_than(self, before: float) -> None:
        due = []
        for run_id, since in self.dirty.items():
            if since >= before:
                break  # in the order of their age
            due.append(run_id)
        for run_id in due:
            del self.dirty[run_id]
            if actor := self.actors.get(run_id):
                actor.save_soon()

    async def _acknowledge(self, before: float) -> None:
        for number, lane in list(self._lanes.items()):
            await self._acknowledge_lane(number, lane, before)

    async def _acknowledge_lane(self, number: int, lane: Lane, before: float) -> None:
        last = lane.acknowledgeable(min(before, self.timers.holds_from(number)))
        if last is not None:
            self.lease.check()
            reached("shard.acknowledging")
            await last.delivery.ack()
            lane.start = last.delivery.seq + 1
            reached("shard.acknowledged")

    def _passivate(self, now: float) -> None:
        """Idle actors leave memory; over the cap, also those that are idle for a shorter time."""
        over = len(self.actors) - ACTORS_RESIDENT_MAX
        gone = []
        for actor in self.actors.values():
            if actor.idle and (over > 0 or now - actor.active_at > ACTOR_IDLE_S):
                gone.append(actor.run_id)
                over -= 1
        for run_id in gone:
            del self.actors[run_id]
        if self._left_behind >= MANY:  # not at once: what the actors held goes in the turns that follow
            give_back(thoroughly=len(self.actors) < MANY)
        self._left_behind = len(gone)


def _settle(lane: Lane | None, seq: int) -> None:
    stored = None if lane is None else lane.burials.pop(seq, None)
    if stored is not None:
        stored.set_result(None)


def _is_repeat(lane: Lane, delivery: Delivery) -> bool:
    return delivery.deliveries > 1 or delivery.seq <= lane.takeover_seq


def _partition(delivery: Delivery) -> int:
    return int(delivery.subject.split(".", 2)[1])
