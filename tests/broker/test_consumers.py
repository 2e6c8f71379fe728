"""The consumers of partitions: an owner that was not given the partition gets one that a former owner cannot reach, and
one that has all of them reads them by one."""

from __future__ import annotations

import asyncio

import orjson
import pytest
from nats.aio.msg import Msg

from penstock.broker import names
from penstock.broker.nats.pull import Delivery, open_pull
from penstock.broker.run_ids import new_run_id
from penstock.broker.store import Store
from penstock.config.limits import PARTITIONS
from penstock.engine.run.events import StepStarted
from tests.support.waiting import until, until_true


async def appended(store: Store, run_id: str, count: int) -> list[int]:
    return [await store.history.append(StepStarted(run_id=run_id, step_id=f"s{n}")) for n in range(count)]


class Puller:
    """A former owner: it asks for messages, and keeps what it gets."""

    def __init__(self, store: Store) -> None:
        self._store, self._inbox = store, store.broker.new_inbox()
        self.got: asyncio.Queue[Msg] = asyncio.Queue()

    async def ask(self, consumer: str, count: int) -> None:
        await self._store.broker.subscribe(self._inbox, self.got.put)
        request = orjson.dumps({"batch": count, "expires": 30 * 10**9})
        await self._store.broker.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{names.HISTORY}.{consumer}", request, reply=self._inbox
        )
        await self._store.broker.flush()


async def test_what_a_former_owner_has_asked_for_does_not_go_to_it(store: Store) -> None:
    run_id = new_run_id()
    partition = names.partition(run_id)
    seqs = await appended(store, run_id, 3)
    former, later = names.engine_consumer(partition, 1), names.engine_consumer(partition, 2)
    await store.consumers.open(former, partition, seqs[0])
    stale = Puller(store)
    await stale.ask(former, 100)
    delivered = [await stale.got.get() for _ in seqs]
    await store.consumers.open(later, partition, seqs[0])
    assert former in await store.consumers.former({partition: later})
    await store.consumers.remove(former)
    assert "409" == (await stale.got.get()).headers["Status"]  # type: ignore[index]
    await appended(store, run_id, 2)
    await store.broker.publish(delivered[-1].reply, b"+ACK")
    await store.broker.flush()
    assert seqs[0] - 1 == await store.consumers.floor(later)
    assert stale.got.empty()
    assert {partition: later}.items() <= (await store.consumers.latest()).items()


async def test_only_consumers_of_the_same_partitions_that_were_made_before_are_former_ones(store: Store) -> None:
    partition, other = 7, 8
    made = names.engine_consumer(partition, 70), names.common_consumer(80), names.engine_consumer(partition, 90)
    for consumer in made:
        await store.consumers.open(consumer, None if consumer == made[1] else partition, 1)

    async def former(**epochs: int) -> set[str]:
        """Those of the test, before consumers of `own` (this partition) and `else_` (the other one), or a common
        one."""
        current = {partition: epochs.get("own"), other: epochs.get("else_")}
        named = {n: names.engine_consumer(n, epoch) for n, epoch in current.items() if epoch is not None}
        if "common" in epochs:
            named = dict.fromkeys(range(PARTITIONS), names.common_consumer(epochs["common"]))
        return set(made) & set(await store.consumers.former(named))

    assert set() == await former(own=70, else_=99)
    assert {made[0]} == await former(own=75, else_=99)
    assert {*made[:2]} == await former(own=90, else_=99)
    assert {made[0]} == await former(own=90, else_=79)
    assert set(made) == await former(own=91)
    assert {made[0]} == await former(common=80)
    assert set(made) == await former(common=91)
    assert set() == await former()
    for consumer in made:
        await store.consumers.remove(consumer)
        await store.consumers.remove(consumer)
        assert await store.consumers.floor(consumer) is None
        assert not await store.consumers.reset(consumer, 1)


async def test_the_latest_consumer_of_a_partition_may_be_that_of_all(store: Store) -> None:
    own, common = names.engine_consumer(3, 1001), names.common_consumer(1000)
    await store.consumers.open(own, 3, 1)
    await store.consumers.open(common, None, 1)
    latest = await store.consumers.latest()
    assert dict.fromkeys(range(PARTITIONS), common) | {3: own} == latest
    await store.consumers.remove(own)
    await store.consumers.remove(common)


async def test_a_common_consumer_has_the_events_of_all_partitions_in_their_order(store: Store) -> None:
    consumer, found = names.common_consumer(2000), list[Delivery]()
    seqs = [seq for _ in range(40) for seq in await appended(store, new_run_id(), 1)]
    await store.consumers.open(consumer, None, seqs[1])
    async with open_pull(store.broker, names.HISTORY, consumer, found.append, batch=100):
        await until_true(lambda: len(found) >= len(seqs) - 1)
    assert seqs[1:] == [delivery.seq for delivery in found if delivery.seq in seqs]
    assert len({delivery.subject.split(".")[1] for delivery in found}) > 1
    await store.consumers.remove(consumer)


@pytest.mark.parametrize(
    "name", ["engine-all", "engine-all-x", "engine-3-x", "engine-", "engine", "other-3-4", "engine-3-4-5"]
)
def test_other_names_are_not_those_of_engines(name: str) -> None:
    assert names.engine_consumer_in(name) is None


def test_the_names_of_consumers_say_whose_they_are() -> None:
    assert (4, 3) == names.engine_consumer_in(names.engine_consumer(3, 4))
    assert (-1, 3) == names.engine_consumer_in(names.engine_consumer(3))
    assert (4, None) == names.engine_consumer_in(names.common_consumer(4))


async def test_one_that_is_there_is_left_as_it_is(store: Store) -> None:
    run_id = new_run_id()
    partition, seqs = names.partition(run_id), await appended(store, run_id, 3)
    consumer = names.engine_consumer(partition, 11)
    await store.consumers.open(consumer, partition, seqs[1])
    await store.consumers.open(consumer, partition, 1)
    assert seqs[1] - 1 == await store.consumers.floor(consumer)


async def test_the_broker_takes_what_is_removed_for_acknowledged_and_with_it_all_before(store: Store) -> None:
    """Why nobody goes on behind what a consumer says is acknowledged, nor has it begin again there."""
    run_id = new_run_id()
    partition, seqs = names.partition(run_id), await appended(store, run_id, 4)
    consumer, found = names.engine_consumer(partition, 12), list[Delivery]()
    await store.consumers.open(consumer, partition, seqs[0])

    async def is_passed_over() -> bool:
        return await store.consumers.floor(consumer) == seqs[2]

    async with open_pull(store.broker, names.HISTORY, consumer, found.append, batch=100):
        await until_true(lambda: len(found) >= len(seqs))
        await store.history.erase(seqs[2])
        await until(is_passed_over)
        assert await store.consumers.reset(consumer, seqs[0])
        await until_true(lambda: len(found) >= 2 * len(seqs) - 1)
    assert [seqs[0], seqs[1], seqs[3]] == [delivery.seq for delivery in found[len(seqs) :]]
    await store.consumers.remove(consumer)
