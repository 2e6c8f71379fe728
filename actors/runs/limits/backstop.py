"""The backstop: holders that hold for long are looked at, and a slot whose holder does not hold it by its own log is
given back.

Nothing but an error of this service leads to that: it is logged as an error, and counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from penstock.actors.runs.limits.limit_actor import LimitActor
from penstock.actors.runs.limits.partition_limits import PartitionLimits
from penstock.actors.runs.loading import load
from penstock.actors.runs.shared.broker_clock import BrokerClock
from penstock.actors.runs.shared.lease import ShardLease
from penstock.broker.store import Store
from penstock.config.logging import get_logger
from penstock.config.process.rate_limited_log import log_rate_limited
from penstock.engine.errors import PenstockError
from penstock.engine.limits.records import Granted, Released
from penstock.engine.run.slots.holders import holds

OLD_S = 60.0  # a younger holder is not looked at
AGAIN_S = 60.0  # nor one that was looked at within it
SURE_S = 20.0  # between two looks that find the same: what gives the slot back may be on its way
EVERY_S = 0.1  # one look
IDLE_S = 5.0

log = get_logger()


class _Look(NamedTuple):
    """When a holder was looked at (broker time), and whether it did not hold then."""

    at: float
    astray: bool


class Backstop:
    """Owned by the limits of a shard. `released` is called for each slot that is given back."""

    def __init__(
        self,
        store: Store,
        lease: ShardLease,
        clock: BrokerClock,
        partitions: Mapping[int, PartitionLimits],
        released: Callable[[], None],
    ) -> None:
        self._store, self._lease, self._clock = store, lease, clock
        self._partitions, self._released = partitions, released
        self._looks: dict[tuple[str, str], _Look] = {}  # by limit and holder: a run may hold several

    async def run(self) -> None:
        """Look at one old holder after the other, for ever."""
        while True:
            due = list(self._due())
            for actor, holder in due:
                if holder.holder in actor.state.holders:
                    await self._look(actor, holder)
                    await asyncio.sleep(EVERY_S)
            await asyncio.sleep(IDLE_S)

    def _due(self) -> Iterator[tuple[LimitActor, Granted]]:
        """The holders to look at now. What was noted about others is forgotten."""
        now, former, self._looks = self._clock.now(), self._looks, {}
        for partition in list(self._partitions.values()):
            for actor in list(partition.limits.values()):
                for holder in actor.state.holders.values():
                    if holder.at > now - OLD_S:
                        continue
                    held = actor.limit_id, holder.holder
                    look = former.get(held)
                    if look is not None:
                        self._looks[held] = look
                    if look is None or look.at < now - (SURE_S if look.astray else AGAIN_S):
                        yield actor, holder

    async def _look(self, actor: LimitActor, granted: Granted) -> None:
        try:
            run = (await load(self._store, granted.run_id)).run
            self._lease.check()
        except PenstockError as error:
            log_rate_limited(log, "limit_holder_not_read", run_id=granted.run_id, error=str(error))
            return
        held = actor.limit_id, granted.holder
        before = self._looks.get(held)
        astray = run is None or not holds(run, granted.holder)
        self._looks[held] = _Look(self._clock.now(), astray)
        if not astray or before is None or not before.astray:
            return
        log.error("limit_slot_astray", run_id=granted.run_id, step_id=granted.step_id, holder=granted.holder)
        self._released()
        await (await self._store.limit_log.release(actor.limit_id, Released(holder=granted.holder, why="backstop")))
        self._looks[held] = _Look(self._clock.now(), astray=False)
