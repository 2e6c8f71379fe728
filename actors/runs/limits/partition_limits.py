"""The limits of one partition: they are read from the log, and their log is kept short."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import msgspec

from penstock.actors.runs.limits.limit_actor import LimitActor, LimitDeps
from penstock.broker import names
from penstock.broker.nats.pull import Delivery
from penstock.config.logging import get_logger
from penstock.config.process.background import start
from penstock.config.process.crash_points import reached
from penstock.config.process.rate_limited_log import log_rate_limited
from penstock.engine.errors import PenstockError
from penstock.engine.limits.compaction import cut_at, forget_cuts, is_idle, needed_from
from penstock.engine.limits.records import Decided, decode

LOG_PER_OPEN, LOG_MIN = 10, 1000  # the log is shortened when it has more messages for each who holds or waits

log = get_logger()


class PartitionLimits:
    """Owned by the limits of a shard, as long as the shard owns the partition. `lost` makes the owner read the log
    again, from the beginning for this partition.

    `seq` is the sequence up to which the log of the partition has come here, `count` how many messages it has, more or
    less. `limits` are those that somebody holds, waits for, or has asked lately.
    """

    def __init__(self, deps: LimitDeps, number: int, lost: Callable[[], None]) -> None:
        self._deps, self.number, self._lost_one = deps, number, lost
        self.limits: dict[str, LimitActor] = {}
        self.seq = self.count = 0
        self._read = self._ready = self._closing = False
        self._held: list[Delivery] = []
        self._shorten_at = LOG_MIN
        self._shortening: asyncio.Task[None] | None = None

    def take(self, delivery: Delivery) -> None:
        """Hand what was asked to its limit; while the log is being read, keep it."""
        if self._closing:
            return
        if not self._ready:
            self._held.append(delivery)
        elif delivery.seq > self.seq:
            limit_id, _ = names.limit_of(delivery.subject)
            self._ask(limit_id, delivery.data, delivery.seq)
            if self.count > self._shorten_at and self._shortening is None:
                self._shortening = start(self._shorten(), name="limits_shorten")

    def hold(self) -> None:
        """Keep what is asked from now on until the log has been read."""
        self._ready = False
        self._held.clear()

    async def catch_up(self) -> None:
        """Read what is stored behind what has come here, and go on live. Raises Unavailable."""
        first = not self._read
        async for page in self._deps.store.limit_log.stored(self.number, self.seq):
            for one in page:
                limit_id, is_decision = names.limit_of(one.subject)
                if first:
                    self._replay(limit_id, one.data, one.seq)
                elif not is_decision:  # a decision of another owner shows when this one decides
                    self._ask(limit_id, one.data, one.seq)
            await asyncio.sleep(0)
        if self._closing:
            return
        self._read = self._ready = True
        held, self._held = self._held, []
        for delivery in held:
            self.take(delivery)
        if first:
            for actor in list(self.limits.values()):
                actor.wake()

    def start_over(self) -> None:
        """Forget what is in memory: it is read again from the beginning."""
        self._dismiss()
        self.limits, self._held = {}, []
        self.seq = self.count = 0
        self._read = self._ready = False
        self._shorten_at = LOG_MIN

    def close(self) -> None:
        """Take nothing more, and stop at once."""
        self._closing = True
        self._dismiss()

    async def settle(self) -> None:
        """Take nothing more. Return when all that has come is decided, and the runs are told."""
        self._closing = True
        while pending := [future for actor in self.limits.values() for future in actor.pending()]:
            await asyncio.wait(pending)

    def _dismiss(self) -> None:
        if self._shortening is not None:
            self._shortening.cancel()
            self._shortening = None
        for actor in self.limits.values():
            actor.dismiss()

    def _actor(self, limit_id: str) -> LimitActor:
        actor = self.limits.get(limit_id)
        if actor is None:
            actor = self.limits[limit_id] = LimitActor(self._deps, limit_id, lambda: self.seq, self._lost)
        return actor

    def _lost(self) -> None:
        self.start_over()
        self._lost_one()

    def _replay(self, limit_id: str, data: bytes, seq: int) -> None:
        self._saw(seq)
        try:
            self._actor(limit_id).replay(decode(data), seq)
        except msgspec.MsgspecError as error:
            log_rate_limited(log, "limit_record_unreadable", "error", seq=seq, error=str(error))

    def _ask(self, limit_id: str, data: bytes, seq: int) -> None:
        self._saw(seq)
        try:
            record = decode(data)
            if isinstance(record, Decided):
                raise msgspec.ValidationError("a decision among what was asked")
        except msgspec.MsgspecError as error:
            log_rate_limited(log, "limit_record_unreadable", "error", seq=seq, error=str(error))
            return
        self.count += 1  # it is followed by a decision
        self._actor(limit_id).take(record, seq)

    def _saw(self, seq: int) -> None:
        self.seq = max(self.seq, seq)
        self.count += 1

    async def _shorten(self) -> None:
        """Shorten the log if it has much that nobody needs. What fails is tried again when it has grown."""
        try:
            if self._is_long():
                now = self._deps.clock.now()
                await self._write_full(actor for actor in self.limits.values() if not is_idle(actor.state, now))
                await self._remove_old()
            if self._is_long() and (waited := [one for one in self.limits.values() if one.state.waiting_total]):
                await self._write_full(waited, self.seq + 1)
                await self._remove_old()
        except PenstockError as error:
            log_rate_limited(log, "limits_not_shortened", partition=self.number, error=str(error))
        finally:
            self._shorten_at = self.count + LOG_MIN
            self._shortening = None

    def _is_long(self) -> bool:
        return self.count > self._length_wanted()

    def _length_wanted(self) -> int:
        states = [actor.state for actor in self.limits.values()]
        return LOG_PER_OPEN * sum(len(state.holders) + state.waiting_total for state in states) + LOG_MIN

    async def _remove_old(self) -> None:
        """Remove what no replay needs any more, when all that are not idle have written down what is known of them."""
        await self._write_full(self._idle_needed(self._needed_by_busy()))
        below = self._needed_by_busy()
        while (lower := self._needed_with(below)) < below:
            below = lower
        self._deps.lease.check()
        reached("limit.compacting")
        removed = await self._deps.store.limit_log.purge(self.number, below)
        reached("limit.compacted")
        self.count = max(0, self.count - removed)
        self._forget_idle(below)

    async def _write_full(self, actors: Iterable[LimitActor], waiting_before: int = 0) -> None:
        for written in [actor.write_full(waiting_before) for actor in actors]:
            await written

    def _needed_by_busy(self) -> int:
        """The first sequence that a replay of the limits needs that are not idle."""
        busy = [actor for actor in self.limits.values() if not self._is_idle(actor)]
        needed = (min(needed_from(actor.state), actor.folded_below or self.seq + 1) for actor in busy)
        return min(needed, default=self.seq + 1)

    def _needed_with(self, below: int) -> int:
        """The first sequence that a replay needs of which all from `below` on is kept."""
        idle = [needed_from(actor.state) for actor in self._idle_needed(below)]
        return min([below, *idle, *(cut_at(actor.state, below) for actor in self.limits.values())])

    def _idle_needed(self, below: int) -> list[LimitActor]:
        """The idle limits of which older records are needed, because a decision of theirs is not removed with what is
        stored before `below`: it may name holders that were released before that, though behind its `upto`."""
        idle = (actor for actor in self.limits.values() if self._is_idle(actor))
        return [actor for actor in idle if needed_from(actor.state) < below <= actor.decided_seq]

    def _is_idle(self, actor: LimitActor) -> bool:
        return actor.idle and is_idle(actor.state, self._deps.clock.now())

    def _forget_idle(self, below: int) -> None:
        """Forget the limits of which nothing is stored any more."""
        now = self._deps.clock.now()
        for limit_id, actor in list(self.limits.items()):
            forget_cuts(actor.state, below)
            if actor.decided_seq >= below:
                continue
            if actor.idle and is_idle(actor.state, now) and actor.state.upto < below:
                del self.limits[limit_id]
            else:
                actor.decided_seq = 0
