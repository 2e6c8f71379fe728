"""Runs that wait while too many are in memory: their actors are packed, and go on as if they had not been."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs import packed_actors
from penstock.actors.runs import shard as shards
from penstock.actors.runs.packed_actors import PackedActors
from penstock.actors.runs.run_actor import RunActor
from penstock.actors.runs.shard import Shard
from penstock.broker import names
from penstock.broker.store import Store, open_store
from penstock.config.settings import BrokerSettings
from penstock.engine.run.events import StepCompleted
from penstock.engine.run.holds import SlotState
from penstock.engine.run.state import Run, RunStatus
from tests.support.waiting import until, until_true
from tests.support.world import chain, ended, start


@pytest.fixture
async def shard(store: Store, broker_settings: BrokerSettings, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Shard]:
    """A shard that has no run in memory as it is, unless something happens to it."""
    monkeypatch.setattr(shards, "ACTORS_RESIDENT_MAX", 0)
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")) as opened:
        yield opened


async def begun(store: Store, name: str, steps: int = 2) -> str:
    """A run whose first task is there."""
    run_id = await start(store, chain(name, steps))
    await until(lambda: store.reader.one(names.TASKS, names.task_subject(f"{name}.echo", run_id)))
    return run_id


async def complete(store: Store, run_id: str, step_id: str) -> None:
    await store.history.append(StepCompleted(run_id=run_id, step_id=step_id, attempt_number=1))


async def test_a_run_goes_on_from_its_packed_state_without_a_read(store: Store, shard: Shard, read: list[str]) -> None:
    run_id = await begun(store, "packed", 3)
    for step_id in ("s0", "s1", "s2"):
        await until_true(lambda: run_id in shard.packed)
        assert run_id not in shard.actors
        await complete(store, run_id, step_id)
        await until_true(lambda: run_id not in shard.packed)
    run = await ended(store, run_id)
    assert RunStatus.COMPLETED is run.status
    assert ["completed"] * 3 == [step.status for step in run.steps.values()]
    assert [] == read
    await until_true(lambda: not shard.actors and not len(shard.packed))
    assert 0 == shard.packed._bytes


async def test_where_there_is_no_room_a_run_leaves_memory_and_is_read_again(
    store: Store, shard: Shard, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_actors, "PACKED_BYTES_MAX", 0)
    run_id = await begun(store, "no-room")
    await until_true(lambda: run_id not in shard.actors)
    assert run_id not in shard.packed
    await complete(store, run_id, "s0")
    await complete(store, run_id, "s1")
    assert RunStatus.COMPLETED is (await ended(store, run_id)).status
    assert run_id in read


async def test_a_packed_run_for_which_nothing_comes_leaves_memory(
    store: Store, shard: Shard, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await begun(store, "left-alone")
    await until_true(lambda: run_id in shard.packed)
    monkeypatch.setattr(shards, "ACTOR_IDLE_S", -2.0)  # it was packed in this second
    shard._passivate(time.monotonic())
    assert run_id not in shard.packed
    assert 0 == shard.packed._bytes
    await complete(store, run_id, "s0")
    await complete(store, run_id, "s1")
    assert RunStatus.COMPLETED is (await ended(store, run_id)).status
    assert run_id in read


async def test_what_is_packed_of_a_partition_goes_with_it(store: Store, shard: Shard) -> None:
    gone = await begun(store, "gone")
    number = names.partition(gone)
    kept = await begun(store, "kept")
    while names.partition(kept) == number:
        kept = await begun(store, "kept")
    await until_true(lambda: gone in shard.packed and kept in shard.packed)
    await shard.give_up(number)
    assert (False, True) == (gone in shard.packed, kept in shard.packed)


async def test_packed_runs_count_as_runs_in_memory(store: Store, shard: Shard) -> None:
    run_id = await begun(store, "counted")
    await until_true(lambda: run_id in shard.packed)
    found = {sample.name: sample.value for sample in shard.store.meters.samples()}
    assert len(shard.actors) + len(shard.packed) == found["penstock_actors"]


def test_a_run_that_has_slots_of_limits_is_not_packed_since_they_are_looked_for() -> None:
    packed, run = PackedActors(), Run("1" * 32, "w", "1", "d", RunStatus.RUNNING, "2026-01-01T00:00:00Z", 7)
    with_slots, without = [_actor(one) for one in (replace(run, slots={"": SlotState()}), run)]
    assert (False, True) == (packed.add(with_slots), packed.add(without))
    assert without.run is None
    assert packed.take(run.run_id) is without
    assert run == without.run
    assert (0, 0) == (len(packed), packed._bytes)


def _actor(run: Run) -> RunActor:
    actor = RunActor.__new__(RunActor)
    actor.run_id, actor.run = run.run_id, run
    return actor
