"""Reading a whole stream in batches."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from uuid_utils import uuid7

from penstock.broker import names
from penstock.broker.nats.headers import SCHEDULE, SCHEDULE_TARGET
from penstock.broker.nats.publisher import ack_seq
from penstock.broker.nats.tail import Lost, ReadBatch
from penstock.broker.store import Store, open_store
from penstock.broker.streams.provisioning import provision
from penstock.engine.run.event_payloads import SignalRef
from penstock.engine.run.events import SignalReceived
from tests.support.own_broker import own_broker


async def append(store: Store, count: int) -> list[int]:
    run_id = uuid7().hex
    events = [SignalReceived(run_id=run_id, payload=SignalRef(f"s{n}")) for n in range(count)]
    await asyncio.gather(*(store.history.send(event, f"{run_id}.{n}") for n, event in enumerate(events)))
    return [one.seq for one in await store.history.read(run_id)]


async def plain(store: Store, body: bytes) -> int:
    """Store a message without headers, as other clients may."""
    answer = await store.broker.request(names.history_subject(uuid7().hex), body)
    return ack_seq(answer.data)


async def consumers(store: Store) -> set[str]:
    return {*(await store.broker.api(f"CONSUMER.NAMES.{names.HISTORY}", {}))["consumers"]}


async def test_a_batch_holds_what_waits_in_order_and_no_more_than_asked_for(store: Store) -> None:
    seqs = await append(store, 5)
    async with store.history.tail(seqs[0] - 1) as tail:
        assert seqs[:3] == [one.seq for one in (await tail.waiting(3)).wanted]
        assert seqs[3:] == [one.seq for one in (await tail.waiting(3)).wanted]
        assert ReadBatch(0, [], None) == await tail.waiting(3)


async def test_the_next_message_comes_alone_and_says_how_many_wait(store: Store) -> None:
    seqs = await append(store, 3)
    async with store.history.tail(seqs[0] - 1) as tail:
        [first] = (await tail.next(5)).wanted
        assert (seqs[0], 2) == (first.seq, first.pending)


async def test_next_waits_for_a_message_that_comes(store: Store) -> None:
    async with store.history.tail(await store.history.last_seq()) as tail:
        waiting = asyncio.create_task(tail.next(5))
        [seq] = await append(store, 1)
        assert [seq] == [one.seq for one in (await waiting).wanted]


async def test_next_ends_with_nothing_when_nothing_comes(store: Store) -> None:
    async with store.history.tail(await store.history.last_seq()) as tail:
        assert ReadBatch(0, [], None) == await tail.next(0.01)


async def test_a_timer_shows_up_under_its_own_subject(store: Store) -> None:
    async with store.history.tail(await store.history.last_seq()) as tail:
        headers = {SCHEDULE: "@at 2099-01-01T00:00:00Z", SCHEDULE_TARGET: "history.x"}
        await store.publisher.send("schedule.x.timer", b"", headers)
        assert ["schedule.x.timer"] == [one.subject for one in (await tail.next(5)).wanted]


async def test_what_is_unwanted_is_counted_and_not_returned(store: Store) -> None:
    seqs = await append(store, 3)
    async with store.history.tail(seqs[0] - 1, (b'{"type":"signal',)) as tail:
        other = await plain(store, b'{"type":"else"}')
        batch = await tail.waiting(10)
        assert (4, [other], other) == (batch.messages, [one.seq for one in batch.reads], batch.last and batch.last.seq)


async def test_messages_with_and_without_headers_come_in_their_order(store: Store) -> None:
    """Also ones that look like commands, are larger than what is read at once, or are empty."""
    bodies = [b"", b"\r\nHMSG a 1 b 12 12\r\n", b"x" * 200_000, b'{"type":', b"PING\r\n", b"\xff" * 40_000, b"{}"]
    async with store.history.tail(await store.history.last_seq()) as tail:
        for number, body in enumerate(bodies):
            await (plain(store, body) if number % 2 else store.history.mark(uuid7().hex, body))
        batch = ReadBatch(0, [], None)
        while batch.messages < len(bodies):
            batch += await tail.waiting(10)
        assert bodies == [one.data for one in batch.reads]
        assert [bool(number % 2) for number in range(len(bodies))] == [not one.headers for one in batch.reads]
        assert [one.seq for one in batch.wanted] == [one.seq for one in batch.reads]
        assert [one.at for one in batch.wanted] == [one.at for one in batch.reads]


async def test_a_consumer_that_was_removed_is_lost(store: Store) -> None:
    async with store.history.tail(0) as tail:
        listed = await store.broker.api(f"CONSUMER.NAMES.{names.HISTORY}", {})
        for name in listed["consumers"]:
            if not name.startswith("engine-"):
                await store.broker.api(f"CONSUMER.DELETE.{names.HISTORY}.{name}")
        with pytest.raises(Lost):
            await tail.next(5)


async def test_a_brief_one_leaves_no_consumer_behind(store: Store) -> None:
    """One that stays far behind makes each removal by subject expensive, until the broker forgets it."""
    for brief, left in ((True, 0), (False, 1)):
        before = await consumers(store)
        async with store.history.tail(0, brief=brief) as tail:
            await tail.waiting(1)
            assert 1 == len(await consumers(store) - before)
        assert left == len(await consumers(store) - before)


async def test_a_delivery_that_did_not_arrive_is_noticed(store: Store) -> None:
    seqs = await append(store, 3)
    async with store.history.tail(seqs[0] - 1) as tail:
        await tail.next(5)
        tail._received -= 1
        with pytest.raises(Lost, match="1 deliveries did not arrive"):
            await tail.waiting(10)


async def test_a_restart_of_the_broker_is_noticed_at_once(tmp_path: Path) -> None:
    with own_broker(tmp_path) as broker:
        async with open_store(broker.settings, "test") as store:
            await provision(store.broker, broker.settings)
            async with store.history.tail(0) as tail:
                waiting = asyncio.create_task(tail.next(60))
                await asyncio.to_thread(broker.restart)
                async with asyncio.timeout(5):
                    with pytest.raises(Lost):
                        await waiting
