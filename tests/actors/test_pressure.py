"""More work than can be done at the moment: what waits in memory is bounded, the rest waits in the broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest
from msgspec import Raw

from penstock.actors.control import run_operations
from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs import effects, run_actor
from penstock.actors.runs import shard as shards
from penstock.actors.runs.loading import LoadedRun
from penstock.actors.runs.shard import Shard
from penstock.actors.runs.shared import mailbox
from penstock.actors.runs.shared.mailbox import PartitionQueue
from penstock.actors.runs.shared.turn_queue import TOGETHER, TurnQueue
from penstock.broker import names
from penstock.broker.nats import publisher
from penstock.broker.nats.pull import Delivery
from penstock.broker.run_ids import new_run_id
from penstock.broker.store import Store, open_store
from penstock.broker.worker_messages import TaskPayload
from penstock.config.limits import BODY_BYTES_MAX, MIB, PAYLOAD_BYTES_MAX
from penstock.config.settings import BrokerSettings
from penstock.engine.run.state import RunStatus
from tests.support.waiting import until_true
from tests.support.world import Echo, chain, echo, ended, register, start

RUNS = 40
LARGE = Raw(b'"' + b"x" * (PAYLOAD_BYTES_MAX - 2) + b'"')


@pytest.fixture
async def shard(store: Store, broker_settings: BrokerSettings) -> AsyncIterator[Shard]:
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")) as opened:
        yield opened


async def just_answer(worker: Echo, task: TaskPayload) -> None:
    await worker.complete(task, b"1")


async def started_in_one_partition(store: Store, name: str, count: int) -> list[str]:
    """So many runs with large inputs: partitions are pulled each on its own."""
    definition, digest = await register(store, chain(name, 1))
    found: list[str] = []
    while len(found) < count:
        run_id = new_run_id()
        if names.partition(run_id) == 0:
            await store.history.append(run_operations.started(run_id, definition, digest, LARGE, run_operations.now()))
            found.append(run_id)
    return found


async def test_of_large_events_few_are_in_memory_and_the_broker_keeps_the_others(
    store: Store, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox, "BACKLOG_BYTES_MAX", 4 * MIB)
    most = 0
    take = shard.take

    def counted(*given: object) -> None:
        nonlocal most
        take(*given)  # type: ignore[arg-type]
        most = max(most, shard.backlog.events)

    assert shard._reader is not None  # a shard that is alone reads all partitions by it
    monkeypatch.setattr(shard._reader, "_take", counted)
    for _ in range(effects.HEAVY_AT_ONCE):  # nobody gets a task out
        await shard.effects.heavy.acquire()
    run_ids = await started_in_one_partition(store, "held", RUNS)
    await until_true(lambda: shard.room() == 0)
    for _ in range(10):
        await shard.store.broker.flush()
    assert 4 <= most <= (4 * MIB + 2 * BODY_BYTES_MAX) // MIB < RUNS
    for _ in range(effects.HEAVY_AT_ONCE):
        shard.effects.heavy.release()
    async with echo(store, "held.echo", just_answer):
        runs = [await ended(store, run_id) for run_id in run_ids]
    assert {run.status for run in runs} == {RunStatus.COMPLETED}


async def test_what_was_carried_out_is_held_without_its_bytes_until_it_is_acknowledged(
    store: Store, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Delivery] = []
    take = shard.take

    def seen(queue: PartitionQueue, delivery: Delivery) -> None:
        taken.append(delivery)
        take(queue, delivery)

    assert shard._reader is not None
    monkeypatch.setattr(shard._reader, "_take", seen)
    async with echo(store, "let.echo", just_answer):
        run_ids = await started_in_one_partition(store, "let", 10)
        for run_id in run_ids:
            await ended(store, run_id)
    await until_true(lambda: shard.backlog.events == 0)
    assert len(taken) >= 40
    assert {delivery.data for delivery in taken} == {b""}


async def test_of_what_was_carried_out_only_the_last_is_held_until_it_is_acknowledged(
    store: Store, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a burst, what comes within the time that an acknowledgement is held back would take 20 MB."""
    monkeypatch.setattr(shards, "ACK_HELD_BACK_S", 600.0)
    async with echo(store, "last.echo", just_answer):
        run_ids = await started_in_one_partition(store, "last", 10)
        for run_id in run_ids:
            await ended(store, run_id)
    queue = shard._queues[names.partition(run_ids[0])]
    await until_true(lambda: not queue.events)
    last_seq = max(one.seq for one in (await store.history.last_of(run_ids)).values())
    assert last_seq == queue.handled[-1].last.delivery.seq
    assert queue.handled[0].first <= (await store.history.first_seq(run_ids[0]))


