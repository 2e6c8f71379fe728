"""What a shard owns, kept to what it shall own: it takes partitions over, and hands them over, as shards come and go.

Every shard looks at who is there and computes for itself who shall own what (placement.py). A partition moves in two
steps: its owner hands it over and says so in its claim, then the one that shall have it takes the claim. Of an owner
that is gone the claim is taken from. Claims change by compare-and-swap only, so whatever each of them thinks, a
partition has one owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress

import orjson

from penstock.actors.ownership.membership import Membership
from penstock.actors.ownership.placement import placed
from penstock.actors.runs.lease import ShardLease, now
from penstock.actors.runs.shard import Shard
from penstock.broker import names
from penstock.broker.records.owners import Claim, Claimed, Member, View
from penstock.broker.store import Store
from penstock.config.limits import LEASE_RENEW_S, PARTITIONS
from penstock.config.logging import get_logger
from penstock.config.process.background import each_of, end, start
from penstock.config.process.crash_points import reached
from penstock.config.process.rate_limited_log import log_rate_limited
from penstock.engine.errors import Conflict, PenstockError, Unavailable

SIBLINGS_S_MAX = 0.6  # for the other shards of a start; who is alone meanwhile takes everything, and hands over then
CONSUMER_SILENT_S = 15.0  # a cluster's election takes up to 10
SETTLE_S = 0.25  # without another change of who is there, before partitions move between shards that are alive

log = get_logger()


class Ownership:
    """Owned by one life of a shard."""

    def __init__(self, store: Store, shard: Shard, members: Membership) -> None:
        self._store, self._shard, self._members = store, shard, members
        self._mine: dict[int, Claimed] = {}
        self._log = ""
        self._rung = asyncio.Event()
        self._places: frozenset[str] = frozenset()
        self._changed_at = 0.0

    async def start(self, siblings: int) -> None:
        """Take what is nobody's, once the other shards of the same start are there, too. Raises Unavailable."""
        self._log = (await self._store.history.tip()).created
        await self._store.owners.on_ring(self._rung)
        with suppress(TimeoutError):
            async with asyncio.timeout(SIBLINGS_S_MAX):
                while await self._siblings() < siblings:
                    await self._rung.wait()
                    self._rung.clear()
        await self._look()

    async def run(self) -> None:
        """Look again whenever somebody rings, and twice a second in any case, for ever."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LEASE_RENEW_S):
                    await self._rung.wait()
            self._rung.clear()
            try:
                await self._look()
            except Unavailable as error:
                log_rate_limited(log, "shard_waits_for_broker", shard=self._members.me.shard, error=str(error))

    async def leave(self) -> None:
        """Hand everything over and be gone. What the broker does not let us say, others find out."""
        try:
            await self._members.withdraw()
            reached("handover.withdrawn")
            await self._store.owners.ring()
            await self._all([self._hand_over(number) for number in self._mine])
            await self._members.leave()
            reached("member.left")
            await self._store.owners.ring()
        except PenstockError as error:
            log.warning("shard_left_untidily", shard=self._members.me.shard, error=str(error))

    async def _siblings(self) -> int:
        view = await self._store.owners.read()
        return sum(listed.member.engine == self._members.me.engine for listed in view.members.values())

    async def _look(self) -> None:
        """One step towards what shall be. Raises Unavailable, and with it what was not done is left to the next
        look."""
        view = await self._store.owners.read()
        living = await self._members.living(view)
        if self._members.me.engine in view.drained:
            await self._members.withdraw()
        wanted = self._wanted(living, view.drained)
        self._compare(view)
        mute = [
            number for number, mine in self._mine.items() if number in wanted and self._is_mute(mine.claim.consumer)
        ]
        taking = [n for n in wanted if self._is_free(n, view) and n not in self._shard.partitions and n not in mute]
        leaving = [number for number in self._mine if number not in wanted]
        if leaving and not (self._members.me.draining or self._is_settled()):
            leaving = []
        if any(number not in view.claims for number in taking):
            await self._assume_claims(view)
        steps = [
            *map(self._hand_over, leaving),
            *(self._take(number, view) for number in taking),
            *map(self._change_consumer, mute),
        ]
        await self._all(steps)
        if taking or mute:
            await self._store.consumers.remove_former(
                {number: mine.claim.consumer for number, mine in self._mine.items()}
            )
        if taking or leaving:
            log.info("partitions_moved", shard=self._members.me.shard, taken=len(taking), handed_over=len(leaving))

    def _wanted(self, living: Sequence[Member], drained: Collection[str]) -> frozenset[int]:
        willing = [member for member in living if not (member.draining or member.engine in drained)]
        places = frozenset(member.place for member in willing)
        if places != self._places:
            self._places, self._changed_at = places, now()
        return placed(places)[self._members.me.place] if self._members.me in willing else frozenset()

    def _is_settled(self) -> bool:
        """Whether nobody came or went just now. If not, another look follows soon."""
        left_s = self._changed_at + SETTLE_S - now()
        if left_s > 0:
            asyncio.get_running_loop().call_later(left_s, self._rung.set)
        return left_s <= 0

    def _compare(self, view: View) -> None:
        """Learn of claims that were written though nobody said so; end the lease if one of ours is another's."""
        me = self._members.me.id
        for number, found in view.claims.items():
            mine = self._mine.get(number)
            if mine is not None and found.revision <= mine.revision:
                continue
            if found.claim.owner == me:
                self._mine[number] = found
            elif number not in self._shard.partitions:  # it was handed over, though nobody said so
                self._mine.pop(number, None)
            else:
                log.error("claim_lost", shard=self._members.me.shard, partition=number, owner=found.claim.owner)
                self._members.lease.end()

    def _is_free(self, number: int, view: View) -> bool:
        found = view.claims.get(number)
        return found is None or not found.claim.owner or number in self._mine or found.claim.owner not in view.members

    async def _assume_claims(self, view: View) -> None:
        """Of partitions that nobody has ever claimed, or whose claims were lost, what was handled before is known by
        their consumers."""
        latest = await self._store.consumers.latest()
        for number in range(PARTITIONS):
            view.claims.setdefault(number, Claimed(Claim(consumer=latest.get(number, ""), log=self._log), 0))

    async def _take(self, number: int, view: View) -> None:
        mine = self._mine.get(number)
        fresh = False
        if mine is None:
            former = view.claims[number]
            if former.claim.owner and await self._store.owners.find(former.claim.owner) is not None:
                return  # the view was from a moment ago
            handed_over = former.revision > 0 and not former.claim.owner and former.claim.log == self._log
            mine, fresh = await self._claim(number, former, handed_over), not handed_over
        await self._shard.own(number, mine.claim.consumer, mine.claim.start, fresh=fresh)
        reached("handover.owned")

    async def _claim(self, number: int, former: Claimed, handed_over: bool) -> Claimed:
        """Have the partition as from now. What was not handed over gets a consumer of its own: see
        broker/streams/consumers.py."""
        me = self._members.me.id
        if handed_over:
            claim = Claim(me, former.claim.consumer, former.claim.start, self._log)
        else:
            consumer = former.claim.consumer
            asked = bool(consumer) and not self._is_mute(consumer)
            handled = await self._store.consumers.floor(consumer) if asked else None
            known = former.claim.start if former.claim.log == self._log else 1
            claim = Claim(me, _next_consumer(number, former), max(known, (handled or 0) + 1), self._log)
        return await self._write(number, claim, former)

    async def _write(self, number: int, claim: Claim, former: Claimed) -> Claimed:
        self._members.lease.check()
        mine = self._mine[number] = Claimed(claim, await self._store.owners.claim(number, claim, former.revision))
        reached("handover.claimed")
        return mine

    def _is_mute(self, consumer: str) -> bool:
        """Whether it may have lost its leader for good, as when two nodes of a broker cluster die one right after the
        other."""
        return self._store.consumers.silent_s(consumer) > CONSUMER_SILENT_S

    async def _change_consumer(self, number: int) -> None:
        """Go on by another consumer from what is handled; unless the whole history is away, or this one answers
        again."""
        mine = self._mine[number]
        await self._store.history.last_seq()
        with suppress(Unavailable):
            await self._store.consumers.floor(mine.claim.consumer)
            return
        log.warning("consumer_mute", shard=self._members.me.shard, partition=number, consumer=mine.claim.consumer)
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
        await self._store.owners.ring()

    async def _all(self, steps: Sequence[Coroutine[None, None, None]]) -> None:
        """All side by side; the trouble of one is not the others'."""
        for result in await each_of(steps):
            if isinstance(result, Conflict):
                continue  # another shard was faster
            if isinstance(result, PenstockError):
                log_rate_limited(log, "partition_not_moved", shard=self._members.me.shard, error=str(result))
            elif result is not None:
                raise result


