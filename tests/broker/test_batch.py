"""Atomic batches: all or none, and once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.broker import names
from penstock.broker.batch import Message, publish_batch
from penstock.broker.provisioning import provision
from penstock.broker.store import Store, open_store
from penstock.config.limits import BULK_RUNS_MAX
from penstock.engine.errors import Conflict, PenstockError, Unavailable
from tests.support.own_broker import own_broker


def batch(name: str, count: int = 3) -> list[Message]:
    return [(names.history_subject(f"{name}-{n}"), b"%d" % n, f"{name}.{n}") for n in range(count)]


async def found(store: Store, name: str, count: int = 3) -> list[bytes]:
    runs = [await store.history.read(f"{name}-{n}") for n in range(count)]
    return [one.data for run in runs for one in run]


async def test_all_messages_of_a_batch_are_stored(store: Store) -> None:
    await publish_batch(store.broker, batch("all"))
    assert [b"0", b"1", b"2"] == await found(store, "all")


async def test_a_batch_of_one_is_stored(store: Store) -> None:
    await publish_batch(store.broker, batch("one", 1))
    assert [b"0"] == await found(store, "one", 1)


async def test_the_largest_bulk_fits_one_batch(store: Store) -> None:
    before = await store.history.last_seq()
    await publish_batch(store.broker, batch("bulk", BULK_RUNS_MAX))
    assert before + BULK_RUNS_MAX == await store.history.last_seq()


async def test_of_a_refused_batch_nothing_is_stored(store: Store) -> None:
    before = await store.history.last_seq()
    with pytest.raises(PenstockError):
        await publish_batch(store.broker, batch("more", BULK_RUNS_MAX + 1))
    assert before == await store.history.last_seq()


async def test_a_batch_sent_again_is_stored_once(store: Store) -> None:
    for _ in range(3):
        await publish_batch(store.broker, batch("again"))
    assert [b"0", b"1", b"2"] == await found(store, "again")


async def test_a_stale_expectation_is_a_conflict_and_stores_nothing(store: Store) -> None:
    await publish_batch(store.broker, batch("stale", 1))
    with pytest.raises(Conflict, match="wrong last sequence"):
        await publish_batch(store.broker, [*batch("fresh", 2), (names.history_subject("stale-0"), b"x", "x")], {names.EXPECT_SEQ: "0"})
    assert [] == await found(store, "fresh", 2)
    assert [b"0"] == await found(store, "stale", 1)


async def test_without_a_broker_a_batch_is_unavailable_and_with_it_it_is_stored(tmp_path: Path) -> None:
    with own_broker(tmp_path) as broker:
        async with open_store(broker.settings, "test") as store:
            await provision(store.broker, broker.settings)
            await asyncio.to_thread(broker.stop)
            with pytest.raises(Unavailable):
                await publish_batch(store.broker, batch("away"))
            waiting = asyncio.create_task(publish_batch(store.broker, batch("back")))
            await asyncio.to_thread(broker.start)
            await waiting
            assert [b"0", b"1", b"2"] == await found(store, "back")
            assert [] == await found(store, "away")