async def test_a_run_of_a_thousand_tasks_leaves_the_publisher_no_fuller_than_it_may_be(
    store: Store, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher, "IN_FLIGHT_MAX", 50)
    most = 0
    send = shard.store.publisher.send

    def counted(*given: object, **more: object) -> asyncio.Future[bytes]:
        nonlocal most
        sent = send(*given, **more)  # type: ignore[arg-type]
        most = max(most, shard.store.publisher.in_flight)
        return sent

    monkeypatch.setattr(shard.store.publisher, "send", counted)
    document = {"name": "broad", "steps": [{"id": f"s{n}", "task": "broad.echo"} for n in range(1000)]}
    async with echo(store, "broad.echo", just_answer) as worker:
        run = await ended(store, await start(store, document), 60)
    assert run.status is RunStatus.COMPLETED
    assert len(worker.seen) == 1000
    assert 50 <= most <= 60  # the rest is for a snapshot and the like, which do not wait


async def test_a_backlog_is_read_few_runs_at_a_time(
    store: Store, broker_settings: BrokerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All at once they would all be answered late, and the shard would lose its lease over it."""
    monkeypatch.setattr(shards, "LOADS_AT_ONCE", 5)
    now = most = 0
    load = run_actor.load

    async def counted(*given: object, **more: object) -> LoadedRun:
        nonlocal now, most
        now, most = now + 1, max(most, now + 1)
        try:
            return await load(*given, **more)  # type: ignore[arg-type]
        finally:
            now -= 1

    monkeypatch.setattr(run_actor, "load", counted)
    definition, digest = await register(store, chain("behind", 1))
    run_ids = await run_operations.start_all(store, definition, digest, [Raw(b"1")] * 500)
    async with (
        open_store(broker_settings, "late") as own,
        open_shard(own, new_member("late")),
        echo(own, "behind.echo"),
    ):
        runs = [await ended(store, run_id) for run_id in run_ids]
    assert {run.status for run in runs} == {RunStatus.COMPLETED}
    assert most == 5


async def test_turns_that_are_due_at_once_begin_few_in_each_pass_of_the_loop() -> None:
    """Else the answer to a heartbeat waits behind all of them."""
    begun: list[int] = []
    queue = TurnQueue()
    for number in range(2 * TOGETHER + 1):
        queue.add(partial(begun.append, number))
    passes = [len(begun)]
    while len(begun) <= 2 * TOGETHER:
        await asyncio.sleep(0)
        passes.append(len(begun))
    assert [TOGETHER, 2 * TOGETHER, 2 * TOGETHER + 1] == passes
    assert list(range(2 * TOGETHER + 1)) == begun
    for _ in range(3):
        await asyncio.sleep(0)
    queue.add(partial(begun.append, -1))
    assert -1 == begun[-1]


async def test_a_large_map_lets_others_have_their_turn_between_its_tasks(
    store: Store, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(effects, "SENT_AT_ONCE", 10)
    send, sent, most = shard.store.tasks.send, 0, 0

    def counted(*given: object, **more: object) -> asyncio.Future[bytes]:
        nonlocal sent, most
        sent += 1
        most = max(most, sent)
        asyncio.get_running_loop().call_soon(clear)
        return send(*given, **more)  # type: ignore[arg-type]

    def clear() -> None:
        nonlocal sent
        sent = 0

    monkeypatch.setattr(shard.store.tasks, "send", counted)
    document = {"name": "wide", "steps": [{"id": "m", "type": "map", "task": "wide.echo"}]}
    async with echo(store, "wide.echo", just_answer):
        run = await ended(store, await start(store, document, b"[%b]" % b",".join([b"1"] * 100)), 60)
    assert run.status is RunStatus.COMPLETED
    assert 5 <= most <= 10
