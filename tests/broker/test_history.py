"""The history of runs: appended once, read in order, followed live, partitioned as the broker does it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import orjson
import pytest
from uuid_utils import uuid7

from penstock.broker import names
from penstock.broker.nats import direct
from penstock.broker.nats.direct import PAGE
from penstock.broker.nats.publisher import ack_seq
from penstock.broker.nats.pull import Delivery
from penstock.broker.store import Store, open_store
from penstock.broker.streams.provisioning import provision
from penstock.config.limits import PARTITIONS
from penstock.engine.errors import Conflict, Unavailable
from penstock.engine.run.event_payloads import SignalRef
from penstock.engine.run.events import Event, SignalReceived, StepCompleted, StepStarted, decode
from tests.support.own_broker import own_broker


def signal(run_id: str, number: int = 0) -> SignalReceived:
    return SignalReceived(run_id=run_id, payload=SignalRef(f"s{number}"))


async def append_many(store: Store, run_id: str, count: int) -> None:
    await asyncio.gather(*(store.history.send(signal(run_id, n), f"{run_id}.{n}") for n in range(count)))


@pytest.fixture
def run_id() -> str:
    return uuid7().hex


async def test_what_is_appended_is_read_in_order(store: Store, run_id: str) -> None:
    events: list[Event] = [StepStarted(run_id=run_id, step_id="a"), StepCompleted(run_id=run_id, step_id="a")]
    seqs = [await store.history.append(event) for event in events]
    found = await store.history.read(run_id)
    assert events == [decode(one.data) for one in found]
    assert seqs == [one.seq for one in found]
    assert {names.stored_subject(run_id)} == {one.subject for one in found}


async def test_a_run_is_read_from_the_sequence_on(store: Store, run_id: str) -> None:
    first = await store.history.append(StepStarted(run_id=run_id, step_id="a"))
    second = await store.history.append(StepStarted(run_id=run_id, step_id="b"))
    assert [second] == [one.seq for one in await store.history.read(run_id, first)]
    assert [] == await store.history.read(run_id, second)


@pytest.mark.parametrize(
    ("ahead_to", "asked"), [(0, [1, 2, 3, 4]), (2, [2, 2, 3, 4]), (4, [2, 3, 4, 4])], ids=["never", "some", "all"]
)
async def test_up_to_a_sequence_the_next_page_is_on_its_way_while_one_is_handled(
    store: Store, run_id: str, monkeypatch: pytest.MonkeyPatch, ahead_to: int, asked: list[int]
) -> None:
    """Of four events, each a page: how many were asked for by then. Whoever leaves in between leaves nothing behind."""
    await append_many(store, run_id, 4)
    seqs = [one.seq for one in await store.history.read(run_id)]
    monkeypatch.setattr(direct, "PAGE", 1)
    reader, found, sent = store.reader, list[int](), list[int]()
    before = reader._count
    async for page in store.history.pages(run_id, ahead_to=seqs[ahead_to - 1] if ahead_to else 0):
        found += [one.seq for one in page]
        sent.append(reader._count - before)
    assert (seqs, asked) == (found, sent)
    async with aclosing(store.history.pages(run_id, ahead_to=seqs[-1])) as pages:
        assert seqs[:1] == [one.seq for one in await anext(pages)]
        assert 1 == len(reader._waiting)
    assert {} == reader._waiting


async def test_an_unknown_run_has_no_history(store: Store, run_id: str) -> None:
    await store.history.append(signal(uuid7().hex))
    assert [] == await store.history.read(run_id)


async def test_a_history_longer_than_a_page_is_read_whole(store: Store, run_id: str) -> None:
    await append_many(store, run_id, 2 * PAGE + 1)
    found = await store.history.read(run_id)
    assert [f"s{n}" for n in range(2 * PAGE + 1)] == [orjson.loads(one.data)["payload"]["name"] for one in found]


async def test_a_repeated_event_is_stored_once_and_keeps_its_sequence(store: Store, run_id: str) -> None:
    event = StepStarted(run_id=run_id, step_id="a")
    assert await store.history.append(event) == await store.history.append(event)
    assert 1 == len(await store.history.read(run_id))


async def test_an_expected_sequence_that_is_stale_is_a_conflict(store: Store, run_id: str) -> None:
    seq = await store.history.append(StepStarted(run_id=run_id, step_id="a"), expect_seq=0)
    with pytest.raises(Conflict):
        await store.history.append(StepStarted(run_id=run_id, step_id="b"), expect_seq=0)
    assert seq < await store.history.append(StepStarted(run_id=run_id, step_id="b"), expect_seq=seq)
    assert 2 == len(await store.history.read(run_id))


async def test_append_all_stores_events_of_many_runs(store: Store) -> None:
    events = [signal(uuid7().hex) for _ in range(10)]
    await store.history.append_all(events)
    assert events == [decode(one.data) for event in events for one in await store.history.read(event.run_id)]


async def test_a_follower_gets_the_past_then_what_comes(store: Store, run_id: str) -> None:
    past = await store.history.append(StepStarted(run_id=run_id, step_id="a"))
    async with aclosing(store.history.follow(run_id)) as following:
        assert past == (await anext(following)).seq  # type: ignore[union-attr]
        assert await anext(following) is None  # there is nothing more for the moment
        coming = await store.history.append(StepStarted(run_id=run_id, step_id="b"))
        await store.history.append(StepStarted(run_id=uuid7().hex, step_id="other"))
        assert coming == (await anext(following)).seq  # type: ignore[union-attr]


async def test_a_follower_survives_a_restart_of_the_broker(tmp_path: Path, run_id: str) -> None:
    with own_broker(tmp_path) as broker:
        async with open_store(broker.settings, "test") as store:
            await provision(store.broker, broker.settings)
            first = await store.history.append(signal(run_id))
            async with aclosing(store.history.follow(run_id)) as following:
                assert first == (await anext(following)).seq  # type: ignore[union-attr]
                await asyncio.to_thread(broker.restart)
                second = ack_seq(await store.history.send(StepStarted(run_id=run_id, step_id="a")))
                async for stored in following:
                    if stored is not None:
                        assert second == stored.seq
                        return


async def test_the_partition_is_the_one_that_the_broker_chooses(store: Store) -> None:
    run_ids = [uuid7().hex for _ in range(1000)]
    before = await store.history.last_seq()
    await asyncio.gather(*(store.history.send(signal(run_id)) for run_id in run_ids))
    found = await store.reader.subject(names.HISTORY, "history.*.*", before + 1)
    assert {names.stored_subject(run_id) for run_id in run_ids} == {one.subject for one in found}
    assert set(range(PARTITIONS)) == {names.partition(run_id) for run_id in run_ids}


@pytest.mark.parametrize("begin", [0, 1, 2, 3])
async def test_a_reset_delivers_again_from_a_sequence_on(store: Store, run_id: str, begin: int) -> None:
    """Whatever is acknowledged, but nothing from before the consumer's own beginning."""
    consumer = names.engine_consumer(names.partition(run_id), 1)
    seqs = [await store.history.append(StepStarted(run_id=run_id, step_id=f"s{n}")) for n in range(4)]
    await store.consumers.open(consumer, names.partition(run_id), seqs[1])
    async with consuming(store, consumer, seqs[-1]) as first:
        [third] = [delivery for delivery in first if delivery.seq == seqs[2]]
        await third.ack()
        await store.broker.flush()
    assert await store.consumers.reset(consumer, seqs[begin])
    async with consuming(store, consumer, seqs[-1]) as again:
        assert seqs[max(begin, 1) :] == [delivery.seq for delivery in again]