def _next_consumer(number: int, former: Claimed) -> str:
    """The name of a consumer that has never been, after that of the former claim."""
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
    """A shard that works as long as its lease is good (`shard.lease.over`), for the time of the block.

    It begins when it has taken what was free; leaving it in peace hands everything over: written and acknowledged.
    Spans are written of the share `sample_ratio` of its runs. `siblings` are the shards that start together, `dead`
    says which places are empty now.
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
        await ownership.start(siblings)
        begin(shard.run(), "shard")
        looking = begin(ownership.run(), "ownership")
        await store.owners.answer(lambda: _answer(shard))
        log.info("shard_ready", shard=me.shard, partitions=len(shard.partitions))
        yield shard
        await _leave(ownership, members, looking, store)
    finally:
        lease.end()
        await end(*tasks)
        await shard.abandon()
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error


async def _leave(ownership: Ownership, members: Membership, looking: asyncio.Task[None], store: Store) -> None:
    """In peace, if there is still something to hand over; otherwise without the last words that may not have left
    yet."""
    if members.lease.over.is_set() or not members.lease.good:  # whoever has noticed: timers and ticks look at it, too
        log.warning("lease_lost", shard=members.me.shard, member=members.me.id)
        store.broker.forget_unwritten()
        return
    await end(looking)
    await ownership.leave()


def _answer(shard: Shard) -> bytes:
    return orjson.dumps({"shard": shard.number, "partitions": shard.partitions if shard.lease.good else ()})
