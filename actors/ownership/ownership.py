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

from penstock.actors.ownership.membership import Membership
from penstock.actors.ownership.moves import Mine, Moves, plan, willing_places
from penstock.actors.runs.shard import Shard
from penstock.actors.runs.shared.lease import ShardLease, now
from penstock.broker import names
from penstock.broker.records.owners import Claim, Claimed, Handled, Member, View
from penstock.broker.store import Store
from penstock.config.limits import LEASE_RENEW_S, PARTITIONS
from penstock.config.logging import get_logger
from penstock.config.process.background import each_of, end, start
from penstock.config.process.crash_points import reached
from penstock.config.process.rate_limited_log import log_rate_limited
from penstock.engine.errors import Conflict, PenstockError, Unavailable

SIBLINGS_S_MAX = 0.6  # to wait for the other shards of the same start; then partitions are taken without them
CONSUMER_SILENT_S = 15.0  # a cluster's election takes up to 10
NOTED_EVERY_S = 2.0  # how far the partitions are, for after a restart of the broker
SETTLE_S = 0.25  # no shard comes or goes for so long before partitions move between living shards

log = get_logger()


class Ownership:
    """Owned by one life of a shard."""

    def __init__(self, store: Store, shard: Shard, members: Membership) -> None:
        self._store, self._shard, self._members = store, shard, members
        self._mine: dict[int, Claimed] = {}
        self._log = ""
        self._notified = asyncio.Event()
        self._places: frozenset[str] = frozenset()
        self._changed_at = 0.0
        self._leaves_consumers = False
        self._noted: dict[int, int] = {}
        self._noted_at = 0.0

    async def start(self, siblings: int) -> None:
        """Take the free partitions, once the `siblings` of the same start are listed, too. Raises Unavailable."""
        self._log = (await self._store.history.tip()).created
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
            await self._do_all([self._hand_over(number) for number in self._mine])
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
        self._learn_claims(view)
        moves = plan(view, self._what_is_mine())
        if moves.postponed:
            asyncio.get_running_loop().call_later(self._settled_in_s(), self._notified.set)
        if any(number not in view.claims for number in moves.take):
            await self._assume_claims(view)
        self._leaves_consumers = self._leaves_consumers or bool(moves.take or moves.replace_consumer)
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
        unresponsive = [n for n, mine in self._mine.items() if self._is_unresponsive(mine.claim.consumer)]
        settled = self._settled_in_s() <= 0
        return Mine(self._members.me, self._mine, self._shard.partitions, unresponsive, settled)

    def _note_places(self, places: frozenset[str]) -> None:
        if places != self._places:
            self._places, self._changed_at = places, now()

    def _settled_in_s(self) -> float:
        """When shards that come and go will have settled, if no other one does; 0 or less: they have."""
        return self._changed_at + SETTLE_S - now()

    async def _carry_out(self, moves: Moves, view: View) -> None:
        """Do all moves side by side."""
        await self._do_all(
            [
                *map(self._hand_over, moves.hand_over),
                *(self._take(number, view) for number in moves.take),
                *map(self._replace_consumer, moves.replace_consumer),
            ]
        )

    async def _clean_up(self, moves: Moves) -> None:
        """Remove the consumers that these moves, or earlier ones, have replaced, and log what was moved. Consumers that
        nobody reads from cost the broker time at each event."""
        if self._leaves_consumers:
            await self._store.consumers.remove_former({n: mine.claim.consumer for n, mine in self._mine.items()})
            self._leaves_consumers = False
        if moves.take or moves.hand_over:
            log.info(
                "partitions_moved",
                shard=self._members.me.shard,
                taken=len(moves.take),
                handed_over=len(moves.hand_over),
            )

    def _learn_claims(self, view: View) -> None:
        """Add own claims whose write had no answer; end the lease if another shard has one of this shard's claims."""
        me = self._members.me.id
        for number, found in view.claims.items():
            mine = self._mine.get(number)
            if mine is not None and found.revision <= mine.revision:
                continue
            if found.claim.owner == me:
                self._mine[number] = found
            elif number not in self._shard.partitions:  # handed over by a write that was not answered
                self._mine.pop(number, None)
            else:
                log.error("claim_lost", shard=self._members.me.shard, partition=number, owner=found.claim.owner)
                self._members.lease.end()

    async def _assume_claims(self, view: View) -> None:
        """Add a claim to the view for each partition without one: its latest consumer knows what was handled."""
        latest = await self._store.consumers.latest()
        for number in range(PARTITIONS):
            view.claims.setdefault(number, Claimed(Claim(consumer=latest.get(number, ""), log=self._log), 0))

    async def _take(self, number: int, view: View) -> None:
        mine = self._mine.get(number)
        fresh = False
        if mine is None:
            former = view.claims[number]
            if former.claim.owner and await self._store.owners.find(former.claim.owner) is not None:
                return  # the view is outdated: its owner is listed
            handed_over = former.revision > 0 and not former.claim.owner and former.claim.log == self._log
            handed_over = handed_over and await self._is_as_wanted(former.claim.consumer)
            mine, fresh = await self._claim(number, view, handed_over), not handed_over
        await self._shard.own(number, mine.claim.consumer, mine.claim.start, fresh=fresh)
        reached("handover.owned")

    async def _is_as_wanted(self, consumer: str) -> bool:
        """Whether a consumer is in the broker's memory if it should be, or not there. Raises Unavailable."""
        found = await self._store.consumers.progress(consumer) if self._store.consumers.in_memory else None
        return found is None or found.in_memory

    async def _claim(self, number: int, view: View, handed_over: bool) -> Claimed:
        """Write this shard's claim. A partition that was not handed over gets a new consumer, see
        broker/streams/consumers.py."""
        me, former = self._members.me.id, view.claims[number]
        if handed_over:
            claim = Claim(me, former.claim.consumer, former.claim.start, self._log)
        else:
            consumer = former.claim.consumer
            asked = bool(consumer) and not self._is_unresponsive(consumer)
            handled = await self._store.consumers.floor(consumer) if asked else None
            known = view.handled_before(number, self._log)
            claim = Claim(me, _next_consumer(number, former), max(known, (handled or 0) + 1), self._log)
        return await self._write(number, claim, former)

    async def _write(self, number: int, claim: Claim, former: Claimed) -> Claimed:
        self._members.lease.check()
        mine = self._mine[number] = Claimed(claim, await self._store.owners.claim(number, claim, former.revision))
        reached("handover.claimed")
        return mine

    async def _note_handled(self) -> None:
        """Note how far each partition is, if its consumer would not survive a restart of the broker. Raises
        Unavailable."""
        if now() - self._noted_at < NOTED_EVERY_S or not self._store.consumers.in_memory:
            return
        self._noted_at = now()
        starts = {n: start for n, start in self._shard.handled_before.items() if start > self._noted.get(n, 1)}
        self._members.lease.check()
        await self._store.owners.note_handled({n: Handled(start, self._log) for n, start in starts.items()})
        self._noted |= starts

    def _is_unresponsive(self, consumer: str) -> bool:
        """Whether the consumer has not answered for long, as when two nodes of a broker cluster die at once."""
        return self._store.consumers.silent_s(consumer) > CONSUMER_SILENT_S

    async def _replace_consumer(self, number: int) -> None:
        """Continue with a new consumer behind what is handled, unless this one answers again.

        Raises Unavailable when the whole history is away.
        """
        mine = self._mine[number]
        await self._store.history.last_seq()
        with suppress(Unavailable):
            await self._store.consumers.floor(mine.claim.consumer)
            return
        log.warning(
            "consumer_unresponsive", shard=self._members.me.shard, partition=number, consumer=mine.claim.consumer
        )
        handled = await self._shard.give_up(number)
        claim = Claim(mine.claim.owner, _next_consumer(number, mine), max(mine.claim.start, handled), mine.claim.log)
        await self._write(number, claim, mine)
        await self._shard.own(number, claim.consumer, claim.start, fresh=True)

    async def _hand_over(self, number: int) -> None:
        mine = self._mine[number]
        first_unhandled = await self._shard.hand_over(number)
        self._members.lease.check()
        claim = Claim("", mine.claim.consumer, max(mine.claim.start, first_unhandled), mine.claim.log)
        await self._store.owners.claim(number, claim, mine.revision)
        reached("handover.released")
        del self._mine[number]
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


def _next_consumer(number: int, former: Claimed) -> str:
    """A consumer name that was never used before, numbered after that of the former claim."""
    return names.engine_consumer(
        number, max(former.revision, names.engine_consumer_parts(former.claim.consumer)[1] + 1)
    )


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
