"""Ownership of partitions: a shard takes them over and hands them over as shards come and go.

Every shard reads who is alive, computes for itself which partitions each shall own (placement.py), plans its own moves
(moves.py) and carries them out here. Claims change by compare-and-swap only: so a partition has one owner, even if
shards disagree for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress

import orjson

from penstock.actors.ownership.claims import Claims
from penstock.actors.ownership.membership import Membership
from penstock.actors.ownership.moves import Mine, Moves, plan, willing_places
from penstock.actors.runs.shard import Shard
from penstock.actors.runs.shared.lease import ShardLease, now
from penstock.broker.records.owners import Handled, Member, View
from penstock.broker.store import Store
from penstock.config.limits import LEASE_RENEW_S, PARTITIONS
from penstock.config.logging import get_logger
from penstock.config.process.background import each_of, end, start
from penstock.config.process.crash_points import reached
from penstock.config.process.rate_limited_log import log_rate_limited
from penstock.engine.errors import Conflict, PenstockError, Unavailable

SIBLINGS_S_MAX = 0.6  # to wait for the other shards of the same start; then partitions are taken without them
NOTED_EVERY_S = 2.0  # how far the partitions are, for the next owner after a crash
SETTLE_S = 0.25  # no shard comes or goes for so long before partitions move between living shards
CALM_S = 5.0  # and for so long before a shard that has all of them makes a common consumer

log = get_logger()


class Ownership:
    """Owned by one life of a shard."""

    def __init__(self, store: Store, shard: Shard, members: Membership) -> None:
        self._store, self._shard, self._members = store, shard, members
        self._claims = Claims(store, members)
        self._notified = asyncio.Event()
        self._places: frozenset[str] = frozenset()
        self._changed_at = 0.0
        self._leaves_consumers = False
        self._noted: dict[int, int] = {}
        self._noted_at = 0.0

    async def start(self, siblings: int) -> None:
        """Take the free partitions, once the `siblings` of the same start are listed, too. Raises Unavailable."""
        await self._store.owners.on_change(self._notified)
        with suppress(TimeoutError):
            async with asyncio.timeout(SIBLINGS_S_MAX):
                while await self._siblings() < siblings:
                    await self._notified.wait()
                    self._notified.clear()
        await self._check()

    async def run(self) -> None:
        """Check at each change notification, and twice a second in any case, for ever."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LEASE_RENEW_S):
                    await self._notified.wait()
            self._notified.clear()
            try:
                await self._check()
                await self._note_handled()
            except Unavailable as error:
                log_rate_limited(log, "shard_waits_for_broker", shard=self._members.me.shard, error=str(error))

    async def leave(self) -> None:
        """Hand everything over and leave the members. If the broker is away, others notice later that it is gone."""
        try:
            await self._members.withdraw()
            reached("handover.withdrawn")
            await self._store.owners.announce_change()
            await self._do_all([self._hand_over(number) for number in self._claims.mine])
            await self._members.leave()
            reached("member.left")
            await self._store.owners.announce_change()
        except PenstockError as error:
            log.warning("shard_left_without_handover", shard=self._members.me.shard, error=str(error))

    async def _siblings(self) -> int:
        view = await self._store.owners.read()
        return sum(listed.member.engine == self._members.me.engine for listed in view.members.values())

    async def _check(self) -> None:
        """Do the moves that are due now. Raises Unavailable: what was not done is planned again by the next check."""
        view = await self._current_view()
        self._note_places(willing_places(view, self._members.me))
        self._claims.learn(view, self._shard.partitions)
        moves = plan(view, self._what_is_mine())
        if moves.postponed:
            asyncio.get_running_loop().call_later(self._unchanged_until(SETTLE_S), self._notified.set)
        taken = range(PARTITIONS) if moves.unite else moves.take
        if taken:
            await self._claims.look()
        if any(number not in view.claims for number in taken):
            await self._claims.assume(view)
        self._leaves_consumers = self._leaves_consumers or bool(taken or moves.replace_consumer or moves.part)
        await self._carry_out(moves, view)
        await self._clean_up(moves)

    async def _current_view(self) -> View:
        """The living shards and their claims. This shard withdraws if its engine is being drained."""
        view = await self._store.owners.read()
        await self._members.remove_dead(view)
        if self._members.me.engine in view.drained:
            await self._members.withdraw()
        return view

    def _what_is_mine(self) -> Mine:
        claims = self._claims.mine
        unresponsive = [n for n, mine in claims.items() if self._claims.is_unresponsive(mine.claim.consumer)]
        settled, calm = (self._unchanged_until(span_s) <= 0 for span_s in (SETTLE_S, CALM_S))
        return Mine(self._members.me, claims, self._shard.partitions, unresponsive, settled, calm)

    def _note_places(self, places: frozenset[str]) -> None:
        if places != self._places:
            self._places, self._changed_at = places, now()

    def _unchanged_until(self, span_s: float) -> float:
        """In how many s no shard will have come or gone for this span, if no other one does; 0 or less: none has."""
        return self._changed_at + span_s - now()

    async def _carry_out(self, moves: Moves, view: View) -> None:
        """Do all moves side by side."""
        await self._do_all(
            [
                *map(self._hand_over, moves.hand_over),
                *(self._take(number, view) for number in moves.take),
                *map(self._replace_consumer, moves.replace_consumer),
                *map(self._part, moves.part),
                *([self._unite(view)] if moves.unite else []),
            ]
        )

    async def _clean_up(self, moves: Moves) -> None:
        """Remove the consumers that these moves, or earlier ones, have replaced, and log what was moved. Consumers that
        nobody reads from cost the broker time at each event."""
        if self._leaves_consumers:
            self._leaves_consumers = await self._remove_former()
        if moves.take or moves.hand_over or moves.unite or moves.part:
            log.info(
                "partitions_moved",
                shard=self._members.me.shard,
                taken=PARTITIONS if moves.unite else len(moves.take),
                handed_over=len(moves.hand_over),
                common_consumer=moves.unite,
            )

    async def _remove_former(self) -> bool:
        """Remove consumers of former claims. Returns whether others have still claims to one: a common consumer stays
        until its owner has parted with it. Raises Unavailable."""
        former = await self._store.consumers.former({n: one.claim.consumer for n, one in self._claims.mine.items()})
        claimed = {one.claim.consumer for one in (await self._store.owners.read()).claims.values()} if former else set()
        for consumer in former:
            if consumer not in claimed:
                await self._store.consumers.remove(consumer)
        return any(consumer in claimed for consumer in former)

    async def _take(self, number: int, view: View) -> None:
        mine, fresh = self._claims.mine.get(number), False
        if mine is None:
            mine, fresh = await self._claims.take(number, view)
        await self._shard.own(number, mine.claim.consumer, mine.claim.start, fresh=fresh)
        reached("handover.owned")

    async def _unite(self, view: View) -> None:
        """Go on with all partitions by one consumer. If a claim could not be written, it is not made, and the next
        check plans again."""
        consumer = self._claims.next_common_consumer(view)
        for result in await each_of(self._take_by_common(number, view, consumer) for number in range(PARTITIONS)):
            if result is not None:
                raise result
        reached("handover.all_claimed")
        await self._shard.own_all(consumer, {number: mine.claim.start for number, mine in self._claims.mine.items()})

    async def _take_by_common(self, number: int, view: View, consumer: str) -> None:
        await self._claims.take_by_common(number, view, consumer, await self._shard.hand_over(number))

    async def _part(self, number: int) -> None:
        """Go on with a partition by a consumer of its own, for not all are this shard's any more."""
        await self._go_on(number, await self._shard.hand_over(number))

    async def _note_handled(self) -> None:
        """Note how far each partition is, for who goes on with it if this shard dies. Raises Unavailable."""
        if now() - self._noted_at < NOTED_EVERY_S:
            return
        self._noted_at = now()
        starts = {n: start for n, start in self._shard.handled_before.items() if start != self._noted.get(n, 1)}
        self._members.lease.check()
        await self._store.owners.note_handled({n: Handled(start, self._claims.log) for n, start in starts.items()})
        self._noted |= starts

    async def _replace_consumer(self, number: int) -> None:
        """Continue with a new consumer behind what is handled, unless this one answers again.

        Raises Unavailable when the whole history is away.
        """
        consumer = self._claims.mine[number].claim.consumer
        await self._store.history.last_seq()
        with suppress(Unavailable):
            await self._store.consumers.progress(consumer)
            return
        log.warning("consumer_unresponsive", shard=self._members.me.shard, partition=number, consumer=consumer)
        await self._go_on(number, await self._shard.give_up(number))

    async def _go_on(self, number: int, handled_before: int) -> None:
        """Read a partition of this shard by another consumer, behind what is handled."""
        mine = await self._claims.replace(number, self._claims.next_consumer(number), handled_before)
        await self._shard.own(number, mine.claim.consumer, mine.claim.start, fresh=True)

    async def _hand_over(self, number: int) -> None:
        await self._claims.release(number, await self._shard.hand_over(number))
        await self._store.owners.announce_change()

    async def _do_all(self, steps: Sequence[Coroutine[None, None, None]]) -> None:
        """Await all of them side by side. A PenstockError of one is logged and does not end the others."""
        for result in await each_of(steps):
            if isinstance(result, Conflict):
                continue  # another shard was faster
            if isinstance(result, PenstockError):
                log_rate_limited(log, "partition_not_moved", shard=self._members.me.shard, error=str(result))
            elif result is not None:
                raise result


