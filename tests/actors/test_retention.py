"""Retention over a real broker: what has ended goes, what has not stays."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from msgspec import Raw

from penstock.actors.control import run_operations
from penstock.actors.index.file import index_path
from penstock.actors.index.follower import follow
from penstock.actors.index.run_index import RunIndex
from penstock.actors.maintenance import retention, rounds
from penstock.actors.maintenance.retention import remove_leftovers, remove_old_runs
from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs import actor_state
from penstock.actors.runs.loading import load, load_many
from penstock.broker import names, record_keys
from penstock.broker.run_ids import new_run_id
from penstock.broker.store import Store, open_store
from penstock.config.process import background
from penstock.config.settings import BrokerSettings
from penstock.engine.run.events import WorkflowCancelled, WorkflowRemoved, decode
from penstock.engine.run.state import Run
from tests.support.clocks import set_clock
from tests.support.waiting import until
from tests.support.world import chain, echo, ended, register, start


@pytest.fixture
async def index(store: Store, broker_settings: BrokerSettings, tmp_path: Path) -> AsyncIterator[Path]:
    """A shard that moves runs, and a follower that lists them; the path of the list."""
    path = index_path(tmp_path)
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")):
        following = asyncio.create_task(follow(own, path, load_many))
        yield path
        following.cancel()


async def caught_up(store: Store, index: Path) -> RunIndex:
    reader = RunIndex(index)
    await reader.caught_up(await store.history.last_seq(), 20)
    return reader


async def test_runs_that_ended_long_ago_are_removed_and_others_stay(store: Store, index: Path) -> None:
    definition, digest = await register(store, chain("old", 1))
    async with echo(store, "old.echo"):
        old = await run_operations.start_all(store, definition, digest, [Raw(b"1")] * 3)
        for run_id in old:
            await ended(store, run_id)
        between = time.time()
        young = await run_operations.start(store, definition, digest, Raw(b"2"))
        await ended(store, young)
    parked = await start(store, chain("parked", 1))
    with closing(await caught_up(store, index)) as reader:
        removed = await remove_old_runs(store, index, between)
        await until(lambda: asyncio.to_thread(lambda: reader.count("old") == {"completed": 1}))
        left = reader.query().run_ids
    assert removed == 3
    assert set(left) == {young, parked}
    assert [run.run_id for run in await load_many(store, [*old, young, parked])] == [young, parked]
    await until(lambda: _is_erased(store, old[0]))


async def test_removing_twice_removes_nothing_more(store: Store, index: Path) -> None:
    async with echo(store, "twice.echo"):
        await ended(store, await start(store, chain("twice", 1)))
    (await caught_up(store, index)).close()
    removed = [await remove_old_runs(store, index, time.time() + 1) for _ in range(2)]
    assert removed[0] >= 1
    assert removed[1] == 0


async def test_a_run_that_ended_just_now_stays_whatever_the_clocks_of_its_reporters_said(
    store: Store, index: Path
) -> None:
    definition, digest = await register(store, chain("dated", 1))
    run_id, long_ago = new_run_id(), "2001-01-01T00:00:00.000000Z"
    await store.history.append(run_operations.started(run_id, definition, digest, Raw(b"1"), long_ago))
    await store.history.append(WorkflowCancelled(run_id=run_id, timestamp=long_ago))
    assert (await ended(store, run_id)).finished_at == long_ago
    (await caught_up(store, index)).close()
    removed = await remove_old_runs(store, index, await store.history.now() - 3600)
    assert removed == 0
    assert (await load(store, run_id)).run is not None


async def test_retention_on_a_host_whose_clock_is_ahead_removes_no_run_too_soon(
    store: Store, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with echo(store, "fresh.echo"):
        run_id = await start(store, chain("fresh", 1))
        await ended(store, run_id)
    (await caught_up(store, index)).close()
    set_clock(monkeypatch, 10 * 24 * 3600.0)
    monkeypatch.setattr(retention, "EVERY_S", 0.01)
    monkeypatch.setattr(rounds, "SHARE_MAX", 1.0)
    keeping = asyncio.create_task(retention.apply_retention(store, index, 24 * 3600.0))
    for _ in range(2):  # each time, what is put there goes in the beginning of a round: so one round was whole
        await store.checkpoints.put(record_keys.step_key(run_id, "s0"), b"1")
        await until(lambda: _is_gone(store, record_keys.step_key(run_id, "s0")))
    keeping.cancel()
    assert (await load(store, run_id)).run is not None


async def _is_erased(store: Store, run_id: str) -> bool:
    """Whether all that is left of the history is that the run was removed."""
    return [decode(one.data).__class__ for one in await store.history.read(run_id)] == [WorkflowRemoved]


async def _is_gone(store: Store, key: str) -> bool:
    return await store.checkpoints.get(key) is None


async def test_checkpoints_and_bindings_go_with_the_end_of_their_run(store: Store, index: Path) -> None:
    parked = await start(store, chain("waits", 1))
    async with echo(store, "ends.echo"):
        done = await start(store, chain("ends", 1))
        await ended(store, done)
    for run_id in (parked, done):
        await store.checkpoints.put(record_keys.step_key(run_id, "s0"), b"1")
        await store.checkpoints.put(record_keys.pause_key(run_id, "s0"), b"{}")
        await store.sticky_bindings.put(run_id, b"w")
    await remove_leftovers(store)
    assert await store.checkpoints.get_many([record_keys.step_key(done, "s0"), record_keys.pause_key(done, "s0")]) == {}
    assert await store.sticky_bindings.get(done) is None
    assert await store.checkpoints.get(record_keys.step_key(parked, "s0")) is not None
    assert await store.sticky_bindings.get(parked) is not None
    assert (await load(store, done)).run is not None


@pytest.mark.parametrize("with_snapshot", [True, False])
async def test_of_a_parked_run_only_the_snapshot_or_the_last_event_is_read(
    store: Store, index: Path, monkeypatch: pytest.MonkeyPatch, *, with_snapshot: bool
) -> None:
    if with_snapshot:
        monkeypatch.setattr(actor_state, "EVENTS_MIN", 0)
    parked = await start(store, chain("stays", 1))
    await store.checkpoints.put(record_keys.step_key(parked, "s0"), b"1")

    async def is_parked() -> bool:
        written = await store.runs.get(parked) is not None
        task = await store.reader.one(names.TASKS, names.task_subject("stays.echo", parked))
        return written is with_snapshot and task is not None

    await until(is_parked)
    loaded = list[str]()

    async def load_many(_: Store, run_ids: Sequence[str]) -> list[Run]:
        loaded.extend(run_ids)
        return []

    monkeypatch.setattr(retention, "load_many", load_many)
    await remove_leftovers(store)
    assert parked not in loaded
    assert await store.checkpoints.get(record_keys.step_key(parked, "s0")) is not None


async def test_retention_goes_on_after_an_error_of_the_index(
    store: Store, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "EVERY_S", 0.001)
    monkeypatch.setattr(rounds, "SHARE_MAX", 1.0)
    begun = 0
    again = asyncio.Event()

    async def remove(*_: object) -> int:
        nonlocal begun
        begun += 1
        if begun == 1:
            raise sqlite3.OperationalError("disk I/O error")
        again.set()
        return 0

    monkeypatch.setattr(retention, "remove_old_runs", remove)
    keeping = background.start(retention.apply_retention(store, index, 3600.0), name="retention")
    async with asyncio.timeout(5):
        await again.wait()
    assert not keeping.done()
    await background.end(keeping)
