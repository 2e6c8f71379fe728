"""What the run index says of a run is what the engine's rules make of its log, whoever else writes to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

import pytest
from msgspec import Raw
from uuid_utils import uuid7

from penstock.actors.control import pausing, run_operations
from penstock.actors.index import follower
from penstock.actors.index.file import index_path
from penstock.actors.index.run_index import RunIndex
from penstock.actors.index.selection import Selection
from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs.loading import load, load_many
from penstock.broker import names
from penstock.broker.run_ids import new_run_id
from penstock.broker.store import Store, open_store
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Unavailable
from penstock.engine.run.event_payloads import Failure, RunFailure
from penstock.engine.run.events import (
    StepCompleted,
    StepFailed,
    WorkflowCancelled,
    WorkflowCompleted,
    WorkflowFailed,
    WorkflowResumed,
    encode,
)
from penstock.engine.run.state import Run, to_snapshot
from tests.support.own_follower import following
from tests.support.waiting import until
from tests.support.world import chain, echo, ended, start, without_history


@pytest.fixture
def index(broker_settings: BrokerSettings) -> Iterator[RunIndex]:
    opened = RunIndex(index_path(broker_settings.data_dir))
    yield opened
    opened.close()


@pytest.fixture
async def engine(broker_settings: BrokerSettings) -> AsyncIterator[None]:
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")):
        yield


@pytest.fixture
async def parked(store: Store) -> str:
    """A run whose one step nobody works on."""
    name = f"w{uuid7().hex}"
    return await start(store, chain(name, 1))


def status(index: RunIndex, run_id: str) -> str | None:
    try:
        return index.statuses([run_id]).get(run_id)
    except Unavailable:
        return None


async def shown(index: RunIndex, run_id: str, expected: str) -> None:
    async def is_shown() -> bool:
        return status(index, run_id) == expected

    await until(is_shown)


@pytest.mark.parametrize("kind", [WorkflowCompleted, WorkflowFailed])
async def test_an_end_by_a_stranger_is_none(
    store: Store,
    index: RunIndex,
    broker_settings: BrokerSettings,
    parked: str,
    kind: type[WorkflowCompleted | WorkflowFailed],
) -> None:
    """A completion before the steps are done; a failure of the life before the last resumption."""
    event = (
        WorkflowCompleted(run_id=parked)
        if kind is WorkflowCompleted
        else WorkflowFailed(run_id=parked, payload=RunFailure("x", resumes=7))
    )
    async with following(store, broker_settings) as seen:
        await store.history.append(event)
        await seen()
        await shown(index, parked, "running")
        await store.history.append(StepCompleted(run_id=parked, step_id="s0", payload=Raw(b"1")))
        await store.history.append(WorkflowCompleted(run_id=parked), message_id=f"{parked}.true")
        await shown(index, parked, "completed")


async def test_a_failure_that_comes_after_the_run_was_resumed_is_none(
    store: Store, index: RunIndex, broker_settings: BrokerSettings, parked: str
) -> None:
    """Started, failed, resumed, the first failure again, completed: no status in between is there for good."""
    failed = WorkflowFailed(run_id=parked, payload=RunFailure("no paper"))
    async with following(store, broker_settings) as seen:
        await store.history.append(failed)
        await store.history.append(WorkflowResumed(run_id=parked))
        await store.history.append(failed, message_id=f"{parked}.again")
        await store.history.append(StepCompleted(run_id=parked, step_id="s0", payload=Raw(b"1")))
        await seen()
        await shown(index, parked, "running")
        await store.history.append(WorkflowCompleted(run_id=parked))
        await shown(index, parked, "completed")
    assert {"completed": 1} == index.count((await _run(store, parked)).workflow_id)


async def test_an_event_that_names_another_run_is_of_none(
    store: Store, index: RunIndex, broker_settings: BrokerSettings, parked: str
) -> None:
    other = await run_operations.start(
        store, *await store.definitions.latest((await _run(store, parked)).workflow_id), Raw(b"1")
    )
    async with following(store, broker_settings) as seen:
        await store.publisher.send(names.history_subject(parked), encode(WorkflowCancelled(run_id=other)))
        await seen()
        assert ("running", "running") == (status(index, parked), status(index, other))


async def test_an_end_that_the_owner_reports_is_accepted(
    store: Store, index: RunIndex, broker_settings: BrokerSettings, engine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the log is not read again for it: neither for a completion nor for a failure."""
    looked_up: list[str] = []  # among them what other tests have left

    async def look_up(store: Store, run_ids: Sequence[str]) -> list[Run]:
        looked_up.extend(run_ids)
        return await load_many(store, run_ids)

    monkeypatch.setattr(follower, "CONFIRM_AFTER_S", 0.0)
    name = f"w{uuid7().hex}"
    async with following(store, broker_settings, look_up) as seen, echo(store, f"{name}.echo"):
        completed = [await start(store, chain(name, 2)) for _ in range(20)]
        for run_id in completed:
            await ended(store, run_id)
        failed = await start(store, chain(f"{name}-fails", 1))
        await store.history.append(
            StepFailed(run_id=failed, step_id="s0", payload=Failure(error="no paper", failure_type="non_retriable"))
        )
        await ended(store, failed)
        await seen()
        assert {"completed": 20} == index.count(name)
        assert {"failed": 1} == index.count(f"{name}-fails")
    assert set() == {*completed, failed} & set(looked_up)


