"""Planners in a real service: plans over the broker, checked, tried again, and carried out."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import orjson
import pytest
from msgspec import Raw

from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs.outputs import output_of
from penstock.actors.runs.shard import Shard
from penstock.broker.store import Store, open_store
from penstock.broker.worker_messages import TaskPayload
from penstock.config.limits import KIB
from penstock.config.settings import BrokerSettings
from penstock.engine.run.event_payloads import Failure
from penstock.engine.run.events import StepCompleted, StepFailed
from penstock.engine.run.state import RunStatus, StepStatus
from penstock.engine.times import rfc3339
from tests.support.waiting import until_true
from tests.support.world import Echo, echo, ended, start

BIG = "x" * 100 * KIB
PLANNED = {
    "name": "planned",
    "steps": [
        {"id": "p", "type": "planner", "task": "plan", "retry": {"max_attempts": 1}},
        {"id": "after", "task": "after", "depends_on": ["p"]},
    ],
}


@pytest.fixture
async def shard(store: Store, broker_settings: BrokerSettings) -> AsyncIterator[Shard]:
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")) as opened:
        yield opened


def steps(*ids: str, **fields: object) -> list[dict[str, object]]:
    return [{"id": step_id, "task": "each", **fields} for step_id in ids]


class Plans:
    """Answers the n-th task with the n-th plan, and keeps what each was told of the failure before."""

    def __init__(self, *plans: object) -> None:
        self._plans = list(plans)
        self.errors: list[str | None] = []

    async def __call__(self, worker: Echo, task: TaskPayload) -> None:
        self.errors.append(task.previous_error)
        await worker.complete(task, orjson.dumps({"steps": self._plans[task.attempt - 1]}))


class Received:
    def __init__(self) -> None:
        self.inputs: list[object] = []

    async def __call__(self, worker: Echo, task: TaskPayload) -> None:
        self.inputs.append(orjson.loads(bytes(task.input)))
        await worker.complete(task)


async def test_a_refused_plan_is_made_again_with_the_problems_at_hand(store: Store, shard: Shard) -> None:
    plans = Plans(steps("x", depends_on=["nowhere"]), steps("x", "y"))
    async with echo(store, "plan", plans), echo(store, "each"), echo(store, "after", after := Received()):
        run = await ended(store, await start(store, PLANNED, b'{"n":1}'))

    assert run.status is RunStatus.COMPLETED, run.error
    assert plans.errors[0] is None
    assert 'step "x" depends on "nowhere", which does not exist' in (plans.errors[1] or "")
    assert after.inputs == [{"x": {"n": 1}, "y": {"n": 1}}]


async def test_a_plan_is_refused_though_its_worker_has_also_reported_a_failure(store: Store, shard: Shard) -> None:
    """A task that was executed twice: the report of the second execution comes before the check of the first plan."""
    run_id = await start(store, PLANNED, b'{"n":1}')
    about = {"run_id": run_id, "step_id": "p", "worker_id": "w", "attempt_number": 1}
    bad = StepCompleted(**about, timestamp=rfc3339(time.time()), payload=Raw(b'{"steps":7}'))  # type: ignore[arg-type]
    late = StepFailed(**about, timestamp=rfc3339(time.time()), payload=Failure(error="late"))  # type: ignore[arg-type]
    for sent in [store.history.send(bad), store.history.send(late)]:
        await sent

    async with echo(store, "plan", plans := Plans([], steps("x"))), echo(store, "each"), echo(store, "after"):
        run = await ended(store, run_id)

    assert run.status is RunStatus.COMPLETED, run.error
    assert "the plan is refused" in (plans.errors[-1] or "")


async def test_a_planner_whose_plans_are_all_refused_fails_with_the_problems(store: Store, shard: Shard) -> None:
    async with echo(store, "plan", Plans("x", [7])), echo(store, "after"):
        run = await ended(store, await start(store, PLANNED))

    assert run.status is RunStatus.FAILED
    assert 'step "p" failed: the plan is refused: steps[0]: an object is needed, not a number' in (run.error or "")
    assert run.steps["after"].status is StepStatus.CANCELLED


async def test_a_large_plan_and_large_outputs_come_from_the_history(store: Store, shard: Shard) -> None:
    plans = Plans(steps("x", "y", description="d" * 20 * KIB))
    async with echo(store, "plan", plans), echo(store, "each"), echo(store, "after", after := Received()):
        run = await ended(store, await start(store, PLANNED, orjson.dumps(BIG)))

    assert run.status is RunStatus.COMPLETED, run.error
    assert after.inputs == [{"x": BIG, "y": BIG}]
    assert orjson.loads(bytes(await output_of(store, run, "p"))) == {"x": BIG, "y": BIG}


async def test_a_map_among_planned_steps_and_longer_ids_than_a_definition_may_have(store: Store, shard: Shard) -> None:
    long = "m" * 128
    plan = [{"id": long, "type": "map", "task": "each"}]
    async with echo(store, "plan", Plans(plan)), echo(store, "each"), echo(store, "after", after := Received()):
        run = await ended(store, await start(store, PLANNED, b"[1,2,3]"))

    assert run.status is RunStatus.COMPLETED, run.error
    assert after.inputs == [[1, 2, 3]]
    assert f"p.{long}" in run.steps


async def test_a_new_owner_goes_on_with_the_plan(store: Store, broker_settings: BrokerSettings) -> None:
    chain = [{"id": f"s{n}", "task": "each", "depends_on": [f"s{n - 1}"] if n else []} for n in range(30)]
    async with echo(store, "plan", Plans(chain)), echo(store, "each") as worker, echo(store, "after"):
        async with open_store(broker_settings, "first") as own, open_shard(own, new_member("first")):
            run_id = await start(store, PLANNED)
            await until_true(lambda: len(worker.seen) > 10)
        async with open_store(broker_settings, "second") as own, open_shard(own, new_member("second")):
            run = await ended(store, run_id, 60)

    assert run.status is RunStatus.COMPLETED, run.error
    assert [step.status for step in run.steps.values()] == [StepStatus.COMPLETED] * 32
