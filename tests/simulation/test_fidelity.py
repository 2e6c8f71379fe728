"""The simulated broker answers as the real one does: the same conversation with both, word for word."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from penstock.broker import names
from penstock.broker.nats.batch import Message, publish_batch
from penstock.broker.nats.connection import Broker
from penstock.broker.nats.direct import open_reader
from penstock.broker.nats.headers import EXPECT_SEQ, MSG_ID, SCHEDULE, SCHEDULE_TARGET
from penstock.broker.nats.publisher import open_publisher
from penstock.broker.nats.pull import Delivery
from penstock.broker.store import Store, open_store
from penstock.broker.streams import provisioning
from penstock.engine.errors import PenstockError
from penstock.telemetry.meters import Meters
from tests.simulation.client import Client
from tests.simulation.clock import PARTITIONS, TIME, simulated
from tests.simulation.loop import Life, Loop
from tests.simulation.server import Server
from tests.support.own_broker import OwnBroker, own_broker
from tests.support.waiting import until

RUN = "0" * 32
Restart: TypeAlias = Callable[[bool], Awaitable[None]]
Conversation: TypeAlias = Callable[[Store], Awaitable[list[Any]]]


async def _tried(what: Awaitable[Any]) -> Any:
    """What came of it; of an error, what it is called."""
    try:
        return await what
    except PenstockError as error:
        return type(error).__name__


async def _raw(store: Store, subject: str, headers: dict[str, str]) -> Any:
    return await _tried(_sent(store, subject, headers))


async def _sent(store: Store, subject: str, headers: dict[str, str]) -> tuple[int, bool]:
    answer = await store.publisher.send(subject, b"{}", headers)
    return int(answer.split(b'"seq":')[1].split(b",")[0].rstrip(b"}")), b'"duplicate"' in answer


async def expectations_and_ids(store: Store) -> list[Any]:
    """An expectation is looked at before an id; a repeat has the first one's sequence."""
    subject, known = names.history_subject(RUN), {MSG_ID: "a"}
    return [
        await _raw(store, subject, {EXPECT_SEQ: "0"}),
        await _raw(store, subject, known),
        await _raw(store, subject, known),
        await _raw(store, subject, {**known, EXPECT_SEQ: "1"}),
        await _raw(store, subject, {EXPECT_SEQ: "2"}),
        [stored.seq for stored in await store.history.read(RUN)],
        [stored.seq for stored in await store.history.read(RUN, 2)],
        await store.history.last_seq(),
    ]


async def buckets(store: Store) -> list[Any]:
    """Revisions, deleted keys, lists."""
    bucket = store.signals
    return [
        await _tried(bucket.put("r.a", b"1", 0)),
        await _tried(bucket.put("r.a", b"2", 0)),
        await _tried(bucket.put("r.a", b"2", 1)),
        await _tried(bucket.put("r.b", b"3")),
        [(entry.key, entry.value) for entry in await bucket.all("r.>")],
        await bucket.get("r.c"),
        await _tried(bucket.delete("r.b", 1)),
        await _tried(bucket.delete("r.b")),
        await bucket.get("r.b"),
        (await bucket.find("r.b"))[1] > 0,
        await bucket.purge("r.a"),
        list(await bucket.get_many(["r.a", "r.b"])),
    ]


async def batches(store: Store) -> list[Any]:
    """All or none, also of those that expect something; a repeat of a batch is no error."""
    first = [Message(names.history_subject(RUN), b"{}", "x"), Message(names.history_subject("1" * 32), b"{}", "y")]
    stale = [
        Message(names.history_subject(RUN), b"{}", "z"),
        Message(names.history_subject("1" * 32), b"{}", "w", {EXPECT_SEQ: "1"}),
    ]
    return [
        await _tried(publish_batch(store.broker, first)),
        await _tried(publish_batch(store.broker, first)),
        await _tried(publish_batch(store.broker, stale)),
        await store.history.last_seq(),
    ]


