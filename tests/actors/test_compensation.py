"""Compensation in a real service: what a run has done is undone over the broker, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import orjson
import pytest
from msgspec import Raw

from penstock.actors.control import bulk, run_operations
from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs.loading import load, records
from penstock.actors.runs.shard import Shard
from penstock.broker.nats.publisher import Publisher
from penstock.broker.store import Store, open_store
from penstock.broker.worker_messages import TaskPayload
from penstock.config.limits import KIB, MIB
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Conflict
from penstock.engine.run.advance import fold
from penstock.engine.run.events import Record, WorkflowCancelled, WorkflowCompensating, WorkflowFailed
from penstock.engine.run.execution.children import child_run_id
from penstock.engine.run.state import Run, RunStatus
from tests.support.waiting import until
from tests.support.world import Echo, echo, ended, register, start

BIG = "x" * 200 * KIB


@pytest.fixture
async def shard(store: Store, broker_settings: BrokerSettings) -> AsyncIterator[Shard]:
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")) as opened:
        yield opened


def undoable(step_id: str, *depends_on: str, **fields: object) -> dict[str, object]:
    undo = {"task": f"undo.{step_id}"}
    return {"id": step_id, "task": step_id, "depends_on": list(depends_on), "compensate": undo, **fields}


def saga(name: str, **fields: object) -> dict[str, object]:
    ship = {"id": "ship", "task": "ship", "depends_on": ["reserve"]}
    return {"name": name, "steps": [undoable("charge"), undoable("reserve", "charge"), ship], **fields}


async def broken(worker: Echo, task: TaskPayload) -> None:
    await worker.fail(task, "no lorry", "non_retriable")


async def hanging(worker: Echo, task: TaskPayload) -> None:
    await worker.started(task)


class Undo:
    """Notes in `done` what was undone, in which order, with what it was given."""

    def __init__(self) -> None:
        self.done: list[tuple[str, object]] = []

    async def __call__(self, worker: Echo, task: TaskPayload) -> None:
        self.done.append((task.step_id, orjson.loads(bytes(task.input))))
        await worker.complete(task)


async def log_of(store: Store, run_id: str) -> list[Record]:
    return records(await store.history.read(run_id))


async def has_status(store: Store, run_id: str, status: RunStatus) -> None:
    async def there() -> bool:
        run = (await load(store, run_id)).run
        return run is not None and run.status is status

    await until(there)


@pytest.mark.parametrize("given", [{"n": 1}, {"n": BIG}], ids=["small", "large"])
async def test_a_saga_is_undone_in_reverse_order(store: Store, shard: Shard, given: dict[str, object]) -> None:
    undo = Undo()
    async with (
        echo(store, "charge"),
        echo(store, "reserve"),
        echo(store, "ship", broken),
        echo(store, "undo.charge", undo),
        echo(store, "undo.reserve", undo),
    ):
        run_id = await start(store, saga("order"), orjson.dumps(given))
        run = await ended(store, run_id)

    both = {"input": given, "output": given}
    assert undo.done == [("reserve.compensate", both), ("charge.compensate", both)]
    assert (run.status, run.error) == (RunStatus.FAILED, 'step "ship" failed: no lorry')
    assert run.compensation is not None
    assert run.compensation.outcome == "completed"
    log = await log_of(store, run_id)
    ends = [type(record.event) for record in log if isinstance(record.event, WorkflowCompensating | WorkflowFailed)]
    assert ends == [WorkflowCompensating, WorkflowFailed]
    workflow = (await load(store, run_id)).workflow
    assert workflow is not None
    assert fold(workflow, None, log) == run


async def test_a_run_that_undoes_its_steps_is_not_cancelled_nor_replayed_but_may_be_rerun(
    store: Store, shard: Shard
) -> None:
    async with echo(store, "charge"), echo(store, "reserve"), echo(store, "ship", broken):
        run_id = await start(store, saga("stuck"))
        await has_status(store, run_id, RunStatus.COMPENSATING)
        with pytest.raises(Conflict, match="compensating already"):
            await run_operations.cancel(store, run_id)
        async with echo(store, "undo.charge", broken), echo(store, "undo.reserve"):
            run = await ended(store, run_id)

    assert run.compensation is not None
    assert run.compensation.outcome == "failed"
    letters = {letter.step_id: letter for letter in (await store.dead_letters.page(run_id)).dead_letters}
    assert letters.keys() == {"ship", "charge.compensate"}
    assert letters["charge.compensate"].task == "undo.charge"
    with pytest.raises(Conflict, match="has undone its steps"):
        await run_operations.replay(store, run_id)
    with pytest.raises(Conflict, match="has undone its steps"):
        await run_operations.replay_dead_letter(store, letters["ship"].seq)
    done = await bulk.replay(store, [run_id], dry_run=False)
    assert (done.retried, [one.run_id for one in done.skipped]) == ([], [run_id])
    assert "has undone its steps" in done.skipped[0].reason
    assert (await load(store, run_id)).run == run


async def test_a_cancellation_with_compensation_ends_when_all_is_undone(store: Store, shard: Shard) -> None:
    undo = Undo()
    async with echo(store, "charge"), echo(store, "reserve"):
        run_id = await start(store, saga("called-off"), b"1")
        await until(lambda: _completed(store, run_id, "reserve"))
        status = await run_operations.cancel(store, run_id, "called off", compensate=True)
        assert status is RunStatus.COMPENSATING
        async with echo(store, "undo.charge", undo), echo(store, "undo.reserve", undo):
            run = await ended(store, run_id)

    assert [step_id for step_id, _ in undo.done] == ["reserve.compensate", "charge.compensate"]
    assert (run.status, run.error) == (RunStatus.CANCELLED, "called off")
    assert await run_operations.cancel(store, run_id, compensate=True) is RunStatus.CANCELLED
    cancellations = [one.event for one in await log_of(store, run_id) if isinstance(one.event, WorkflowCancelled)]
    assert [(one.payload.compensate, one.payload.compensation) for one in cancellations] == [
        (True, None),
        (False, "completed"),
    ]


async def _completed(store: Store, run_id: str, step_id: str) -> bool:
    run = (await load(store, run_id)).run
    return run is not None and run.steps[step_id].status == "completed"


async def test_many_runs_are_cancelled_with_compensation(store: Store, shard: Shard) -> None:
    undo = Undo()
    document = {"name": "many", "steps": [undoable("charge"), {"id": "ship", "task": "ship", "depends_on": ["charge"]}]}
    definition, digest = await register(store, document)
    async with echo(store, "charge"):
        run_ids = await run_operations.start_all(store, definition, digest, [Raw(b"1"), Raw(b"2")])
        for run_id in run_ids:
            await until(lambda run_id=run_id: _completed(store, run_id, "charge"))
    fresh = await start(store, document)

    done = await bulk.cancel(store, [*run_ids, fresh], compensate=True)

    assert (set(done.cancelled), done.skipped) == ({*run_ids, fresh}, [])
    assert (await load(store, fresh)).run.status is RunStatus.CANCELLED  # type: ignore[union-attr]
    async with echo(store, "undo.charge", undo):
        runs = [await ended(store, run_id) for run_id in run_ids]
    assert {run.status for run in runs} == {RunStatus.CANCELLED}
    assert len(undo.done) == 2


@pytest.mark.parametrize("size", [3, 200 * KIB], ids=["small", "large"])
async def test_every_completed_element_of_a_failed_map_is_undone(store: Store, shard: Shard, size: int) -> None:
    undo, items = Undo(), [f"{n}" + "x" * size for n in range(3)]

    async def one_breaks(worker: Echo, task: TaskPayload) -> None:
        if task.step_id == "m.1":
            await until(lambda: _elements(store, task.run_id, 2))
            await worker.fail(task, "bad", "non_retriable")
        else:
            await worker.complete(task)

    async with echo(store, "m", one_breaks), echo(store, "undo.m", undo):
        run_id = await start(store, {"name": "mapped", "steps": [undoable("m", type="map")]}, orjson.dumps(items))
        run = await ended(store, run_id)

    assert sorted(step_id for step_id, _ in undo.done) == ["m.0.compensate", "m.2.compensate"]
    assert all(given == {"input": items[int(at[2])], "output": items[int(at[2])]} for at, given in undo.done)
    assert run.steps["m.2.compensate"].handles == "m.2"
    assert (run.status, run.error) == (RunStatus.FAILED, 'step "m" failed: element 1 failed: bad')


async def _elements(store: Store, run_id: str, count: int) -> bool:
    run = (await load(store, run_id)).run
    items = None if run is None else run.steps["m"].items
    return items is not None and items.counts[3] == count


async def test_children_that_are_cancelled_undo_their_steps_before_the_parent_does(store: Store, shard: Shard) -> None:
    undo, here = Undo(), asyncio.Event()

    async def waits(worker: Echo, task: TaskPayload) -> None:
        await worker.started(task)
        here.set()

    async def breaks_then(worker: Echo, task: TaskPayload) -> None:
        await here.wait()
        await broken(worker, task)

    child = {"name": "child", "steps": [undoable("inner"), {"id": "then", "task": "then", "depends_on": ["inner"]}]}
    below = {"id": "below", "type": "sub_workflow", "config": {"workflow": "child"}}
    parent = {
        "name": "parent",
        "steps": [undoable("outer"), below, {"id": "bad", "task": "bad", "depends_on": ["outer"]}],
    }
    await register(store, child)
    async with (
        echo(store, "outer"),
        echo(store, "inner"),
        echo(store, "then", waits),
        echo(store, "bad", breaks_then),
        echo(store, "undo.inner", undo),
        echo(store, "undo.outer", undo),
    ):
        run_id = await start(store, parent)
        run = await ended(store, run_id)

    assert [step_id for step_id, _ in undo.done] == ["inner.compensate", "outer.compensate"]
    below_run = await ended(store, child_run_id(run_id, "below", 1))
    assert (run.status, below_run.status) == (RunStatus.FAILED, RunStatus.CANCELLED)
    assert below_run.compensation is not None
    assert run.steps["below"].status == "cancelled"


async def test_a_parent_waits_until_its_child_has_undone_its_steps(store: Store, shard: Shard) -> None:
    child = {"name": "undoing", "steps": [undoable("inner"), {"id": "bad", "task": "bad", "depends_on": ["inner"]}]}
    await register(store, child)
    parent = {"name": "waiting", "steps": [{"id": "below", "type": "sub_workflow", "config": {"workflow": "undoing"}}]}
    async with echo(store, "inner"), echo(store, "bad", broken):
        run_id = await start(store, parent)
        await has_status(store, child_run_id(run_id, "below", 1), RunStatus.COMPENSATING)
        assert (await load(store, run_id)).run.steps["below"].status == "running"  # type: ignore[union-attr]
        async with echo(store, "undo.inner"):
            run = await ended(store, run_id)

    assert run.status is RunStatus.FAILED
    assert "child run" in (run.error or "")


async def test_planned_steps_are_undone(store: Store, shard: Shard) -> None:
    undo = Undo()

    async def plan(worker: Echo, task: TaskPayload) -> None:
        steps = [undoable("x"), undoable("y", "x")]
        await worker.complete(task, orjson.dumps({"steps": steps}))

    after = {"id": "after", "task": "after", "depends_on": ["p"]}
    async with (
        echo(store, "plan", plan),
        echo(store, "x"),
        echo(store, "y"),
        echo(store, "after", broken),
        echo(store, "undo.x", undo),
        echo(store, "undo.y", undo),
    ):
        planned = {"name": "planned", "steps": [{"id": "p", "type": "planner", "task": "plan"}, after]}
        run = await ended(store, await start(store, planned, b"1"))

    assert undo.done == [
        ("p.y.compensate", {"input": 1, "output": 1}),
        ("p.x.compensate", {"input": 1, "output": 1}),
    ]
    assert run.status is RunStatus.FAILED


async def test_a_compensation_whose_input_fits_no_message_fails_and_the_others_go_on(
    store: Store, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two outputs of 1 MiB fit; a broker with less room refuses them."""
    undo = Undo()
    monkeypatch.setattr(Publisher, "body_bytes_max", property(lambda self: MIB))

    async def large(worker: Echo, task: TaskPayload) -> None:
        await worker.complete(task, orjson.dumps("y" * 900 * KIB))

    steps = [undoable("small"), undoable("big", "small"), {"id": "bad", "task": "bad", "depends_on": ["big"]}]
    async with (
        echo(store, "small"),
        echo(store, "big", large),
        echo(store, "bad", broken),
        echo(store, "undo.small", undo),
    ):
        run_id = await start(store, {"name": "too-large", "steps": steps}, orjson.dumps("x" * 300 * KIB))
        run = await ended(store, run_id)

    assert [step_id for step_id, _ in undo.done] == ["small.compensate"]
    assert run.compensation is not None
    assert (run.status, run.compensation.outcome) == (RunStatus.FAILED, "failed")
    assert "more than the broker accepts" in (run.steps["big.compensate"].error or "")


