"""The consumers of partitions: an owner that was not given the partition gets one that a former owner cannot reach."""

from __future__ import annotations

import asyncio

import orjson
from nats.aio.msg import Msg

from penstock.broker import names
from penstock.broker.run_ids import new_run_id
from penstock.broker.store import Store
from penstock.engine.run.events import StepStarted


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
    await store.consumers.remove_former({partition: later})
    assert "409" == (await stale.got.get()).headers["Status"]  # type: ignore[index]
    await appended(store, run_id, 2)
    await store.broker.publish(delivered[-1].reply, b"+ACK")
    await store.broker.flush()
    assert seqs[0] - 1 == await store.consumers.floor(later)
    assert stale.got.empty()
    assert {partition: later}.items() <= (await store.consumers.latest()).items()


async def test_only_consumers_of_former_owners_are_removed(store: Store) -> None:
    run_id = new_run_id()
    partition = names.partition(run_id)
    later = names.engine_consumer(partition, 7)
    await store.consumers.open(later, partition, 1)
    await store.consumers.remove_former({partition: names.engine_consumer(partition, 5)})
    await store.consumers.remove_former({partition + 1: names.engine_consumer(partition + 1, 9)})
    assert await store.consumers.floor(later) is not None
    assert await store.consumers.floor(names.engine_consumer(partition, 5)) is None
    assert not await store.consumers.reset(names.engine_consumer(partition, 5))


async def test_one_that_is_there_is_left_as_it_is(store: Store) -> None:
    run_id = new_run_id()
    partition, seqs = names.partition(run_id), await appended(store, run_id, 3)
    consumer = names.engine_consumer(partition, 11)
    await store.consumers.open(consumer, partition, seqs[1])
    await store.consumers.open(consumer, partition, 1)
    assert seqs[1] - 1 == await store.consumers.floor(consumer)
