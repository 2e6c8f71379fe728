"""The limits in the partitions of a shard: their log is read and then followed, by one reader for all partitions."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial

from penstock.actors.runs.limits.allowances import Allowances
from penstock.actors.runs.limits.answers import answers
from penstock.actors.runs.limits.backstop import Backstop
from penstock.actors.runs.limits.limit_actor import LimitDeps
from penstock.actors.runs.limits.partition_limits import PartitionLimits
from penstock.actors.runs.limits.token_timers import TokenTimers
from penstock.actors.runs.shared.broker_clock import BrokerClock
from penstock.actors.runs.shared.lease import LeaseLost, ShardLease
from penstock.broker.limits.limit_log import LimitsTip
from penstock.broker.nats.pull import Delivery
from penstock.broker.records.limit_configs import Place
from penstock.broker.store import Store
from penstock.config.logging import get_logger
from penstock.config.process.background import all_of, report, restarting
from penstock.config.process.rate_limited_log import log_rate_limited
from penstock.engine.errors import PenstockError
from penstock.engine.limits.records import Decided
from penstock.engine.limits.state import LimitState
from penstock.telemetry.metrics import LABELS_MAX, OTHER

AGAIN_S = 0.5
LOOK_S = 5.0  # for the stream of limits, as long as there is none
TOGETHER_S = 0.05  # partitions that come within it are read together

log = get_logger()


class LimitOwner:
    """Owned by one shard, as long as it lives. `run` does the work. It sends nothing, and has no reader, before
    somebody has used a limit."""

    def __init__(
        self,
        store: Store,
        lease: ShardLease,
        clock: BrokerClock,
        ask_again: Callable[[Collection[int]], Awaitable[None]],
    ) -> None:
        """`ask_again` has the runs of some partitions ask for all their slots again."""
        self._store, self._lease, self._clock, self._ask_again = store, lease, clock, ask_again
        self.timers = TokenTimers(clock)
        self.allowances = Allowances(store.limit_configs, self._changed)
        self._deps = LimitDeps(
            store=store,
            lease=lease,
            clock=clock,
            allowed=self.allowances.now,
            wake=self.timers.wake,
            decided=self._decided,
        )
        self.partitions: dict[int, PartitionLimits] = {}
        released = store.meters.counter("penstock_limit_backstop_releases_total")
        self.backstop = Backstop(store, lease, clock, self.partitions, released.add)
        self._decisions = store.meters.counter("penstock_limit_decisions_total")
        self._created: str | None = None
        self._again, self._made = asyncio.Event(), asyncio.Event()

    def register_metrics(self) -> None:
        """Register the gauges, which are read for each request for metrics."""
        self._store.meters.readings("penstock_limit_holders", self._holders)
        self._store.meters.readings("penstock_limit_waiting", self._waiting)

    def own(self, number: int) -> None:
        """Take over the limits of a partition that the shard owns from now on."""
        self.partitions[number] = PartitionLimits(self._deps, number, self._again.set)
        self._again.set()

    async def settle(self, number: int) -> None:
        """Finish what is asked of a partition's limits so far, and take nothing more."""
        if (found := self.partitions.get(number)) is not None:
            await found.settle()

    def forget(self, number: int) -> None:
        """Drop the limits of a partition that this shard does not own any more."""
        found = self.partitions.pop(number, None)
        if found is not None:
            found.close()
            self._again.set()

    async def run(self) -> None:
        """Read and follow the log as long as there is one, for ever."""
        self._store.broker.on_reconnect.append(self._reconnected)
        try:
            async with (
                self._store.limit_log.when_made(self._made.set),
                restarting(self.allowances.run, name="limit_allowances"),
                restarting(self.backstop.run, name="limit_backstop"),
            ):
                while True:
                    try:
                        await self._wait_for_log()
                        await self._follow()
                    except LeaseLost:
                        return
                    except Exception as error:
                        self._report(error)
                        await asyncio.sleep(AGAIN_S)
        finally:
            self._store.broker.on_reconnect.remove(self._reconnected)
            self.timers.close()

    async def _wait_for_log(self) -> None:
        """Return when the stream is there. One that was there and is gone was deleted: it is made again."""
        self._made.clear()
        while await self._store.limit_log.tip() is None:
            if self._created is not None:
                await self._store.limit_log.make_again()
                return
            with suppress(TimeoutError):  # the notification may be lost
                async with asyncio.timeout(LOOK_S):
                    await self._made.wait()
            self._made.clear()

    async def _follow(self) -> None:
        """Follow the log of the partitions until they change, or something may be lost."""
        self._again.clear()
        partitions = dict(self.partitions)
        if partitions:
            for found in partitions.values():
                found.hold()
            async with self._store.limit_log.follow(partitions, self._take, self._again.set) as following:
                self._check_same(following.tip, partitions)
                await self.allowances.read()
                await all_of([found.catch_up() for found in partitions.values()])
                async with AsyncExitStack() as beside:
                    for number, found in partitions.items():
                        answer = partial(answers, self._deps, found)
                        await beside.enter_async_context(self._store.limit_questions.answered(number, answer))
                    if lacking := await self._store.limit_log.not_asked(partitions):
                        recover = partial(self._recover, lacking)
                        await beside.enter_async_context(restarting(recover, name="limits_asked_again"))
                    await self._again.wait()
        else:
            await self._again.wait()
        await asyncio.sleep(TOGETHER_S)

    async def _recover(self, partitions: Collection[int]) -> None:
        """Have the runs of these partitions ask again: the stream was made after they did."""
        while True:
            try:
                await self._ask_again(partitions)
                await self._store.limit_log.note_asked(partitions)
                return
            except LeaseLost:
                return
            except PenstockError as error:
                log_rate_limited(log, "limits_wait_for_broker", error=str(error))
                await asyncio.sleep(AGAIN_S)

    def _take(self, delivery: Delivery) -> None:
        found = self.partitions.get(int(delivery.subject.split(".", 2)[1]))
        if found is not None:
            found.take(delivery)

    def _check_same(self, tip: LimitsTip, partitions: dict[int, PartitionLimits]) -> None:
        """Forget what is known of a stream that was deleted: this one was made in its place."""
        if self._created not in (None, tip.created):
            for found in partitions.values():
                found.start_over()
        self._created = tip.created

    def _changed(self, places: Collection[Place]) -> None:
        """Have the limits of these kinds and scopes take a turn: they may allow more now."""
        for found in self.partitions.values():
            for actor in found.limits.values():
                name = actor.state.name
                if name is not None and (name.kind, name.scope) in places:
                    actor.wake()

    def _decided(self, decided: Decided) -> None:
        self._decisions.add(decided.name.kind.value)

    def _holders(self) -> Mapping[tuple[str, ...], float]:
        return self._sums(lambda state: len(state.holders))

    def _waiting(self) -> Mapping[tuple[str, ...], float]:
        return self._sums(lambda state: state.waiting_total)

    def _sums(self, count: Callable[[LimitState], int]) -> Mapping[tuple[str, ...], float]:
        """Of each kind and scope, over all keys; of those beyond LABELS_MAX, the smallest are added up."""
        sums = Counter[tuple[str, ...]]()
        for found in self.partitions.values():
            for actor in found.limits.values():
                if (name := actor.state.name) is not None:
                    sums[name.kind.value, name.scope] += count(actor.state)
        for kind, scope in sorted(sums, key=lambda labels: sums[labels], reverse=True)[LABELS_MAX:]:
            sums[kind, OTHER] += sums.pop((kind, scope))
        return sums

    async def _reconnected(self) -> None:
        self._made.set()

    def _report(self, error: Exception) -> None:
        if not isinstance(error, PenstockError):
            report("limits", error)
        log_rate_limited(log, "limits_wait_for_broker", error=str(error))
