"""Short runs have no snapshot: their owners read them from the log, and repeat nothing that was carried out."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs import actor_state
from penstock.actors.runs import shard as shards
from penstock.actors.runs.loading import Owner, load
from penstock.actors.runs.shard import Shard
from penstock.broker import names
from penstock.broker.store import Store, open_store
from penstock.config.settings import BrokerSettings
from penstock.engine.run.commands import DispatchTask
from penstock.engine.run.events import StepCompleted
from penstock.engine.run.state import RunStatus, head_of
from tests.support.waiting import until, until_true
from tests.support.world import chain, ended, start

SIDE_BY_SIDE = {
    "name": "sides",
    "steps": [
        {"id": "a", "task": "sides.a"},
        {"id": "b", "task": "sides.b"},
        {"id": "c", "task": "sides.c", "depends_on": ["a"]},
    ],
}


@pytest.fixture
async def shard(store: Store, broker_settings: BrokerSettings, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Shard]:
    """A shard whose runs leave memory as soon as nothing happens to them."""
    for name in ("SNAPSHOT_AFTER_S", "ACTOR_IDLE_S", "SWEEP_S"):
        monkeypatch.setattr(shards, name, 0.0)
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")) as opened:
        yield opened


async def complete(store: Store, run_id: str, step_id: str) -> int:
    return await store.history.append(StepCompleted(run_id=run_id, step_id=step_id, attempt_number=1))


async def is_there(store: Store, task: str, run_id: str) -> None:
    await until(lambda: store.reader.one(names.TASKS, names.task_subject(task, run_id)))


async def test_a_run_that_comes_back_into_memory_orders_nothing_twice(
    store: Store, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    ordered = list[str]()
    send = shard.store.tasks.send

    def noted(run_id: str, workflow_id: str, command: DispatchTask, *more: str | None) -> object:
        ordered.append(command.step_id)
        return send(run_id, workflow_id, command, *more)

    monkeypatch.setattr(shard.store.tasks, "send", noted)
    run_id = await start(store, SIDE_BY_SIDE)
    await is_there(store, "sides.b", run_id)
    await until_true(lambda: run_id not in shard.actors)
    assert await store.runs.get(run_id) is None

    await complete(store, run_id, "a")
    await is_there(store, "sides.c", run_id)
    await until_true(lambda: run_id not in shard.actors)
    assert ["a", "b", "c"] == ordered

    await complete(store, run_id, "b")
    await complete(store, run_id, "c")
    assert RunStatus.COMPLETED is (await ended(store, run_id)).status
    assert ["a", "b", "c"] == ordered


async def test_who_takes_over_repeats_what_was_not_acknowledged_and_counts_nothing_before_it(
    store: Store, shard: Shard
) -> None:
    run_id = await start(store, SIDE_BY_SIDE)
    await is_there(store, "sides.b", run_id)
    seq = await complete(store, run_id, "a")
    await is_there(store, "sides.c", run_id)
    counted = list[int]()

    def count(*folded: object) -> None:
        counted.append(folded[-1].seq)  # type: ignore[attr-defined]

    loaded = await load(store, run_id, owner=Owner(seq, count))
    assert (["c"], [seq]) == ([command.step_id for command in loaded.due if isinstance(command, DispatchTask)], counted)
    loaded = await load(store, run_id, owner=Owner(0, count))
    assert ["b", "c"] == [command.step_id for command in loaded.due if isinstance(command, DispatchTask)]


async def test_a_run_with_many_events_gets_a_snapshot_and_the_next_one_as_many_events_later(
    store: Store, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actor_state, "EVENTS_MIN", 3)
    run_id = await start(store, chain("many", 6))
    seqs = list[int]()
    for step_id in ("s0", "s1"):
        await until(lambda: store.reader.one(names.TASKS, names.task_subject("many.echo", run_id)))
        assert await store.runs.get(run_id) is None
        seqs.append(await complete(store, run_id, step_id))

    async def is_saved() -> bool:
        entry = await store.runs.get(run_id)
        return entry is not None and head_of(entry.value).seq == seqs[-1]

    await until(is_saved)
    for step_id in ("s2", "s3", "s4"):
        seqs.append(await complete(store, run_id, step_id))
    await until(is_saved)
    await complete(store, run_id, "s5")
    assert RunStatus.COMPLETED is (await ended(store, run_id)).status
