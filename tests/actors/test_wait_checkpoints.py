"""Waits for events whose shard ends: the next owner goes on where its checkpoint says."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest
from msgspec import Raw

from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs.shard import Shard
from penstock.actors.runs.waits.checkpoints import checkpoint_of, seen_by
from penstock.actors.runs.waits.wait_index import OpenWait
from penstock.broker import names, record_keys
from penstock.broker.nats.direct import Stored
from penstock.broker.records.event_waits import SeenBy, WaitCheckpoint, WaitRecord
from penstock.broker.store import Store, open_store
from penstock.broker.streams.events import EventsTip
from penstock.config.settings import BrokerSettings
from penstock.engine.run.event_payloads import Correlation, EventWait
from tests.support.event_waits import received, records, result, send, waiting, waits
from tests.support.waiting import until_true
from tests.support.world import ended, start


@pytest.fixture
async def shard(store: Store, broker_settings: BrokerSettings) -> AsyncIterator[Shard]:
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")) as opened:
        yield opened


class Life:
    """A shard that dies, or hands over. `read` are the sequences of the events that it has read, from before its
    time."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self.read: list[int] = []

    @asynccontextmanager
    async def lived(self, *, dies: bool = True) -> AsyncIterator[Shard]:
        async with open_store(self._settings, "shard") as own:
            stored = own.events.stored

            async def counted(subject: str, from_seq: int) -> AsyncGenerator[list[Stored]]:
                async for page in stored(subject, from_seq):
                    self.read += [one.seq for one in page]
                    yield page

            own.events.stored = counted  # type: ignore[method-assign]
            async with open_shard(own, new_member("shard")) as shard:
                yield shard
                if dies:
                    shard.lease.end()


async def at_rest(shard: Shard) -> None:
    """All waits are in memory, and none has older events to look at any more."""
    found = shard.waits
    await until_true(lambda: found._placed.is_set() and not found._stopped and not any(map(busy, every(shard))))


def every(shard: Shard) -> list[OpenWait]:
    return [waiting for waits_of_one in shard.waits._waits.values() for waiting in waits_of_one.values()]


def busy(waiting: OpenWait) -> bool:
    return waiting.busy


async def save(shard: Shard) -> None:
    """What is done at intervals, now."""
    for partition in list(shard.waits._checkpoints._stored):
        await shard.waits.save(partition)


async def test_a_new_owner_finds_what_came_while_nobody_looked(store: Store, broker_settings: BrokerSettings) -> None:
    document = waiting("moved", correlate={"field": "id", "value": "${{ input }}"})
    async with open_store(broker_settings, "first") as own, open_shard(own, new_member("shard")):
        runs = [await start(store, document, b"%d" % n) for n in range(20)]
        for run_id in runs:
            await waits(store, run_id)
        await send(store, "moved", {"id": 0})
        assert await result(store, runs[0]) == {"id": 0}
    for n in range(1, 10):
        await send(store, "moved", {"id": n})
    assert await records(store) >= 19
    async with open_store(broker_settings, "second") as own, open_shard(own, new_member("shard")):
        for n in range(10, 20):
            await send(store, "moved", {"id": n})
        assert [await result(store, run_id) for run_id in runs[1:]] == [{"id": n} for n in range(1, 20)]


async def test_after_a_restart_only_events_since_the_checkpoint_are_read(
    store: Store, broker_settings: BrokerSettings
) -> None:
    document = waiting("aged", correlate={"field": "id", "value": "${{ input }}"})
    second, third = Life(broker_settings), Life(broker_settings)
    async with Life(broker_settings).lived(dies=False):  # nothing is to be done again of how the waits began
        runs = [await start(store, document, b"%d" % n) for n in range(40)]
        for run_id in runs:
            await waits(store, run_id)
    async with Life(broker_settings).lived() as shard:
        old = [await send(store, "aged", {"id": -1 - n}) for n in range(200)]
        await until_true(lambda: shard.waits._position >= old[-1] and shard.waits.in_memory >= len(runs))
        await at_rest(shard)
        await save(shard)
        new = [await send(store, "aged", {"id": n}) for n in (-201, 3, -202)]
        await result(store, runs[3])
    while_dead = [await send(store, "aged", {"id": n}) for n in (-203, 5, 7)]
    async with second.lived() as shard:
        assert [await result(store, runs[n]) for n in (5, 7)] == [{"id": 5}, {"id": 7}]
        await at_rest(shard)
        await save(shard)
    async with third.lived() as shard:
        await at_rest(shard)
        for n in range(40):
            await send(store, "aged", {"id": n})
        assert [await result(store, run_id) for run_id in runs] == [{"id": n} for n in range(40)]

    assert set(second.read) == {*new, *while_dead}
    assert len(second.read) <= 2 * len(set(second.read)), "waits of many partitions are looked for together"
    assert third.read == []
    assert [len(await received(store, runs[n])) for n in (3, 5, 7, 9)] == [1] * 4


async def test_a_partition_that_is_handed_over_brings_its_checkpoint(
    store: Store, broker_settings: BrokerSettings
) -> None:
    first, second = Life(broker_settings), Life(broker_settings)
    async with first.lived(dies=False) as shard:
        run_id = await start(store, waiting("handed", match="event > 5"))
        await waits(store, run_id)
        seqs = [await send(store, "handed", 1) for _ in range(50)]
        await until_true(lambda: shard.waits._position >= seqs[-1] and shard.waits.in_memory > 0)
        await at_rest(shard)
    async with second.lived() as shard:
        await at_rest(shard)
        await send(store, "handed", 6)
        assert await result(store, run_id) == 6

    assert second.read == []


