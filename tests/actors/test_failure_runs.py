"""The run that a workflow's `on_failure` starts, in a real service."""

from __future__ import annotations

from collections.abc import AsyncIterator

import orjson
import pytest
from msgspec import Raw

from penstock.actors.control import run_operations
from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs.outputs import input_of
from penstock.actors.runs.shard import Shard
from penstock.broker.store import Store, open_store
from penstock.broker.worker_messages import TaskPayload
from penstock.config.limits import KIB
from penstock.config.settings import BrokerSettings
from penstock.engine.run.execution.failure_runs import failure_run_id
from penstock.engine.run.state import RunStatus
from tests.support.world import Echo, echo, ended, register, start

ALARM = {"name": "alarm", "steps": [{"id": "tell", "task": "tell"}]}


@pytest.fixture
async def shard(store: Store, broker_settings: BrokerSettings) -> AsyncIterator[Shard]:
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")) as opened:
        yield opened


def alarmed(name: str, alarm: str = "alarm", **fields: object) -> dict[str, object]:
    return {"name": name, "steps": [{"id": "a", "task": "work"}], "on_failure": {"workflow": alarm, **fields}}


async def failing(worker: Echo, task: TaskPayload) -> None:
    await worker.fail(task, "boom", "non_retriable")


@pytest.mark.parametrize("size", [1, 100 * KIB])
async def test_each_failure_of_a_run_starts_one_with_what_failed(store: Store, shard: Shard, size: int) -> None:
    await register(store, ALARM)
    given = {"text": "x" * size}
    async with echo(store, "work", failing), echo(store, "tell") as told:
        run_id = await start(store, alarmed("works"), orjson.dumps(given))
        await ended(store, run_id)
        first = await ended(store, failure_run_id(run_id, 0))
        await run_operations.replay(store, run_id)
        second = await ended(store, failure_run_id(run_id, 1))

    assert (first.status, second.status) == (RunStatus.COMPLETED, RunStatus.COMPLETED)
    assert (first.workflow_id, first.failure_of) == ("alarm", run_id)
    assert set(told.seen.values()) == {1}
    assert orjson.loads(bytes(await input_of(store, first))) == {
        "run_id": run_id,
        "workflow": "works",
        "error": 'step "a" failed: boom',
        "failed_step": "a",
        "input": given,
    }


TEMPLATES = {"of": "${{ default.workflow }}", "team": "${{ run.labels.team }}", "n": "${{ input.n }}", "kind": "alarm"}
GIVEN = {"of": "labelled", "team": "a", "n": "7", "kind": "alarm"}


@pytest.mark.parametrize(("fields", "expected"), [({"labels": TEMPLATES}, GIVEN), ({}, None)])
async def test_it_has_the_labels_that_the_definition_gives_it(
    store: Store, shard: Shard, fields: dict[str, object], expected: dict[str, str] | None
) -> None:
    await register(store, ALARM)
    definition, digest = await register(store, alarmed("labelled", **fields))
    async with echo(store, "work", failing), echo(store, "tell"):
        begun = await run_operations.begin(
            store, definition, digest, Raw(b'{"n": 7}'), labels={"team": "a", "own": "x"}
        )
        await ended(store, begun.run_id)
        follower = await ended(store, failure_run_id(begun.run_id, 0))
    assert (RunStatus.COMPLETED, expected) == (follower.status, follower.labels)


async def test_a_run_that_was_started_so_starts_none_itself(store: Store, shard: Shard) -> None:
    async with echo(store, "work", failing):
        run_id = await start(store, alarmed("self", alarm="self"))
        follower = await ended(store, failure_run_id(run_id, 0))
        other = await ended(store, await start(store, alarmed("self", alarm="self")))
        await ended(store, failure_run_id(other.run_id, 0))

    assert (follower.status, other.status) == (RunStatus.FAILED, RunStatus.FAILED)
    assert await store.history.read(failure_run_id(follower.run_id, 0)) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"alarm": "nobody"},
        {"with": "${{ input.missing }}"},
        {"with": 5},
        {"with": {}, "labels": {"of": "${{ input.missing }}"}},
        {"with": {}, "labels": {"of": "${{ default.error }}" + "x" * 257}},
    ],
)
async def test_one_that_cannot_start_changes_nothing_about_the_run(
    store: Store, shard: Shard, fields: dict[str, str]
) -> None:
    await register(store, {**ALARM, "input_schema": {"type": "object"}})
    async with echo(store, "work", failing):
        run_id = await start(store, alarmed("alone", **fields), b"{}")
        run = await ended(store, run_id)
        await ended(store, await start(store, alarmed("alone"), b"{}"))  # the shard goes on

    assert run.error == 'step "a" failed: boom'
    assert await store.history.read(failure_run_id(run_id, 0)) == []