async def schedules(store: Store) -> list[Any]:
    """One of its subject replaces the one before; a purge may leave what is newer, but not one before the sequence 0;
    an overdue one fires soon, without its id."""
    subject, far = (
        names.schedule_subject(RUN, "t"),
        {SCHEDULE: "@at 2040-01-01T00:00:00Z", SCHEDULE_TARGET: names.history_subject(RUN)},
    )
    purge = f"STREAM.PURGE.{names.HISTORY}"
    found = [
        await _raw(store, subject, far),
        await _raw(store, subject, far),
        (await store.broker.api(purge, {"filter": subject, "seq": 2}))["purged"],
        (await store.broker.api(purge, {"filter": subject, "seq": 3}))["purged"],
        (await store.broker.api(purge, {"filter": subject}))["purged"],
        await _raw(store, subject, far),
        (await store.broker.api(purge, {"filter": subject, "seq": 0}))["purged"],
        await _raw(store, subject, {**far, SCHEDULE: "@at 2020-01-01T00:00:00Z", MSG_ID: "s"}),
    ]
    stored = await until(lambda: store.history.read(RUN))
    headers = stored[0].headers
    return [
        *found,
        stored[0].seq,
        b"Nats-Msg-Id" in headers,
        b"Nats-Schedule-Next: purge" in headers,
        await store.reader.one(names.HISTORY, subject),
    ]


async def clock(store: Store) -> list[Any]:
    """What the broker says that its time is lies between the times of what it stores before and after."""
    times = []
    for _ in range(2):
        await _raw(store, names.history_subject(RUN), {})
        times += [(await store.history.read(RUN))[-1].at, await store.history.now()]
    return [times == sorted(times)]


class _Taken:
    """The deliveries of a consumer, in their order."""

    def __init__(self) -> None:
        self.all: list[Delivery] = []
        self._arrived = asyncio.Event()

    def take(self, delivery: Delivery) -> None:
        self.all.append(delivery)
        self._arrived.set()

    async def received(self, count: int) -> None:
        while len(self.all) < count:
            self._arrived.clear()
            await self._arrived.wait()


async def _nothing() -> None:
    """There is nothing to do before."""


async def deliveries(store: Store) -> list[Any]:
    """A consumer that is reset begins again behind what is acknowledged, and counts from one; its acknowledgement
    speaks for all before."""
    taken = _Taken()

    async def acknowledged() -> bool:
        return await store.consumers.floor(consumer) == taken.all[1].seq

    partition = names.partition(RUN)
    consumer = names.engine_consumer(partition, 0)
    await store.consumers.open(consumer, partition, 2)
    for _ in range(4):
        await _raw(store, names.history_subject(RUN), {})
    async with store.history.consume(consumer, taken.take, batch=16, room=lambda: 16, before=_nothing):
        await taken.received(3)
        await taken.all[1].ack()
        await store.broker.flush()
        await until(acknowledged)
        await store.consumers.reset(consumer, taken.all[1].seq + 1)
        await taken.received(4)
    unknown = names.engine_consumer(partition, 99)
    return [
        *((one.seq, one.deliveries, one.number) for one in taken.all),
        await store.consumers.floor(consumer),
        await store.consumers.floor(unknown),
        sorted(await store.consumers._listed()),
    ]


async def removals(store: Store) -> list[Any]:
    """What is removed after its delivery is taken for acknowledged, and all before it; a reset knows better."""
    taken, found = _Taken(), list[Any]()
    partition = names.partition(RUN)
    other = next(one for one in (f"{n:032}" for n in itertools.count(1)) if names.partition(one) == partition)
    consumer = names.engine_consumer(partition, 3)

    async def said(floor: int) -> list[int]:
        """What the consumer says once it is so far."""

        async def is_there() -> bool:
            return (await store.consumers.floor(consumer) or 0) >= floor

        await until(is_there)
        progress = await store.consumers.progress(consumer)
        assert progress is not None
        return [progress.floor, progress.in_hand]

    seqs = [(await _sent(store, names.history_subject(one), {}))[0] for one in (RUN, RUN, other, RUN, RUN, RUN)]
    await store.consumers.open(consumer, partition, 1)
    async with store.history.consume(consumer, taken.take, batch=16, room=lambda: 16, before=_nothing):
        await taken.received(6)
        await store.broker.api(f"STREAM.PURGE.{names.HISTORY}", {"filter": names.stored_subject(other)})
        found.append(await said(seqs[2]))
        await store.history.erase(seqs[3])
        found.append(await said(seqs[3]))
        await store.consumers.reset(consumer, seqs[1])
        await taken.received(9)
        await store.history.erase(seqs[0])  # was not delivered since
        found.append(await said(0))
    return [*(one.seq for one in taken.all), *found]


