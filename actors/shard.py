"""A shard: it owns partitions of the history, and the actors of the runs in them.

Continuous pull of each partition -> mail -> RunActor -> commands. Acknowledgements are held back for a while and then given
for whole stretches: the first unhandled event of a partition holds all later ones. After a restart, what was not
acknowledged comes again, in order.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

import orjson
import structlog

from penstock.actors.loading import is_young
from penstock.actors.mailbox import Lane, Mail
from penstock.actors.memory import give_back
from penstock.actors.run_actor import RunActor
from penstock.actors.tally import Tally, read_shard
from penstock.actors.timers import Timers
from penstock.broker import names
from penstock.broker.pull import Delivery, Pull
from penstock.broker.store import Store
from penstock.config.limits import ACK_HELD_BACK_S, ACTOR_IDLE_S, ACTORS_RESIDENT_MAX, SNAPSHOT_AFTER_S
from penstock.engine.errors import PenstockError, Unavailable

PULL_BATCH = 256
WAITING_MAX = 20_000  # mail in all mailboxes; beyond it the broker keeps the backlog
PASSING_MAX = 10_000  # actors over the cap that are about to be written and to leave
MANY = 1000  # actors that leave at once: the memory they leave is worth returning
TICK_S = 0.1
SWEEP_S = 5.0

log = structlog.get_logger()


class Shard:
    """Lives as long as `open_shard` holds it."""

    def __init__(self, store: Store, number: int, partitions: tuple[int, ...], sample_ratio: float = 0.0) -> None:
        self.store, self.number, self.partitions = store, number, partitions
        self.tally = Tally(store, sample_ratio)
        self.timers = Timers(store.broker, store.publisher)
        self.actors: dict[str, RunActor] = {}
        self.dirty: dict[str, float] = {}
        self.waiting = 0
        self._lanes: dict[int, Lane] = {}
        self._pulls: list[Pull] = []
        self._swept_at = 0.0
        self._left_behind = 0
        self._burials: set[asyncio.Future[bytes]] = set()

    def is_new(self, run_id: str, delivery: Delivery) -> bool:
        """Whether this can only be the first that anyone sees of the run: its time-ordered id was made just before it was stored.

        A repeat of its start within that time is refused by the broker; a later one comes with an id that is not fresh.
        """
        return not self.is_repeat(delivery) and is_young(run_id, delivery.at)

    def is_repeat(self, delivery: Delivery) -> bool:
        """Whether another owner, or a former life of this one, may have seen it."""
        return delivery.deliveries > 1 or delivery.seq <= self._lanes[_partition(delivery)].takeover_seq

    def bury(self, run_id: str, delivery: Delivery, error: str) -> None:
        """Keep an event that cannot be applied as a dead letter."""
        log.error("event_buried", run_id=run_id, seq=delivery.seq, error=error)
        self.tally.buried += 1
        sent = self.store.dead_letters.send_history(run_id, delivery.seq, delivery.data, error)
        self._burials.add(sent)
        sent.add_done_callback(self._burials.discard)

    def leave(self, actor: RunActor) -> None:
        """The actor has nothing left to do, and its run will hardly have more."""
        if self.actors.get(actor.run_id) is actor:
            del self.actors[actor.run_id]
        self.dirty.pop(actor.run_id, None)

    def take(self, lane: Lane, delivery: Delivery) -> None:
        """Hand one event to its run's actor."""
        run_id = delivery.subject[delivery.subject.rfind(".") + 1 :]
        mail = Mail(delivery, time.monotonic())
        lane.queue.append(mail)
        self.waiting += 1
        actor = self.actors.get(run_id)
        if actor is None:
            actor = self.actors[run_id] = RunActor(self, run_id)
        actor.deliver(mail)

    def room(self) -> int:
        """Deliveries that may be asked for: none while too much waits, or too many runs are in memory."""
        full = self.waiting >= WAITING_MAX or len(self.actors) >= ACTORS_RESIDENT_MAX + PASSING_MAX
        return 0 if full else PULL_BATCH

    async def own(self, stack: AsyncExitStack) -> None:
        """Take the partitions over."""
        for number in self.partitions:
            self._pulls.append(await stack.enter_async_context(self._consume(number)))

    def _consume(self, number: int) -> AbstractAsyncContextManager[Pull]:
        lane = self._lanes[number] = Lane()

        async def begin() -> None:
            """Also after a reconnect: what was on its way then is lost, so all that is not acknowledged comes again."""
            lane.begin(await self.store.history.last_seq())
            await self.store.history.reset(number)

        return self.store.history.consume(
            number, lambda delivery: self.take(lane, delivery), batch=PULL_BATCH, room=self.room, before=begin
        )

    async def tick(self) -> None:
        """What is due by time: snapshots, acknowledgements, idle actors, pulls that were held back."""
        now = time.monotonic()
        self._save_older_than(now - SNAPSHOT_AFTER_S)
        await self._acknowledge(now - ACK_HELD_BACK_S)
        if now - self._swept_at > SWEEP_S or len(self.actors) > ACTORS_RESIDENT_MAX:
            self._swept_at = now
            self._passivate(now)
        for pull in self._pulls:
            await pull.top_up()

    async def drain(self) -> None:
        """Write every snapshot and acknowledge everything: the next owner has nothing to repeat."""
        tasks: list[asyncio.Task[None]] = []
        while self.dirty or tasks:
            self._save_older_than(float("inf"))
            tasks = [actor.task for actor in self.actors.values() if actor.task is not None]
            if tasks:
                await asyncio.wait(tasks)
        await self._acknowledge(float("inf"))
        await self.store.broker.flush()

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
        for number, lane in self._lanes.items():
            last = lane.acknowledgeable(min(before, self.timers.holds_from(number)))
            if last is not None:
                await last.delivery.ack()

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
            give_back()
        self._left_behind = len(gone)


@asynccontextmanager
async def open_shard(store: Store, number: int, partitions: tuple[int, ...], sample_ratio: float = 0.0) -> AsyncIterator[Shard]:
    """A working shard for the time of the block; leaving it in peace writes and acknowledges everything.

    Spans are written of the share `sample_ratio` of its runs.
    """
    shard = Shard(store, number, partitions, sample_ratio)
    read_shard(shard)
    async with AsyncExitStack() as stack:
        timers = asyncio.create_task(shard.timers.run())
        stack.callback(timers.cancel)
        await shard.own(stack)
        ticking = asyncio.create_task(_tick(shard))
        stack.callback(ticking.cancel)
        answer = orjson.dumps({"shard": number, "partitions": list(partitions)})
        await store.broker.answer(names.ENGINE_PING, answer)
        log.info("shard_ready", shard=number, partitions=len(partitions))
        yield shard
    ticking.cancel()
    await shard.drain()


async def _tick(shard: Shard) -> None:
    while True:
        await asyncio.sleep(TICK_S)
        try:
            await shard.tick()
        except Unavailable as error:
            log.warning("shard_waits_for_broker", shard=shard.number, error=str(error))
        except PenstockError as error:
            log.error("shard_tick_failed", shard=shard.number, error=str(error))


def _partition(delivery: Delivery) -> int:
    return int(delivery.subject.split(".", 2)[1])