async def test_an_append_without_a_broker_is_unavailable(tmp_path: Path, run_id: str) -> None:
    with own_broker(tmp_path) as broker:
        async with open_store(broker.settings, "test") as store:
            await provision(store.broker, broker.settings)
            await asyncio.to_thread(broker.stop)
            with pytest.raises(Unavailable):
                await store.history.append(signal(run_id))
            with pytest.raises(Unavailable):
                await store.history.read(run_id)
            await asyncio.to_thread(broker.start)
            await append_many(store, run_id, 1)
            assert 1 == len(await store.history.read(run_id))


async def test_seq_after_passes_over_what_was_removed(store: Store, run_id: str) -> None:
    first = await store.history.append(StepStarted(run_id=run_id, step_id="a"))
    second = await store.history.append(StepStarted(run_id=run_id, step_id="b"))
    await store.broker.api(f"STREAM.MSG.DELETE.{names.HISTORY}", {"seq": first})
    assert second == await store.history.seq_after(first - 1)
    assert await store.history.seq_after(second) is None
    assert second == (await store.history.tip()).seq


@asynccontextmanager
async def consuming(store: Store, consumer: str, until_seq: int) -> AsyncIterator[list[Delivery]]:
    """What the consumer delivers up to that sequence, still being consumed."""
    taken: list[Delivery] = []
    enough = asyncio.Event()

    def take(delivery: Delivery) -> None:
        taken.append(delivery)
        if delivery.seq >= until_seq:
            enough.set()

    async def nothing() -> None:
        pass

    async with store.history.consume(consumer, take, batch=100, room=lambda: 100, before=nothing):
        await enough.wait()
        yield taken
