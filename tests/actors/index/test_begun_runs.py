"""Reading many runs at once, with what the index knows: as fresh as the log, and no history is searched of runs that
have only begun, or whose snapshot is current."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import Raw

from penstock.actors.control import run_operations
from penstock.actors.index.run_index import RunIndex
from penstock.actors.runs.loading import load, load_many
from penstock.broker.nats.direct import Stored
from penstock.broker.store import Store
from penstock.broker.streams.history import History
from penstock.engine.run.events import (
    StepCompleted,
    StepStarted,
    WorkflowFailed,
    WorkflowPaused,
    WorkflowStarted,
    decode,
)
from penstock.engine.run.state import Run, to_snapshot
from tests.support.run_index import append, seen
from tests.support.world import chain, register, start

pytestmark = pytest.mark.usefixtures("followed")


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs in whose history something is looked for."""
    found: list[str] = []
    pages = History.pages

    def noted(self: History, run_id: str, *given: Any, **more: Any) -> AsyncGenerator[list[Stored]]:
        found.append(run_id)
        return pages(self, run_id, *given, **more)

    monkeypatch.setattr(History, "pages", noted)
    return found


async def test_nothing_is_looked_for_of_runs_that_have_only_begun(
    store: Store, index: RunIndex, workflow: str, searched: list[str]
) -> None:
    run_ids = [await start(store, chain(workflow, 2), b"%d" % number) for number in range(5)]
    await seen(index, store)

    found = await load_many(store, run_ids, index.begun(run_ids))

    assert [] == searched
    assert [(await load(store, run_id)).run for run_id in run_ids] == found


async def test_what_has_happened_since_is_shown(
    store: Store, index: RunIndex, workflow: str, searched: list[str]
) -> None:
    run_ids = [await start(store, chain(workflow, 2)) for _ in range(4)]
    moved, paused, again, still = run_ids
    await append(store, StepStarted(run_id=moved, step_id="s0"), StepCompleted(run_id=moved, step_id="s0"))
    await append(store, WorkflowPaused(run_id=paused))
    await seen(index, store)
    known = index.begun(run_ids)
    await _began_again(store, again)

    found = await load_many(store, run_ids, known)

    assert {again: known.get(again), still: known.get(still)} == {again: known[again], still: known[still]}
    assert {moved, paused, again} == set(searched)
    assert [(await load(store, run_id)).run for run_id in run_ids] == found
    assert "completed" == _run(found, moved).steps["s0"].status
    assert _run(found, paused).pause is not None


async def test_a_second_start_in_a_history_is_not_taken_for_the_first(
    store: Store, index: RunIndex, workflow: str
) -> None:
    run_ids = [await start(store, chain(workflow, 2)) for _ in range(2)]
    await append(store, StepCompleted(run_id=run_ids[0], step_id="s0"))
    await _began_again(store, run_ids[0])
    await seen(index, store)

    found = await load_many(store, run_ids, index.begun(run_ids))

    assert "completed" == _run(found, run_ids[0]).steps["s0"].status


async def test_a_scheduled_run_that_has_started_is_not_one_that_has_only_begun(
    store: Store, index: RunIndex, workflow: str
) -> None:
    definition, digest = await register(store, chain(workflow, 1))
    at = datetime.now(UTC) + timedelta(hours=1)
    run_id = (await run_operations.schedule(store, definition, digest, Raw(b"null"), at)).run_id
    first = await store.history.first(run_id)
    assert first is not None
    begun = await store.definitions.latest(workflow)
    await append(store, run_operations.started(run_id, begun[0], begun[1], Raw(b"null"), "2026-01-01T12:00:00Z"))
    await seen(index, store)

    assert {} == index.begun([run_id])


async def test_nothing_is_looked_for_behind_a_current_snapshot(
    store: Store, index: RunIndex, workflow: str, searched: list[str]
) -> None:
    run_ids = [await start(store, chain(workflow, 1)) for _ in range(3)]
    await append(store, *(WorkflowFailed(run_id=run_id) for run_id in run_ids))
    for run_id in run_ids:
        run = (await load(store, run_id)).run
        assert run is not None
        await store.runs.put(run_id, to_snapshot(run))
    searched.clear()

    found = await load_many(store, run_ids)

    assert ([], ["failed"] * 3) == (searched, [run.status for run in found])


async def _began_again(store: Store, run_id: str) -> None:
    first = await store.history.first(run_id)
    assert first is not None
    event = decode(first.data)
    assert isinstance(event, WorkflowStarted)
    await store.history.append(event, message_id=f"{run_id}.again")


def _run(runs: list[Run], run_id: str) -> Run:
    return next(run for run in runs if run.run_id == run_id)
