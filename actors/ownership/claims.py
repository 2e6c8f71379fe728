"""The claims of one life of a shard: which partitions it has, by which consumers, and from where on.

Every write is a compare-and-swap with the claim that it replaces. A partition that was not handed over gets a consumer
with a name that was never used, see broker/streams/consumers.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.actors.ownership.membership import Membership
from penstock.broker import names
from penstock.broker.records.owners import Claim, Claimed, View
from penstock.broker.store import Store
from penstock.config.limits import PARTITIONS
from penstock.config.logging import get_logger
from penstock.config.process.crash_points import reached
from penstock.engine.errors import Conflict

CONSUMER_SILENT_S = 15.0  # a cluster's election takes up to 10

log = get_logger()


class Claims:
    """Owned by one life of a shard. `mine` are its claims, by partition."""

    def __init__(self, store: Store, members: Membership) -> None:
        self._store, self._members = store, members
        self.mine: dict[int, Claimed] = {}
        self.log = ""
        self._tip = 0

    async def look(self) -> None:
        """Read which log there is, and where it ends: before partitions are taken. Raises Unavailable."""
        tip = await self._store.history.tip()
        self.log, self._tip = tip.created, tip.seq

    def learn(self, view: View, working: Iterable[int]) -> None:
        """Add own claims whose write had no answer; end the lease if another shard has the claim of a partition that
        this one is `working` on."""
        me = self._members.me.id
        for number, found in view.claims.items():
            mine = self.mine.get(number)
            if mine is not None and found.revision <= mine.revision:
                continue
            if found.claim.owner == me:
                self.mine[number] = found
            elif number not in working:  # handed over by a write that was not answered
                self.mine.pop(number, None)
            else:
                log.error("claim_lost", shard=self._members.me.shard, partition=number, owner=found.claim.owner)
                self._members.lease.end()

    async def assume(self, view: View) -> None:
        """Add a claim to the view for each partition without one: only its latest consumer may know what was handled.
        Raises Unavailable."""
        latest = await self._store.consumers.latest()
        for number in range(PARTITIONS):
            view.claims.setdefault(number, Claimed(Claim(consumer=latest.get(number, ""), log=self.log), 0))

    async def take(self, number: int, view: View) -> tuple[Claimed, bool]:
        """Write a claim to a partition that nobody has. Also returns whether its consumer is still to be made: one of
        a partition that was handed over may be there. Raises Conflict: another shard has it; Unavailable."""
        former = view.claims[number]
        await self._check_free(former)
        if self._is_handed_over(former) and await self._is_as_wanted(former.claim.consumer):
            start = min(former.claim.start, self._tip + 1)
            claim = Claim(self._members.me.id, former.claim.consumer, start, self.log)
            return await self._write(number, claim, former), False
        return await self._take_by(number, view, _next_consumer(number, former)), True

    async def take_by_common(self, number: int, view: View, consumer: str, handled_before: int) -> Claimed:
        """Write a claim to a partition that this shard has, or that nobody has, which names the common consumer. Raises
        Conflict: another shard has it; Unavailable."""
        if number in self.mine:
            return await self.replace(number, consumer, handled_before)
        await self._check_free(view.claims[number])
        return await self._take_by(number, view, consumer)

    async def replace(self, number: int, consumer: str, handled_before: int) -> Claimed:
        """Write that this shard goes on by another consumer, behind what is handled. Raises Conflict: another shard has
        the partition; Unavailable."""
        mine = self.mine[number]
        claim = Claim(mine.claim.owner, consumer, handled_before or mine.claim.start, mine.claim.log)
        return await self._write(number, claim, mine)

    async def release(self, number: int, handled_before: int) -> None:
        """Write that the partition was handed over, with a consumer of its own, which may be still to be made. Raises
        Conflict: another shard has it; Unavailable."""
        self._members.lease.check()
        mine = self.mine[number]
        consumer = self.next_consumer(number) if is_common(mine) else mine.claim.consumer
        claim = Claim("", consumer, handled_before or mine.claim.start, mine.claim.log)
        await self._store.owners.claim(number, claim, mine.revision)
        reached("handover.released")
        del self.mine[number]

    def next_consumer(self, number: int) -> str:
        """The name of another consumer for a partition of this shard."""
        return _next_consumer(number, self.mine[number])

    def next_common_consumer(self, view: View) -> str:
        """The name of another consumer for all partitions, of which none has a claim to a later one."""
        return names.common_consumer(max(map(_next_epoch, (view.claims | self.mine).values())))

    def is_unresponsive(self, consumer: str) -> bool:
        """Whether the consumer has not answered for long, as when two nodes of a broker cluster die at once."""
        return self._store.consumers.silent_s(consumer) > CONSUMER_SILENT_S

    async def _check_free(self, former: Claimed) -> None:
        """Raise Conflict if the view was outdated: the owner is listed."""
        if former.claim.owner and await self._store.owners.find(former.claim.owner) is not None:
            raise Conflict("another shard has the partition")

    def _is_handed_over(self, former: Claimed) -> bool:
        return former.revision > 0 and not former.claim.owner and former.claim.log == self.log

    async def _is_as_wanted(self, consumer: str) -> bool:
        """Whether a consumer is in the broker's memory if it should be, or not there."""
        found = await self._store.consumers.progress(consumer) if self._store.consumers.in_memory else None
        return found is None or found.in_memory

    async def _take_by(self, number: int, view: View, consumer: str) -> Claimed:
        """Go on behind what the former claim and the notes say is handled. A broker whose machine has crashed may have
        lost the end of its log: what is stored there later is new.

        The consumer of a former owner is not asked: the broker takes the removal of an event that was delivered for its
        acknowledgement, and so for that of all before it.
        """
        former = view.claims[number]
        known = view.handled_before(number, self.log)
        if not former.revision and former.claim.consumer and not self.is_unresponsive(former.claim.consumer):
            known = max(known, (await self._store.consumers.floor(former.claim.consumer) or 0) + 1)
        return await self._write(
            number, Claim(self._members.me.id, consumer, min(known, self._tip + 1), self.log), former
        )

    async def _write(self, number: int, claim: Claim, former: Claimed) -> Claimed:
        self._members.lease.check()
        mine = self.mine[number] = Claimed(claim, await self._store.owners.claim(number, claim, former.revision))
        reached("handover.claimed")
        return mine


def is_common(claimed: Claimed) -> bool:
    """Whether the claim names a consumer of all partitions."""
    found = names.engine_consumer_in(claimed.claim.consumer)
    return found is not None and found.partition is None


def _next_consumer(number: int, former: Claimed) -> str:
    """A consumer name that was never used before, numbered after that of the former claim."""
    return names.engine_consumer(number, _next_epoch(former))


def _next_epoch(former: Claimed) -> int:
    found = names.engine_consumer_in(former.claim.consumer)
    return max(former.revision, 0 if found is None else found.epoch + 1)
