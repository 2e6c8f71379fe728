"""Steps that start a child, in a real service: two runs over one broker."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from penstock.actors.control import run_operations
from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs import run_actor
from penstock.actors.runs.commands.children import Children
from penstock.actors.runs.loading import LoadedRun, load, records
from penstock.actors.runs.outputs import output_of
from penstock.actors.runs.shard import Shard
from penstock.actors.runs.shared.lease import ShardLease, now
from penstock.broker.store import Store, open_store
from penstock.broker.streams.dead_letters import DeadLetter
from penstock.broker.worker_messages import TaskPayload
from penstock.config.limits import KIB, RUNS_IN_CHAIN_MAX
from penstock.config.settings import BrokerSettings
from penstock.engine.run.commands import CancelChild, StartChild
from penstock.engine.run.event_payloads import NULL, ParentRef, SignalRef
from penstock.engine.run.events import SignalReceived, WorkflowCancelled
from penstock.engine.run.execution.children import child_run_id
from penstock.engine.run.state import Run, RunStatus
from tests.support.waiting import until, until_true
from tests.support.world import Echo, echo, ended, register, start

PAGE = Path(__file__).parents[2] / "docs" / "workflows.md"
BIG = "x" * 200 * KIB


@pytest.fixture
async def shard(store: Store, broker_settings: BrokerSettings) -> AsyncIterator[Shard]:
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")) as opened:
        yield opened


def parent(name: str = "parent", **fields: object) -> dict[str, object]:
    config = {"workflow": "child", **fields.pop("config", {})}  # type: ignore[dict-item]
    return {"name": name, "steps": [{"id": "a", "type": "sub_workflow", "config": config, **fields}]}


CHILD = {"name": "child", "steps": [{"id": "x", "task": "work"}]}


async def doubled(worker: Echo, task: TaskPayload) -> None:
    await worker.complete(task, orjson.dumps(orjson.loads(bytes(task.input)) * 2))


async def hanging(worker: Echo, task: TaskPayload) -> None:
    await worker.started(task)


async def failing(worker: Echo, task: TaskPayload) -> None:
    await worker.fail(task, "boom", "non_retriable")


async def child_of(store: Store, run: Run, attempt: int = 1, step_id: str = "a") -> Run:
    return await ended(store, child_run_id(run.run_id, step_id, attempt))


@pytest.mark.parametrize("given", [21, "x" * 10, BIG])
async def test_a_child_gets_the_input_and_gives_its_output(store: Store, shard: Shard, given: object) -> None:
    await register(store, CHILD)
    async with echo(store, "work", doubled):
        run = await ended(store, await start(store, parent(), orjson.dumps(given)))

    child = await child_of(store, run)
    assert (run.status, child.status) == (RunStatus.COMPLETED, RunStatus.COMPLETED), run.error
    assert child.parent == ParentRef(run.run_id, "a")
    assert run.steps["a"].child_run_id == child.run_id
    assert orjson.loads(await _output(store, run)) == given * 2  # type: ignore[operator]


async def _output(store: Store, run: Run) -> bytes:
    return bytes(await output_of(store, run, "a"))


async def test_the_example_of_the_page(store: Store, shard: Shard) -> None:
    [example] = re.findall(
        r"```json\n(.*?)```", PAGE.read_text().partition("\n## Children\n")[2].partition("\n## ")[0], re.S
    )
    for name in ("billing", "parcel"):
        await register(store, {**CHILD, "name": name})

    async with echo(store, "work"):
        run_id = await start(store, orjson.loads(example), b'{"customer":"ada","lines":[1,2]}')
        run = await ended(store, run_id)

    billing = await child_of(store, run, 1, "bill")
    assert run.status is RunStatus.COMPLETED, run.error
    assert orjson.loads(bytes(billing.input)) == {"customer": "ada"}
    assert orjson.loads(bytes(await output_of(store, run, "parcels"))) == [1, 2]


async def test_workflows_that_are_not_registered_are_missing(store: Store) -> None:
    await register(store, CHILD)

    assert await store.definitions.missing(["child", "stranger"]) == {"stranger"}
    assert await store.definitions.missing([]) == set()


async def test_a_failed_child_is_tried_again_by_another(store: Store, shard: Shard) -> None:
    await register(store, CHILD)
    async with echo(store, "work", failing):
        run = await ended(store, await start(store, parent(retry={"max_attempts": 1, "initial_delay": "0s"}), b"1"))

    first, second = await child_of(store, run, 1), await child_of(store, run, 2)
    assert [first.status, second.status, run.status] == [RunStatus.FAILED] * 3
    assert run.error == f'step "a" failed: child run {second.run_id} failed: step "x" failed: boom'


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"config": {"workflow": "nobody"}}, 'workflow "nobody" cannot start: workflow "nobody" is not registered'),
        ({"config": {"version": "9"}}, 'workflow "child" cannot start: workflow "child" has no version "9"'),
        ({"with": {"x": 1}}, 'workflow "child" cannot start: input: '),
    ],
)
async def test_a_child_that_cannot_start_fails_the_step_for_good(
    store: Store, shard: Shard, fields: dict[str, object], error: str
) -> None:
    await register(store, {**CHILD, "input_schema": {"type": "string"}})
    run = await ended(store, await start(store, parent(retries=5, **fields), orjson.dumps(BIG)))

    assert run.status is RunStatus.FAILED
    assert run.steps["a"].attempts == 1
    assert error in (run.error or "")
    assert await store.history.read(child_run_id(run.run_id, "a", 1)) == []


async def test_the_end_of_the_parent_cancels_the_child(store: Store, shard: Shard) -> None:
    await register(store, CHILD)
    async with echo(store, "work", hanging) as worker:
        run_id = await start(store, parent())
        await until_true(lambda: bool(worker.seen))
        await run_operations.cancel(store, run_id, "enough")
        run = await ended(store, run_id)

    child = await child_of(store, run)
    assert (run.status, child.status) == (RunStatus.CANCELLED, RunStatus.CANCELLED)
    assert child.error == f'step "a" of its parent run {run_id}: it has ended'


async def test_a_cancelled_child_fails_the_step(store: Store, shard: Shard) -> None:
    await register(store, CHILD)
    async with echo(store, "work", hanging) as worker:
        run_id = await start(store, parent(retries=5))
        await until_true(lambda: bool(worker.seen))
        child = child_run_id(run_id, "a", 1)
        await run_operations.cancel(store, child, "enough")
        run = await ended(store, run_id)

    assert run.error == f'step "a" failed: child run {child} was cancelled: enough'


async def test_a_timeout_cancels_the_child(store: Store, shard: Shard) -> None:
    await register(store, CHILD)
    async with echo(store, "work", hanging):
        run = await ended(store, await start(store, parent(timeout="200ms")))

    assert run.error == 'step "a" failed: step timeout exceeded (200ms)'
    assert (await child_of(store, run)).status is RunStatus.CANCELLED


async def test_a_workflow_that_starts_itself_ends_at_the_most_runs_in_a_chain(store: Store, shard: Shard) -> None:
    run = await ended(store, await start(store, parent("child")))

    chain = [run]
    while chain[-1].steps["a"].child_run_id is not None:
        chain.append(await child_of(store, chain[-1]))
    assert len(chain) == RUNS_IN_CHAIN_MAX
    assert f"is the last of {RUNS_IN_CHAIN_MAX} in a chain" in (run.error or "")


async def test_a_detached_child_goes_on_alone(store: Store, shard: Shard) -> None:
    await register(store, CHILD)
    run = await ended(store, await start(store, parent(config={"detach": True})))
    child = child_run_id(run.run_id, "a", 1)

    assert orjson.loads(bytes(run.steps["a"].output)) == {"run_id": child}  # type: ignore[arg-type]
    async with echo(store, "work"):
        assert (await ended(store, child)).status is RunStatus.COMPLETED


def mapped(**config: object) -> dict[str, object]:
    step = {"id": "a", "type": "map", "config": {"workflow": "child", **config}, "timeout": "30s"}
    return {"name": "mapped", "steps": [step]}


@pytest.mark.parametrize(("count", "given"), [(120, 3), (3, BIG)])
async def test_a_map_over_a_workflow_has_a_child_for_each_element(
    store: Store, shard: Shard, count: int, given: object
) -> None:
    await register(store, CHILD)
    async with echo(store, "work", doubled):
        run = await ended(store, await start(store, mapped(), orjson.dumps([given] * count)))

    assert run.status is RunStatus.COMPLETED, run.error
    assert orjson.loads(await _output(store, run)) == [given * 2] * count  # type: ignore[operator]
    assert (await child_of(store, run, 1, f"a.{count - 1}")).parent == ParentRef(
        run.run_id, f"a.{count - 1}", 1, count - 1
    )


async def test_a_map_of_maps_is_a_map_over_a_workflow_that_has_a_map(store: Store, shard: Shard) -> None:
    rows = {"name": "row", "steps": [{"id": "cells", "type": "map", "task": "work"}]}
    table = {"name": "table", "steps": [{"id": "m", "type": "map", "config": {"workflow": "row"}}]}
    await register(store, rows)
    async with echo(store, "work", doubled):
        run = await ended(store, await start(store, table, b"[[1,2],[],[3]]"))

    assert run.status is RunStatus.COMPLETED, run.error
    assert orjson.loads(bytes(run.steps["m"].output)) == [[2, 4], [], [6]]


async def test_the_children_of_a_cancelled_map_are_cancelled(store: Store, shard: Shard) -> None:
    await register(store, CHILD)
    async with echo(store, "work", hanging) as worker:
        run_id = await start(store, mapped(), b"[1,2,3]")
        await until_true(lambda: len(worker.seen) == 3)
        await run_operations.cancel(store, run_id)
        run = await ended(store, run_id)

    children = [await child_of(store, run, 1, f"a.{number}") for number in range(3)]
    assert [child.status for child in children] == [RunStatus.CANCELLED] * 3


async def test_a_child_that_was_cancelled_first_never_starts(store: Store, shard: Shard) -> None:
    """What a parent does whose former owner is about to start the child."""
    await register(store, CHILD)
    run_id = await start(store, parent())
    run = (await load(store, run_id)).run
    assert run is not None
    child, lease = child_run_id(run_id, "a", 9), ShardLease()
    lease.renewed(now())
    children = Children(store, lease)

    before = await store.dead_letters.last_seq()
    await children.cancel(run, CancelChild("a", 9, "over"))
    await children.start(run, StartChild("a", 9, "child", None, NULL, 0.0))
    await store.history.append(SignalReceived(run_id=child, payload=SignalRef("s")))

    stored = records(await store.history.read(child))
    assert [type(record.event) for record in stored] == [WorkflowCancelled, SignalReceived]
    _, body = await until(lambda: _dead_letter(store, before + 1))  # of the signal, and none of the cancellation
    assert "signal.received" in body.decode()


async def _dead_letter(store: Store, seq: int) -> tuple[DeadLetter, bytes] | None:
    return await store.dead_letters.get(seq) if await store.dead_letters.last_seq() >= seq else None


async def test_the_children_of_a_map_are_started_with_few_reads_of_their_definition(
    store: Store, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 0
    latest = shard.store.definitions.latest

    async def counted(name: str) -> Any:
        nonlocal reads
        reads += 1
        return await latest(name)

    monkeypatch.setattr(shard.store.definitions, "latest", counted)
    await register(store, CHILD)
    document = {"name": "many", "steps": [{"id": "m", "type": "map", "config": {"workflow": "child"}}]}
    async with echo(store, "work"):
        run = await ended(store, await start(store, document, orjson.dumps(list(range(200)))))
    assert RunStatus.COMPLETED is run.status
    assert 1 <= reads <= 20


async def test_the_child_of_an_old_run_is_not_looked_for_in_the_store(
    store: Store, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its id has the time of its parent's, but its history was empty."""
    loaded: list[str] = []

    async def counted(store: Store, run_id: str, **more: Any) -> LoadedRun:
        loaded.append(run_id)
        return await load(store, run_id, **more)

    monkeypatch.setattr(run_actor, "load", counted)
    await register(store, CHILD)
    run_id = f"{round((time.time() - 3600) * 1000):012x}7" + "a" * 19
    begun = run_operations.started(run_id, *await register(store, parent()), NULL, run_operations.now())
    async with echo(store, "work"):
        await store.history.append(begun)
        child = await child_of(store, await ended(store, run_id))
    assert RunStatus.COMPLETED is child.status
    assert [run_id] == loaded