async def whole_streams(store: Store) -> list[Any]:
    """A reader of a stream gets what is there, and then what comes; what was stored since a time is found by it."""
    events, subject = store.events, names.event_subject("a")
    found: list[Any] = [await events.last_seq(), await events.first_since(subject, 0.0)]
    seqs = [await events.publish(names.event_subject(name), b"%d" % n) for n, name in enumerate("abab")]
    tip = await events.tip()
    stored = [one for pages in [page async for page in events.stored(subject, 1)] for one in pages]
    found += [seqs, tip.seq, tip.at <= tip.now, [(one.seq, one.data) for one in stored]]
    found += [await events.first_since(subject, at) for at in (stored[0].at, stored[1].at, tip.now + 100)]
    async with events.tail(1) as tail:
        for most in (2, 2, 2):
            batch = await tail.waiting(most)
            found.append([(one.seq, one.data, one.pending) for one in batch.wanted])
        found.append((await tail.next(0.2)).messages)
        coming = asyncio.ensure_future(tail.next(5.0))
        await asyncio.sleep(0)
        await events.publish(subject, b"9")
        found.append([(one.seq, one.number, one.pending) for one in (await coming).wanted])
    return found


async def watching(store: Store) -> list[Any]:
    """Who watches a run gets what is stored, then a copy of each event with its place and that of the one before."""
    subject, found = names.history_subject(RUN), list[Any]()
    await _raw(store, names.history_subject("1" * 32), {})
    await _raw(store, subject, {})

    async def begin() -> bool:
        for _ in range(2):
            await _raw(store, subject, {})
            await _raw(store, names.history_subject("1" * 32), {})
        return False

    async with aclosing(store.history.batches(RUN, lambda body: True, begin)) as coming:
        while len(found) < 3:
            found += [(one.seq, one.data) for one in await anext(coming)]
        await _raw(store, subject, {MSG_ID: "a"})
        while len(found) < 4:
            found += [(one.seq, one.data) for one in await anext(coming)]
    return found


async def ids_after_a_restart(store: Store, restart: Restart) -> list[Any]:
    """Whether it ends or is killed, what is stored stays, and ids are known of what is still there. What is in memory
    is gone."""
    task, key, found = names.task_subject("t", RUN), names.key_subject(names.SIGNALS, "r.a"), list[Any]()
    for killed in (False, True):
        event, first, second = ({MSG_ID: f"{what} {killed}"} for what in ("event", "first", "second"))
        found += [
            await _raw(store, names.history_subject(RUN), event),
            await _raw(store, key, first),
            await _raw(store, key, second),
        ]
        seq, _ = await _sent(store, task, first)
        await store.broker.api(f"STREAM.MSG.DELETE.{names.TASKS}", {"seq": seq})
        found.append(await _raw(store, task, first))
        await restart(killed)
        found += [
            await _raw(store, names.history_subject(RUN), event),
            await _raw(store, key, second),
            await _raw(store, key, first),
            await _raw(store, task, first),
            await _raw(store, names.history_subject(RUN), {}),
            await _tried(store.broker.api(f"STREAM.INFO.{names.bucket_stream(names.BRIDGE_LEASES)}")),
        ]
    return found


async def deliveries_after_a_restart(store: Store, restart: Restart) -> list[Any]:
    """A partition's consumer is gone with the broker's memory. Made anew, it delivers what was not acknowledged."""
    got: list[tuple[int, int, int]] = []
    taken: list[Delivery] = []
    floors: list[int | None] = []
    changed = asyncio.Event()
    begun = 0

    async def begin() -> None:
        nonlocal begun
        if begun:
            floors.append(await store.consumers.floor(consumer))
            await store.consumers.open(consumer, partition, taken[1].seq + 1)
        begun += 1
        changed.set()

    def take(delivery: Delivery) -> None:
        got.append((delivery.seq, delivery.deliveries, delivery.number))
        taken.append(delivery)
        changed.set()

    async def reached(count: int, beginnings: int) -> None:
        while len(got) < count or begun < beginnings:
            changed.clear()
            await changed.wait()

    async def acknowledged() -> bool:
        return await store.consumers.floor(consumer) == taken[1].seq

    partition = names.partition(RUN)
    consumer = names.engine_consumer(partition, 0)
    await store.consumers.open(consumer, partition, 1)
    for _ in range(4):
        await _raw(store, names.history_subject(RUN), {})
    async with store.history.consume(consumer, take, batch=16, room=lambda: 16, before=begin):
        await reached(4, 1)
        await taken[1].ack()
        await store.broker.flush()
        await until(acknowledged)
        await restart(False)
        await reached(6, 2)
        await _raw(store, names.history_subject(RUN), {})
        await reached(7, 2)
        floors.append(await store.consumers.floor(consumer))
        await store.consumers.reset(consumer, taken[1].seq + 1)
        await reached(10, 2)
    return [*got, *floors]


