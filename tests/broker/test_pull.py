"""Continuous pulling: as much as there is room for, and on through a restart of the broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.broker import names
from penstock.broker.nats import pull as pulls
from penstock.broker.nats.connection import Broker
from penstock.broker.nats.headers import MSG_ID
from penstock.broker.nats.publisher import ack_seq
from penstock.broker.nats.pull import Delivery, open_pull
from penstock.broker.store import Store, open_store
from penstock.broker.streams.provisioning import provision
from penstock.config.limits import CLIENT_PENDING_BYTES_MAX, KIB, MIB, PARTITIONS, PULL_BYTES_MAX
from penstock.config.settings import BrokerSettings
from tests.support.own_broker import own_broker
from tests.support.waiting import until


class Taker:
    """Collects deliveries, and says when there are enough."""

    def __init__(self) -> None:
        self.taken: list[Delivery] = []
        self.room = 1000
        self._more = asyncio.Event()

    def take(self, delivery: Delivery) -> None:
        self.taken.append(delivery)
        self.room -= 1
        self._more.set()

    async def has(self, count: int) -> list[bytes]:
        async with asyncio.timeout(15):
            while len(self.taken) < count:
                self._more.clear()
                await self._more.wait()
        return [delivery.data for delivery in self.taken]


async def durable(broker: Broker, name: str, ack_wait_s: int = 1) -> str:
    config = {
        "durable_name": name,
        "ack_policy": "explicit",
        "ack_wait": ack_wait_s * 10**9,
        "filter_subject": f"dead.{name}.*",
        "max_ack_pending": -1,
    }
    await broker.api(f"CONSUMER.CREATE.{names.DEAD}.{name}", {"stream_name": names.DEAD, "config": config})
    return name


async def fill(store: Store, name: str, numbers: Iterable[int], size: int = 0) -> list[int]:
    """Messages of their numbers, padded to `size` bytes."""
    headers = [(f"dead.{name}.{n}", (b"%d" % n).ljust(size), {MSG_ID: f"{name}.{n}"}) for n in numbers]
    return [ack_seq(answer) for answer in await asyncio.gather(*(store.publisher.send(*one) for one in headers))]


@asynccontextmanager
async def pulling(store: Store, name: str, batch: int) -> AsyncIterator[Taker]:
    taker = Taker()
    async with open_pull(
        store.broker,
        names.DEAD,
        await durable(store.broker, name),
        taker.take,
        batch=batch,
        room=lambda: max(0, taker.room),
    ):
        yield taker


async def test_everything_is_delivered_in_order_however_small_the_batch(store: Store) -> None:
    seqs = await fill(store, "order", range(500))
    async with pulling(store, "order", 3) as taker:
        assert [b"%d" % n for n in range(500)] == await taker.has(500)
    assert seqs == [delivery.seq for delivery in taker.taken]
    assert list(range(1, 501)) == [delivery.number for delivery in taker.taken]


async def test_a_delivery_knows_where_it_comes_from(store: Store) -> None:
    seqs = await fill(store, "place", range(2))
    async with pulling(store, "place", 10) as taker:
        await taker.has(2)
    [first, second] = taker.taken
    [stored] = await store.reader.subject(names.DEAD, "dead.place.0")
    assert ("dead.place.0", seqs[0], 1, 1) == (first.subject, first.seq, first.deliveries, first.pending)
    assert abs(stored.at - first.at) < 1e-5
    assert 0 == second.pending


async def test_without_room_the_broker_keeps_the_rest_until_top_up(store: Store) -> None:
    await fill(store, "room", range(20))
    taker = Taker()
    taker.room = 5
    name = await durable(store.broker, "room")
    async with open_pull(
        store.broker, names.DEAD, name, taker.take, batch=100, room=lambda: max(0, taker.room)
    ) as pull:
        await taker.has(5)
        await store.broker.flush()
        assert 5 == len(taker.taken)
        taker.room = 100
        await pull.top_up()
        assert 20 == len(await taker.has(20))


@pytest.mark.parametrize("bytes_max", [None, 3 * MIB])
async def test_of_large_messages_few_come_at_a_time(store: Store, bytes_max: int | None) -> None:
    """One request brings no more than the largest message may have, or the caller wants."""
    subject = f"large{bytes_max}"
    await fill(store, subject, range(40), MIB)
    taker = Taker()
    name = await durable(store.broker, subject, ack_wait_s=60)
    async with open_pull(
        store.broker,
        names.DEAD,
        name,
        taker.take,
        batch=100,
        room=lambda: 0 if taker.taken else 100,
        bytes_max=bytes_max,
    ) as pull:
        await taker.has(1)
        for _ in range(10):
            await store.broker.flush()
        assert 1 <= len(taker.taken) <= (bytes_max or store.broker.max_payload) // MIB
        for _ in range(40):
            first = len(taker.taken)
            pull._room = lambda: 0 if len(taker.taken) > first else 100  # noqa: B023 - asked in this round
            await pull.top_up()
            if len(await taker.has(min(first + 1, 40))) == 40:
                break
    assert [b"%d" % n for n in range(40)] == [data.rstrip() for data in await taker.has(40)]


async def test_a_message_that_is_larger_than_what_is_requested_at_once_comes_alone(store: Store) -> None:
    await fill(store, "alone", range(2), MIB)
    await fill(store, "alone", range(2, 4))
    taker = Taker()
    name = await durable(store.broker, "alone", ack_wait_s=60)
    async with open_pull(store.broker, names.DEAD, name, taker.take, batch=10, bytes_max=64 * KIB):
        assert [b"%d" % n for n in range(4)] == [data.rstrip() for data in await taker.has(4)]
    assert [1] * 4 == [delivery.deliveries for delivery in taker.taken]


def test_what_a_shard_requests_of_all_partitions_is_far_from_what_ends_its_connection() -> None:
    """Two requests of a partition may overlap."""
    assert 2 * PARTITIONS * PULL_BYTES_MAX <= CLIENT_PENDING_BYTES_MAX // 2


async def test_a_message_that_is_larger_than_any_may_be_now_comes_all_the_same(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stored when the broker took larger ones. Neither it nor what is behind it waits for ever, and no delivery
    is counted twice."""
    await fill(store, "outsized", range(2))
    await fill(store, "outsized", range(2, 4), KIB)
    await fill(store, "outsized", range(4, 6))
    monkeypatch.setattr(pulls, "BESIDE_BYTES_MAX", 500 - store.broker.max_payload)
    async with pulling(store, "outsized", 10) as taker:
        assert [b"%d" % n for n in range(6)] == [data.rstrip() for data in await taker.has(6)]
        await taker.taken[3].give_back()
        await taker.has(7)
    assert [(b"3", 2)] == [
        (delivery.data.rstrip(), delivery.deliveries) for delivery in taker.taken if delivery.deliveries > 1
    ]


