"""Atomic batches: all or none, and once."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.broker import names
from penstock.broker.nats.batch import BATCH_ID, Batches, Groups, IncompleteBatch, Message, publish_batch
from penstock.broker.nats.headers import EXPECT_SEQ
from penstock.broker.run_ids import new_run_id
from penstock.broker.store import Store, open_store
from penstock.broker.streams.provisioning import provision
from penstock.config.limits import BULK_RUNS_MAX, MIB
from penstock.config.process.background import each_of
from penstock.engine.errors import Conflict, Full, PenstockError, Unavailable
from tests.support.file_limits import limited
from tests.support.little_room import fill, make_room, small_broker
from tests.support.own_broker import OwnBroker, own_broker

BATCH = re.compile(rb"Nats-Batch-Id: ?(\w+)")


def batch(name: str, count: int = 3) -> list[Message]:
    return [Message(names.history_subject(f"{name}-{n}"), b"%d" % n, f"{name}.{n}") for n in range(count)]


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
    stale = Message(names.history_subject("stale-0"), b"x", "x", {EXPECT_SEQ: "0"})
    with pytest.raises(Conflict, match="wrong last sequence"):
        await publish_batch(store.broker, [*batch("fresh", 2), stale])
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


async def test_more_batches_than_the_broker_takes_at_once_are_all_stored(store: Store) -> None:
    batches = Batches(store.broker)
    await asyncio.gather(*(batches.publish(batch(f"crowd-{n}", 2)) for n in range(200)))
    assert [b"0", b"1"] * 200 == [data for n in range(200) for data in await found(store, f"crowd-{n}", 2)]


async def test_what_joins_shares_batches(store: Store) -> None:
    batches = Batches(store.broker)
    before = await store.history.last_seq()
    await asyncio.gather(*(batches.join(batch(f"joined-{n}", 2)) for n in range(600)))
    assert 1200 == await store.history.last_seq() - before
    stored = await store.reader.subject(names.HISTORY, "history.*.*", before + 1)
    ids = Counter(BATCH.search(one.headers)[1] for one in stored)  # type: ignore[index]
    assert [200, 1000] == sorted(ids.values())


async def test_what_joins_is_stored_or_refused_for_itself_alone(store: Store) -> None:
    await publish_batch(store.broker, batch("taken", 1))
    stale = Message(names.history_subject("taken-0"), b"x", "stale", {EXPECT_SEQ: "0"})
    batches = Batches(store.broker)
    outcomes = await asyncio.gather(
        batches.join(batch("alone")),
        batches.join(batch("left")),
        batches.join([stale]),
        batches.join(batch("right")),
        return_exceptions=True,
    )
    assert [int, int, Conflict, int] == [type(one) for one in outcomes]
    for name in ("alone", "left", "right"):
        assert [b"0", b"1", b"2"] == await found(store, name)
    assert [b"0"] == await found(store, "taken", 1)


async def test_what_joins_without_a_broker_is_unavailable(tmp_path: Path) -> None:
    with own_broker(tmp_path) as broker:
        async with open_store(broker.settings, "test") as store:
            await asyncio.to_thread(broker.stop)
            batches = Batches(store.broker)
            answers = await asyncio.gather(
                *(batches.join(batch(f"away-{n}")) for n in range(2)), return_exceptions=True
            )
            assert [Unavailable, Unavailable] == [type(answer) for answer in answers]


async def test_an_error_of_our_own_ends_everybodys_waiting(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = Batches(store.broker)
    publish = batches.publish

    async def broken(messages: Sequence[Message]) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(batches, "publish", broken)
    async with asyncio.timeout(5):
        outcomes = await each_of([batches.join(batch("one")), batches.join(batch("two"))])
    assert [ZeroDivisionError, ZeroDivisionError] == [type(one) for one in outcomes]
    monkeypatch.setattr(batches, "publish", publish)
    await batches.join(batch("three"))
    assert [b"0", b"1", b"2"] == await found(store, "three")


class TestAPart:
    """A server without replicas stores a part of a batch when its disk, or its storage, is full in the middle of it."""

    async def test_of_a_batch_whose_write_failed_the_outcome_is_unknown_until_the_broker_is_started_again(
        self, tmp_path: Path
    ) -> None:
        first = [one._replace(headers={EXPECT_SEQ: "0"}) for one in large("cut")]
        with own_broker(tmp_path) as broker:
            async with open_store(broker.settings, "test") as store:
                await provision(store.broker, broker.settings)
                await publish_batch(store.broker, large("before")[:2])  # more, and the block is full: a new file begins
                with limited([broker.pid], _history_bytes(tmp_path) + 3 * MIB // 2), pytest.raises(Unavailable):
                    await publish_batch(store.broker, first)
                assert [1, 0] == [len(await store.history.read(f"cut-{n}")) for n in (0, 2)]
                with pytest.raises(Unavailable, match="file too large"):
                    await publish_batch(store.broker, first)
            broker.restart()
            async with open_store(broker.settings, "test") as store:
                with pytest.raises(Conflict):
                    await publish_batch(store.broker, first)
                assert [1, 1, 1] == [len(await store.history.read(f"cut-{n}")) for n in range(3)]

    async def test_a_batch_without_room_for_all_of_it_is_full_and_stores_nothing(self, tmp_path: Path) -> None:
        with small_broker(tmp_path) as small:
            async with open_store(small.settings, "test") as store:
                await _room_for_one_and_a_half(small, store)
                with pytest.raises(Full, match="nothing was stored"):
                    await Batches(store.broker).publish(large("full"))
                assert [] == await found(store, "full")
                await make_room(store)
                assert 3 == await Batches(store.broker).publish(large("full"))

    async def test_a_part_that_was_stored_all_the_same_is_said(self, tmp_path: Path) -> None:
        with small_broker(tmp_path) as small:
            async with open_store(small.settings, "test") as store:
                await _room_for_one_and_a_half(small, store)
                with pytest.raises(IncompleteBatch, match="a part of a batch"):
                    await publish_batch(store.broker, large("part"))
                assert 2 == len(await found(store, "part"))
                with pytest.raises(Full, match="nothing was stored"):
                    await publish_batch(store.broker, large("none"))
                assert [] == await found(store, "none")


def large(name: str) -> list[Message]:
    """Three mebibytes."""
    return [one._replace(data=bytes(MIB - 4096)) for one in batch(name)]


def _history_bytes(data_dir: Path) -> int:
    return max(path.stat().st_size for path in data_dir.rglob(f"{names.HISTORY}/msgs/*.blk"))


async def _room_for_one_and_a_half(small: OwnBroker, store: Store) -> None:
    """Of the large messages: the broker refuses the one after that which led beyond its limit."""
    await provision(store.broker, small.settings)
    await fill(store)
    stream = names.bucket_stream(names.SIGNALS)
    last = (await store.broker.subjects(stream, ">"))[-1]
    for subject in {last, *(await store.broker.subjects(stream, ">"))[:1]}:
        await store.broker.api(f"STREAM.PURGE.{stream}", {"filter": subject})
    used = (await store.broker.api("INFO"))["storage"]
    left = small.settings.max_store_bytes - used
    assert 3 * MIB // 2 < left, left
    await store.broker.request(names.key_subject(names.SIGNALS, "r.rest"), bytes(left - 3 * MIB // 2))


async def test_single_messages_that_are_sent_together_are_stored_in_one_batch_and_repeats_once(store: Store) -> None:
    subject, groups = names.task_subject("grouped", new_run_id()), Groups(store.broker, store.publisher)
    messages = [Message(subject, b"%d" % number, f"{subject}.{number}") for number in range(20)]
    await asyncio.gather(*map(groups.send, messages[:10]))
    stored = await store.reader.subject(names.TASKS, subject)
    assert [b"%d" % number for number in range(10)] == [one.data for one in stored]
    assert all(BATCH_ID.encode() in one.headers for one in stored)
    await asyncio.gather(*map(groups.send, messages))  # half of them are repeats, for which the batch is refused
    stored = await store.reader.subject(names.TASKS, subject)
    assert {b"%d" % number for number in range(20)} == {one.data for one in stored}
    assert 20 == len(stored)


async def test_a_cancelled_message_of_a_group_is_not_stored(store: Store) -> None:
    subject, groups = names.task_subject("withdrawn", new_run_id()), Groups(store.broker, store.publisher)
    futures = [groups.send(Message(subject, b"%d" % number, f"{subject}.{number}")) for number in range(8)]
    futures[3].cancel()
    await asyncio.gather(*futures, return_exceptions=True)
    assert b"3" not in {one.data for one in await store.reader.subject(names.TASKS, subject)}