async def test_an_end_that_the_last_follower_could_not_confirm_is_confirmed_by_the_next(
    store: Store, index: RunIndex, broker_settings: BrokerSettings, parked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(follower, "CONFIRM_AFTER_S", 1e9)
        async with following(store, broker_settings) as seen:
            await store.history.append(WorkflowCompleted(run_id=parked))
            await seen()
            assert "completed" == status(index, parked)
    async with following(store, broker_settings):
        await shown(index, parked, "running")


async def test_runs_whose_beginning_is_not_in_the_log_any_more_come_from_their_snapshots(
    store: Store, index: RunIndex, broker_settings: BrokerSettings, parked: str
) -> None:
    """Once, when the file is made; what the log says of them later is followed as of any other."""
    run = await _run(store, parked)
    await store.runs.send(parked, to_snapshot(run), 0)
    await without_history(store, parked)
    index_path(broker_settings.data_dir).unlink(missing_ok=True)
    async with following(store, broker_settings) as seen:
        await shown(index, parked, "running")
        assert [parked] == index.query(run.workflow_id, after=run.created_at, before=run.created_at).run_ids
        await store.history.append(WorkflowCancelled(run_id=parked))
        await seen()
        assert "cancelled" == status(index, parked)


async def test_that_a_run_is_paused_is_known_with_and_without_the_log(
    store: Store, index: RunIndex, broker_settings: BrokerSettings, parked: str
) -> None:
    await pausing.pause(store, parked)
    async with following(store, broker_settings) as seen:
        await seen()
    wanted = Selection(paused=True, workflow=(await _run(store, parked)).workflow_id)
    assert [parked] == (await index.find(wanted)).run_ids
    await store.runs.send(parked, to_snapshot(await _run(store, parked)), 0)
    await without_history(store, parked)
    index_path(broker_settings.data_dir).unlink()
    async with following(store, broker_settings) as seen:
        await shown(index, parked, "running")
        assert [parked] == (await index.find(wanted)).run_ids
        await pausing.unpause(store, parked)
        await seen()
        assert [] == (await index.find(wanted)).run_ids


async def test_a_file_that_missed_what_was_removed_is_made_anew(
    store: Store, index: RunIndex, broker_settings: BrokerSettings, parked: str
) -> None:
    async with following(store, broker_settings) as seen:
        await seen()
    other = await start(store, chain(f"w{uuid7().hex}", 1))
    run = await _run(store, other)
    await store.runs.send(other, to_snapshot(run), 0)
    last = await store.history.append(WorkflowCancelled(run_id=parked))
    await store.broker.remove(f"STREAM.PURGE.{names.HISTORY}", {"seq": last})
    async with following(store, broker_settings):
        await shown(index, other, "running")


async def test_what_was_rerun_is_known_with_and_without_the_log(
    store: Store, index: RunIndex, broker_settings: BrokerSettings, parked: str
) -> None:
    definition, digest = await store.definitions.latest((await _run(store, parked)).workflow_id)
    again = run_operations.started(new_run_id(), definition, digest, Raw(b"1"), run_operations.now(), rerun_of=parked)
    await store.history.append(again)
    async with following(store, broker_settings) as seen:
        await seen()
    assert {parked: again.run_id} == index.reruns([parked, again.run_id])
    await store.runs.send(again.run_id, to_snapshot(await _run(store, again.run_id)), 0)
    await without_history(store, again.run_id)
    index_path(broker_settings.data_dir).unlink()
    async with following(store, broker_settings):
        await shown(index, again.run_id, "running")
    assert {parked: again.run_id} == index.reruns([parked])


async def _run(store: Store, run_id: str) -> Run:
    run = (await load(store, run_id)).run
    assert run is not None
    return run