async def test_what_is_given_back_comes_again_and_what_is_acknowledged_does_not(store: Store) -> None:
    await fill(store, "again", range(2))
    async with pulling(store, "again", 10) as taker:
        await taker.has(2)
        await taker.taken[0].ack()
        await taker.taken[1].give_back()
        assert [b"0", b"1", b"1"] == await taker.has(3)
        assert 2 == taker.taken[2].deliveries
        await taker.taken[2].ack()
        await store.broker.flush()
    info = await store.broker.api(f"CONSUMER.INFO.{names.DEAD}.again")
    assert (0, 0) == (info["num_ack_pending"], info["num_pending"])


async def test_an_error_of_the_taker_costs_one_delivery_and_not_the_connection(store: Store) -> None:
    await fill(store, "error", range(3))
    taker = Taker()

    def take(delivery: Delivery) -> None:
        if delivery.data == b"1" and delivery.deliveries == 1:
            raise ValueError("a bug of the taker's")
        taker.take(delivery)

    async with open_pull(store.broker, names.DEAD, await durable(store.broker, "error"), take, batch=10):
        assert [b"0", b"2"] == (await taker.has(2))[:2]
    assert store.broker.connected


async def test_nothing_is_taken_after_the_block(store: Store) -> None:
    async with pulling(store, "after", 10) as taker:
        pass
    await fill(store, "after", range(3))
    await store.broker.flush()
    assert [] == taker.taken


async def test_it_survives_a_restart_of_the_broker(tmp_path: Path) -> None:
    with own_broker(tmp_path) as broker:
        async with open_store(broker.settings, "test") as store:
            await provision(store.broker, broker.settings)
            await fill(store, "restart", range(3))
            async with pulling(store, "restart", 10) as taker:
                for delivery in (await taker.has(3), list(taker.taken))[1]:
                    await delivery.ack()
                await store.broker.flush()
                await asyncio.to_thread(broker.restart)
                await fill(store, "restart", range(3, 6))
                assert [b"%d" % n for n in range(6)] == await taker.has(6)


async def test_a_consumer_that_comes_late_is_found(store: Store) -> None:
    """Its first request is answered by nobody; the watch asks again."""
    await fill(store, "late", range(3))
    taker = Taker()
    async with open_pull(store.broker, names.DEAD, "late", taker.take, batch=10):
        await durable(store.broker, "late")
        assert [b"0", b"1", b"2"] == await taker.has(3)


async def test_an_acknowledgement_that_may_wait_arrives_without_another_message(
    store: Store, broker_settings: BrokerSettings
) -> None:
    await fill(store, "later", range(3))
    consumer = f"CONSUMER.INFO.{names.DEAD}.later"

    async def acknowledged() -> bool:
        return int((await other.broker.api(consumer))["num_ack_pending"]) == 1

    async with pulling(store, "later", 10) as taker, open_store(broker_settings, "other") as other:
        await taker.has(3)
        for delivery in taker.taken[:2]:
            delivery.ack_soon()
        await until(acknowledged)
    assert 0 == store.broker.unwritten
