"""Snapshots spare reading the log, and nothing more: without them every run is what it was, and goes on."""

from __future__ import annotations

import pytest

from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs import actor_state
from penstock.actors.runs.loading import load
from penstock.broker import names
from penstock.broker.store import Store
from penstock.engine.run.events import StepCompleted
from penstock.engine.run.state import RunStatus
from tests.support.waiting import until
from tests.support.world import chain, echo, ended, start


async def test_a_run_whose_snapshot_was_lost_is_shown_and_goes_on(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actor_state, "EVENTS_MIN", 0)
    document = chain("lost", 2)
    async with open_shard(store, new_member("shard")):
        done = await start(store, {**document, "name": "done", "steps": document["steps"][:1], "timeout": "1h"})
        waiting = await start(store, document)
        await store.history.append(StepCompleted(run_id=done, step_id="s0", attempt_number=1))
        await ended(store, done)
        await store.history.append(StepCompleted(run_id=waiting, step_id="s0", attempt_number=1))
        await until(lambda: store.reader.one(names.TASKS, names.task_subject("lost.echo", waiting)))
    for run_id in (done, waiting):
        before = (await load(store, run_id)).run
        assert await store.runs.get(run_id) is not None
        await store.runs.delete(run_id)
        assert before == (await load(store, run_id)).run
    async with open_shard(store, new_member("shard")), echo(store, "lost.echo"):
        assert RunStatus.COMPLETED is (await ended(store, waiting)).status