RESTARTS = (ids_after_a_restart, deliveries_after_a_restart)


async def single_reads(store: Store) -> list[Any]:
    """One message at a time, and how many there are of each subject."""
    subject, other = names.history_subject(RUN), names.stored_subject("1" * 32)
    await _sent(store, subject, {})
    await _sent(store, names.history_subject("1" * 32), {})
    await _sent(store, subject, {})
    stored = names.stored_subject(RUN)
    found = [await store.reader.next_alone(names.HISTORY, stored, seq) for seq in (1, 2, 3, 4)]
    counts = [await store.broker.messages_by_subject(names.HISTORY, one) for one in (stored, other, "history.0.none")]
    return [*((one.seq, one.data) if one else None for one in found), *counts]


CONVERSATIONS: tuple[Conversation, ...] = (
    expectations_and_ids,
    buckets,
    batches,
    schedules,
    clock,
    deliveries,
    removals,
    single_reads,
    whole_streams,
    watching,
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OwnBroker]:
    with own_broker(tmp_path) as found:
        yield found


@pytest.fixture
def few_partitions(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The real broker has as many partitions as the simulated one. The ids here are those of other tests too, to which
    another number of partitions applies: the partitions that are known of them are forgotten before and after."""
    monkeypatch.setattr(provisioning.limits, "PARTITIONS", PARTITIONS)
    monkeypatch.setattr(names, "PARTITIONS", PARTITIONS)
    names.partition.cache_clear()
    yield
    names.partition.cache_clear()


@pytest.mark.usefixtures("few_partitions")
@pytest.mark.parametrize("talk", CONVERSATIONS, ids=lambda talk: talk.__name__)
def test_the_simulated_broker_answers_as_the_real_one(talk: Conversation, broker: OwnBroker) -> None:
    simulated_answers = _simulated(talk)
    assert simulated_answers == asyncio.run(_real(talk, broker))


@pytest.mark.usefixtures("few_partitions")
@pytest.mark.parametrize("talk", RESTARTS, ids=lambda talk: talk.__name__)
def test_the_simulated_broker_comes_back_as_the_real_one(
    talk: Callable[[Store, Restart], Awaitable[list[Any]]], broker: OwnBroker
) -> None:
    async def restart(killed: bool) -> None:
        await asyncio.to_thread(broker.kill if killed else broker.stop)
        await asyncio.to_thread(broker.start)

    simulated_answers = _simulated(lambda store: talk(store, partial(_restart_simulated, store.broker.client)))
    assert simulated_answers == asyncio.run(_real(lambda store: talk(store, restart), broker))


def test_a_run_has_one_partition_in_the_simulation_and_another_outside() -> None:
    run_ids = [f"{number:032x}" for number in range(64)]
    outside = [names.partition(run_id) for run_id in run_ids]
    with simulated():
        assert set(range(PARTITIONS)) == {names.partition(run_id) for run_id in run_ids}
    assert outside == [names.partition(run_id) for run_id in run_ids]


async def _restart_simulated(client: Any, killed: bool) -> None:
    client.server.stop(killed=killed)
    client.disconnect()
    client.server.start()
    client.reconnect()


def _simulated(talk: Conversation) -> list[Any]:
    async def run() -> list[Any]:
        life = Life("one")
        client = Client(server, life, "engine")
        plain, meters = Broker(client), Meters()  # type: ignore[arg-type]
        client.on_disconnected, client.on_reconnected = plain._disconnected, plain._reconnected
        async with open_publisher(plain, meters) as publisher, open_reader(plain) as reader:
            return await talk(Store(plain, publisher, reader, meters))

    with simulated():
        loop = Loop()
        TIME.begin(loop, 1)
        server = Server(loop, 1, 0.001)
        asyncio.set_event_loop(loop)
        try:
            return loop.run_until_complete(run())
        finally:
            asyncio.set_event_loop(None)
            loop.close()


async def _real(talk: Conversation, broker: OwnBroker) -> list[Any]:
    async with open_store(broker.settings, "fidelity") as store:
        await provisioning.provision(store.broker, broker.settings)
        return await talk(store)
