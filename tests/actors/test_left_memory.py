"""Runs that wait for long leave the engine's memory. What comes for them then finds them in their snapshots."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs import actor_state
from penstock.actors.runs import shard as shards
from penstock.actors.runs.shard import Shard
from penstock.actors.runs.shared.mailbox import PartitionQueue
from penstock.broker import names
from penstock.broker.store import Store, open_store
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import TooLarge
from penstock.engine.run.events import StepCompleted
from penstock.engine.run.state import RunStatus
from tests.support.waiting import until, until_true
from tests.support.world import chain, ended, start


@pytest.fixture
async def shard(store: Store, broker_settings: BrokerSettings, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Shard]:
    """A shard whose runs are saved and leave memory as soon as nothing happens to them."""
    for name in ("SNAPSHOT_AFTER_S", "ACTOR_IDLE_S", "SWEEP_S"):
        monkeypatch.setattr(shards, name, 0.0)
    monkeypatch.setattr(actor_state, "EVENTS_MIN", 0)
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")) as opened:
        yield opened


def current(shard: Shard, run_id: str) -> set[int]:
    return set(shard._queues[names.partition(run_id)].current)


async def left(store: Store, shard: Shard, run_id: str, step_id: str) -> None:
    """Return when the step's task is there and the run has left memory."""
    task = names.task_subject(step_id, run_id)
    await until(lambda: store.reader.one(names.TASKS, task))
    await until_true(lambda: run_id not in shard.actors)


async def left_anew(shard: Shard, run_id: str, before: set[int]) -> None:
    """Return when the run was in memory once more, and has left it."""
    await until_true(lambda: run_id not in shard.actors and current(shard, run_id) != before)


async def complete(store: Store, run_id: str, step_id: str) -> None:
    await store.history.append(StepCompleted(run_id=run_id, step_id=step_id, attempt_number=1))


async def test_a_run_that_has_left_memory_goes_on_without_a_read_of_its_log(
    store: Store, shard: Shard, read: list[str]
) -> None:
    run_id = await start(store, chain("left", 3))
    await left(store, shard, run_id, "left.echo")
    for step_id in ("s0", "s1", "s2"):
        before = current(shard, run_id)
        assert 1 == len(before)
        await complete(store, run_id, step_id)
        await left_anew(shard, run_id, before)
    assert RunStatus.COMPLETED is (await ended(store, run_id)).status
    assert [] == read
    assert set() == current(shard, run_id)


async def test_a_snapshot_that_was_written_by_another_is_no_reason_not_to_read_the_log(
    store: Store, shard: Shard, read: list[str]
) -> None:
    run_id = await start(store, chain("written", 2))
    await left(store, shard, run_id, "written.echo")
    entry = await store.runs.get(run_id)
    assert entry is not None
    await store.runs.put(run_id, entry.value, entry.revision)
    await complete(store, run_id, "s0")
    await until_true(lambda: run_id in read)
    await complete(store, run_id, "s1")
    assert RunStatus.COMPLETED is (await ended(store, run_id)).status


async def test_a_run_whose_snapshot_was_too_large_is_read_from_its_log(
    store: Store, shard: Shard, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await start(store, chain("large", 3))
    await left(store, shard, run_id, "large.echo")
    refused: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    refused.set_exception(TooLarge("the snapshot"))
    with monkeypatch.context() as patched:
        patched.setattr(shard.store.runs, "send", lambda *_: refused)
        await complete(store, run_id, "s0")
        await until_true(lambda: refused.done() and run_id in shard.actors)
        await until_true(lambda: run_id not in shard.actors)
    assert set() == current(shard, run_id)
    await complete(store, run_id, "s1")
    await complete(store, run_id, "s2")
    run = await ended(store, run_id)
    assert RunStatus.COMPLETED is run.status
    assert ["completed"] * 3 == [step.status for step in run.steps.values()]
    assert run_id in read


def test_after_a_reconnect_no_snapshot_is_known_to_be_current() -> None:
    queue = PartitionQueue(1, "engine-1", 1)
    queue.keep_current(7)
    assert {7} == queue.current
    queue.begin(9)
    assert set() == queue.current


async def test_a_partition_that_comes_back_begins_with_reads(store: Store, shard: Shard, read: list[str]) -> None:
    run_id = await start(store, chain("back", 2))
    await left(store, shard, run_id, "back.echo")
    number = names.partition(run_id)
    assert 1 == len(current(shard, run_id))
    begin = await shard.hand_over(number)
    await shard.own(number, names.engine_consumer(number, 10**6), begin, fresh=True)
    assert set() == current(shard, run_id)
    await complete(store, run_id, "s0")
    await until_true(lambda: run_id in read)


@pytest.mark.parametrize("with_snapshots", [True, False])
async def test_a_run_that_sleeps_for_long_leaves_memory_at_once_and_no_other_does(
    store: Store, broker_settings: BrokerSettings, monkeypatch: pytest.MonkeyPatch, *, with_snapshots: bool
) -> None:
    monkeypatch.setattr(shards, "SNAPSHOT_AFTER_S", 0.0)
    monkeypatch.setattr(shards, "SWEEP_S", float("inf"))  # no sweep is needed for it
    if with_snapshots:
        monkeypatch.setattr(actor_state, "EVENTS_MIN", 0)
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")) as shard:
        waits = await start(store, chain("waits"))
        naps, sleeps = [await start(store, sleeping(f"for-{duration}", duration)) for duration in ("25s", "1h")]
        await until_true(lambda: rests(shard, waits) and rests(shard, naps) and sleeps not in shard.actors)
        assert with_snapshots is (len(current(shard, sleeps)) == 1)
        shard._passivate(time.monotonic())
        assert {waits, naps} == shard.actors.keys() & {waits, naps, sleeps}


def sleeping(name: str, duration: str) -> dict[str, object]:
    return {"name": name, "steps": [{"id": "s", "type": "sleep", "config": {"duration": duration}}]}


def rests(shard: Shard, run_id: str) -> bool:
    actor = shard.actors.get(run_id)
    return actor is not None and actor.run is not None and actor.idle and not len(shard.snapshots)