async def test_the_run_that_follows_from_a_failure_starts_when_all_is_undone(store: Store, shard: Shard) -> None:
    order: list[str] = []

    async def note(worker: Echo, task: TaskPayload) -> None:
        order.append(task.step_id)
        await worker.complete(task)

    await register(store, {"name": "tell", "steps": [{"id": "told", "task": "told"}]})
    async with (
        echo(store, "charge"),
        echo(store, "reserve"),
        echo(store, "ship", broken),
        echo(store, "undo.charge", note),
        echo(store, "undo.reserve", note),
        echo(store, "told", note),
    ):
        await start(store, saga("followed", on_failure={"workflow": "tell"}))

        async def told() -> bool:
            return "told" in order

        await until(told)
    assert order == ["reserve.compensate", "charge.compensate", "told"]


def outcome(run: Run) -> tuple[RunStatus, str | None]:
    return run.status, None if run.compensation is None else run.compensation.outcome


async def test_a_shard_that_takes_over_undoes_each_step_once(store: Store, broker_settings: BrokerSettings) -> None:
    """The first shard ends in the middle; the second one goes on from the log."""
    undo = Undo()
    async with (
        echo(store, "charge"),
        echo(store, "reserve"),
        echo(store, "ship", broken),
        echo(store, "undo.reserve", undo),
    ):
        async with open_store(broker_settings, "first") as own, open_shard(own, new_member("first")):
            run_id = await start(store, saga("moved"))

            async def halfway() -> bool:
                run = (await load(store, run_id)).run
                return run is not None and "charge.compensate" in run.steps

            await until(halfway)
        async with (
            open_store(broker_settings, "second") as own,
            open_shard(own, new_member("second")),
            echo(store, "undo.charge", undo),
        ):
            run = await ended(store, run_id)

    assert [step_id for step_id, _ in undo.done] == ["reserve.compensate", "charge.compensate"]
    assert outcome(run) == (RunStatus.FAILED, "completed")