@asynccontextmanager
async def open_shard(
    store: Store,
    me: Member,
    sample_ratio: float = 0.0,
    *,
    siblings: int = 1,
    dead: Callable[[], Collection[str]] = frozenset,
) -> AsyncIterator[Shard]:
    """A shard for the time of the block. It works until its lease is lost: then `shard.lease.over` is set.

    The block begins when the free partitions are taken. Leaving it without an error hands all partitions over, with
    their snapshots written and their events acknowledged. Spans are written for the share `sample_ratio` of the runs.
    `siblings` is how many shards start together; `dead` returns the places that no process holds now.
    """
    lease = ShardLease()
    shard, members = Shard(store, me.shard, lease, sample_ratio), Membership(store.owners, me, lease, dead)
    ownership = Ownership(store, shard, members)
    tasks: list[asyncio.Task[None]] = []

    def begin(work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        task = start(work, name=name, over=lease.end, expected=Unavailable)  # whichever ends, this life is over
        tasks.append(task)
        return task

    shard.register_metrics()
    try:
        await members.join()
        begin(members.keep(), "membership")
        begin(shard.timers.run(), "timers")
        begin(shard.waits.run(), "event_waits")
        begin(shard.limits.run(), "limits")
        await ownership.start(siblings)
        begin(shard.run(), "shard")
        checking = begin(ownership.run(), "ownership")
        await store.owners.answer(lambda: _answer(shard))
        log.info("shard_ready", shard=me.shard, partitions=len(shard.partitions))
        yield shard
        await _leave(ownership, members, checking, store)
    finally:
        lease.end()
        await end(*tasks)
        await shard.abandon()
        await shard.effects.evaluator.close()
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error


async def _leave(ownership: Ownership, members: Membership, checking: asyncio.Task[None], store: Store) -> None:
    """Hand all partitions over. A shard that has lost its lease drops what it has not sent yet instead."""
    if members.lease.over.is_set() or not members.lease.good:  # `over` may be set by others
        log.warning("lease_lost", shard=members.me.shard, member=members.me.id)
        store.broker.forget_unwritten()
        return
    await end(checking)
    await ownership.leave()


def _answer(shard: Shard) -> bytes:
    return orjson.dumps({"shard": shard.number, "partitions": shard.partitions if shard.lease.good else ()})