async def test_a_wait_that_begins_after_the_checkpoint_looks_back_behind_it(
    store: Store, broker_settings: BrokerSettings
) -> None:
    """The run of such a wait is in the log before the shard begins it; who takes over knows its record only."""
    document = waiting("behind", correlate={"field": "id", "value": "${{ input }}"})
    seq = await send(store, "behind", {"id": 2})
    async with Life(broker_settings).lived() as shard:
        first = await start(store, document, b"1")
        await waits(store, first)
        await until_true(lambda: shard.waits.in_memory > 0)
        await at_rest(shard)
        await save(shard)
    record = WaitRecord(first, "w", 9, EventWait("behind.paid", 0.0, None, Correlation("id", Raw(b"2"))))
    await store.event_waits.send(record)
    last = Life(broker_settings)
    async with last.lived() as shard:
        await until_true(lambda: seq in last.read)
        await until_true(lambda: record.key not in [waiting.record.key for waiting in every(shard)])
        await send(store, "behind", {"id": 1})
        assert await result(store, first) == {"id": 1}
        await store.event_waits.remove(record.key)


async def test_a_checkpoint_of_another_stream_of_events_is_passed_over(
    store: Store, broker_settings: BrokerSettings
) -> None:
    async with Life(broker_settings).lived() as shard:
        run_id = await start(store, waiting("other"))
        await waits(store, run_id)
        await until_true(lambda: shard.waits.in_memory > 0)
        (mark,) = [waiting.mark for waiting in every(shard) if waiting.record.run_id == run_id]
        await send(store, "elsewhere", 1)
    seq = await send(store, "other", "found")
    number = names.partition(run_id)
    tip = await store.events.tip()
    for created, past in (("2020-01-01T00:00:00Z", seq), (tip.created, tip.seq + 1)):
        checkpoint = WaitCheckpoint(created, (SeenBy(past, mark),))
        assert seen_by(checkpoint, tip) == {}
    await store.event_waits.write_checkpoint(number, WaitCheckpoint("2020-01-01T00:00:00Z", (SeenBy(seq, mark),)))
    async with Life(broker_settings).lived():
        assert await result(store, run_id) == "found"


async def test_a_checkpoint_that_cannot_be_read_or_written_stops_nothing(
    store: Store, broker_settings: BrokerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(number: int, checkpoint: WaitCheckpoint) -> None:
        raise OSError("full")

    async with Life(broker_settings).lived() as shard:
        run_id = await start(store, waiting("torn"))
        await waits(store, run_id)
        await until_true(lambda: shard.waits.in_memory > 0)
        await at_rest(shard)
        monkeypatch.setattr(shard.store.event_waits, "write_checkpoint", fails)
        await save(shard)
    number = names.partition(run_id)
    await store.event_waits._bucket.put(record_keys.wait_checkpoint_key(number), b'{"created":7}')
    assert (await store.event_waits.of_partition(number)).checkpoint is None
    async with Life(broker_settings).lived():
        await send(store, "torn", "found")
        assert await result(store, run_id) == "found"


@pytest.mark.parametrize("seed", range(4))
async def test_each_wait_gets_its_first_event_whenever_shards_die(
    store: Store, broker_settings: BrokerSettings, seed: int
) -> None:
    """Waits begin, events are sent, checkpoints are written and shards die, in any order."""
    chance, name = Random(seed), f"dying{seed}"
    document = waiting(
        name, correlate={"field": "id", "value": "${{ input }}"}, lookback="1h", match="event.n % 2 == 0"
    )
    runs, sent = dict[int, str](), dict[int, list[int]]()
    for _ in range(4):
        async with Life(broker_settings).lived(dies=chance.random() < 0.7) as shard:
            for n in range(25):
                match chance.choice(("start", "send", "send", "save")):
                    case "start" if len(runs) < 20:
                        runs[len(runs)] = await start(store, document, b"%d" % len(runs))
                    case "save":
                        await save(shard)
                    case _:
                        known_by = chance.randrange(20)
                        seq = await send(store, name, {"id": known_by, "n": n})
                        if n % 2 == 0:
                            sent.setdefault(known_by, []).append(seq)
    async with Life(broker_settings).lived():
        for known_by in runs:
            sent.setdefault(known_by, []).append(await send(store, name, {"id": known_by, "n": 0}))
        for run_id in runs.values():
            await result(store, run_id)

    assert {n: await received(store, run_id) for n, run_id in runs.items()} == {n: sent[n][:1] for n in runs}


async def test_a_checkpoint_goes_with_the_last_wait_of_its_partition(store: Store, shard: Shard) -> None:
    run_id = await start(store, waiting("last"))
    await waits(store, run_id)
    await send(store, "elsewhere", 1)
    await until_true(lambda: shard.waits.in_memory > 0)
    await at_rest(shard)
    await save(shard)
    number = names.partition(run_id)
    assert (await store.event_waits.of_partition(number)).checkpoint is not None
    await send(store, "last", 1)
    await ended(store, run_id)
    await until_true(lambda: number not in shard.waits._waits)
    await save(shard)

    assert await store.event_waits.of_partition(number) == ([], None)


def test_a_checkpoint_says_of_a_busy_wait_only_what_it_has_looked_at() -> None:
    idle, new, old = (OpenWait(WaitRecord("r", name, 1, EventWait("e", 0.0))) for name in "abc")
    new.looking = old.looking = True
    old.past = 3
    checkpoint = checkpoint_of([idle, new, old], 7, "then")

    assert checkpoint == WaitCheckpoint("then", (SeenBy(3, old.mark), SeenBy(7, idle.mark)))
    assert seen_by(checkpoint, EventsTip(7, 1.0, 1.0, "then")) == {old.mark: 3, idle.mark: 7}
    assert checkpoint_of([new], 7, "then") is None
