"""A cancellation that is answered with success has cancelled its run: whichever end comes first in the log is the only
one."""

from __future__ import annotations

import asyncio

import pytest

from penstock.actors.control import run_operations
from penstock.broker.store import Store
from penstock.engine.errors import Conflict, Unavailable
from penstock.engine.run.event_payloads import Resumed, RunFailure
from penstock.engine.run.events import Event, StepCompleted, WorkflowCompleted, WorkflowFailed, WorkflowResumed
from penstock.engine.run.state import Run, RunStatus
from tests.support.world import chain, start


def interpose(store: Store, monkeypatch: pytest.MonkeyPatch, *events: Event) -> None:
    """Have these events come into the log just before the next one that is appended."""
    append, coming = store.history.append, list(events)

    async def late(event: Event, *, expect_seq: int | None = None, message_id: str | None = None) -> int:
        while coming:
            await append(coming.pop(0))
        return await append(event, expect_seq=expect_seq, message_id=message_id)

    monkeypatch.setattr(store.history, "append", late)


async def test_a_run_that_completes_between_selection_and_cancellation_is_a_conflict(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await start(store, chain("brief", 1))
    interpose(
        store,
        monkeypatch,
        StepCompleted(run_id=run_id, step_id="s0", attempt_number=1),
        WorkflowCompleted(run_id=run_id),
    )
    with pytest.raises(Conflict, match="is completed already"):
        await run_operations.cancel(store, run_id)
    assert RunStatus.COMPLETED is (await run_operations.get(store, run_id)).status


async def test_a_run_that_fails_between_selection_and_cancellation_is_a_conflict(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await start(store, chain("brief", 1))
    interpose(store, monkeypatch, WorkflowFailed(run_id=run_id, payload=RunFailure(error="no luck")))
    with pytest.raises(Conflict, match="is failed already"):
        await run_operations.cancel(store, run_id)
    assert RunStatus.FAILED is (await run_operations.get(store, run_id)).status


async def test_a_run_that_fails_and_is_resumed_meanwhile_is_cancelled_after_all(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await start(store, chain("brief", 1))
    append = store.history.append
    failed = WorkflowFailed(run_id=run_id, payload=RunFailure(error="no luck"))
    resumed = WorkflowResumed(run_id=run_id, payload=Resumed(steps=("s0",)))

    async def between(event: Event, *, expect_seq: int | None = None, message_id: str | None = None) -> int:
        monkeypatch.undo()
        await append(failed)
        seq = await append(event, expect_seq=expect_seq, message_id=message_id)
        await append(resumed)
        return seq

    monkeypatch.setattr(store.history, "append", between)
    await run_operations.cancel(store, run_id)
    assert RunStatus.CANCELLED is (await run_operations.get(store, run_id)).status


async def test_cancelling_twice_is_cancelling_once(store: Store) -> None:
    run_id = await start(store, chain("brief", 1))
    await run_operations.cancel(store, run_id)
    await run_operations.cancel(store, run_id)
    assert 2 == len(await store.history.read(run_id))


async def test_a_cancellation_that_others_overtake_for_ever_comes_to_an_end(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await start(store, chain("resumed.for.ever", 1))
    running = await run_operations.get(store, run_id)

    async def get(_: Store, __: str) -> Run:
        return running

    monkeypatch.setattr(run_operations, "get", get)
    async with asyncio.timeout(10):
        with pytest.raises(Unavailable, match="though it was cancelled 10 times"):
            await run_operations.cancel(store, run_id)
