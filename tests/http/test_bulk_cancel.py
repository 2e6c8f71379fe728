"""Many runs cancelled by one request: exactly those that match, and each told truly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from falcon.testing import ASGIConductor, Result
from uuid_utils import uuid4

from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs.shard import Shard
from penstock.broker import names
from penstock.broker.store import Store, open_store
from penstock.config.settings import BrokerSettings
from penstock.engine.run.event_payloads import Completed
from penstock.engine.run.events import StepCompleted, WorkflowCancelled, WorkflowCompleted
from penstock.engine.validation import parse
from tests.http.conftest import ONE_STEP
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("index")

LATER = "2099-01-01T00:00:00Z"


@pytest.fixture
async def workflow(store: Store) -> str:
    """A workflow of the test's own."""
    name = f"w{uuid4().hex}"
    await store.definitions.register(parse({**ONE_STEP, "name": name}))
    return name


@pytest.fixture
async def shard(store: Store, broker_settings: BrokerSettings) -> AsyncIterator[Shard]:
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")) as opened:
        yield opened


async def test_all_that_have_not_ended_are_cancelled(http: ASGIConductor, store: Store, workflow: str) -> None:
    running, scheduled = await _start(http, workflow, 3), await _start(http, workflow, 2, run_at=LATER)
    [ended] = await _start(http, workflow, 1)
    await _complete(store, ended)
    answer = await _cancel(http, workflow_id=workflow)
    assert (200, {"cancelled", "skipped", "total", "dry_run"}) == (answer.status_code, answer.json.keys())
    assert ({*running, *scheduled}, [], 5, False) == _result(answer)
    assert {"cancelled"} == {await _status(http, run_id) for run_id in (*running, *scheduled)}
    assert "completed" == await _status(http, ended)
    assert [None, None] == [await store.reader.one(names.HISTORY, names.start_subject(run_id)) for run_id in scheduled]
    assert (set(), [], 0, False) == _result(await _cancel(http, workflow_id=workflow))


@pytest.mark.parametrize(("status", "expected"), [("running", "running"), ("pending", "scheduled")])
async def test_only_runs_in_the_wanted_status_are_cancelled(
    http: ASGIConductor, workflow: str, status: str, expected: str
) -> None:
    runs = {"running": await _start(http, workflow, 2), "scheduled": await _start(http, workflow, 2, run_at=LATER)}
    assert (set(runs.pop(expected)), [], 2, False) == _result(await _cancel(http, workflow_id=workflow, status=status))
    [(left, run_ids)] = runs.items()
    assert {left} == {await _status(http, run_id) for run_id in run_ids}


async def test_bounds_of_creation_belong_to_the_range(http: ASGIConductor, workflow: str) -> None:
    first, middle, last = [(await _start(http, workflow, 1))[0] for _ in range(3)]
    at = (await http.simulate_get(f"/runs/{middle}")).json["created_at"]
    assert ({middle}, [], 1, False) == _result(await _cancel(http, workflow_id=workflow, after=at, before=at))
    assert ({first}, [], 1, False) == _result(await _cancel(http, workflow_id=workflow, before=at))
    assert ({last}, [], 1, False) == _result(await _cancel(http, workflow_id=workflow, after=at))


async def test_other_workflows_are_left_alone(http: ASGIConductor, workflow: str) -> None:
    [other] = await _start(http, "one", 1)
    await _start(http, workflow, 1)
    await _cancel(http, workflow_id=workflow)
    assert "running" == await _status(http, other)


async def test_a_dry_run_lists_what_matches_and_changes_nothing(
    http: ASGIConductor, store: Store, workflow: str
) -> None:
    run_ids = await _start(http, workflow, 3)
    before = await store.history.last_seq()
    assert (set(run_ids), [], 3, True) == _result(await _cancel(http, workflow_id=workflow, dry_run=True))
    assert before == await store.history.last_seq()


async def test_a_run_that_ends_meanwhile_is_listed_as_skipped(http: ASGIConductor, store: Store, workflow: str) -> None:
    """They end one after the other while they are cancelled: each answer is what the run's log says."""
    run_ids = await _start(http, workflow, 200)

    async def complete() -> None:
        for run_id in run_ids[:150]:
            await _complete(store, run_id)

    completing = asyncio.create_task(complete())
    await until(lambda: _ended(store, run_ids[20]))
    cancelled, skipped, total, _ = _result(await _cancel(http, workflow_id=workflow))
    await completing
    assert total == len(cancelled) + len(skipped)
    for run_id in run_ids:
        told = run_id in cancelled
        assert ("cancelled" if told else "completed") == await _status(http, run_id)
    assert {"it is completed"} >= {one["reason"] for one in skipped}
    assert run_ids[-1] in cancelled


async def test_a_cancellation_a_moment_ago_does_not_keep_the_others_from_it(
    http: ASGIConductor, store: Store, workflow: str
) -> None:
    """The broker refuses a whole batch for one message id that it has just seen."""
    run_ids = await _start(http, workflow, 3)
    early = WorkflowCancelled(run_id=run_ids[0])
    await store.history.append(early)
    await store.history.cancel_all([WorkflowCancelled(run_id=run_id) for run_id in run_ids])
    assert {"cancelled"} == {await _status(http, run_id) for run_id in run_ids}


async def test_a_thousand_runs_are_cancelled_at_once_and_one_more_is_too_many(
    http: ASGIConductor, store: Store, shard: Shard, workflow: str
) -> None:
    body = {"workflow_id": workflow, "inputs": [None] * 1000}
    run_ids = (await http.simulate_post("/runs/bulk", body=orjson.dumps(body))).json["run_ids"]
    [extra] = await _start(http, workflow, 1)
    await until(lambda: _all_tasks(store, run_ids))
    before = await store.history.last_seq()
    answer = await _cancel(http, workflow_id=workflow)
    assert (
        400,
        "more than 1000 runs match, 1000 is the most: narrow after and before, or take them in parts, "
        "with limit and cursor\n",
    ) == (answer.status_code, answer.text)
    assert before == await store.history.last_seq()
    await http.simulate_post(f"/runs/{extra}/cancel")
    cancelled, skipped, total, _ = _result(await _cancel(http, workflow_id=workflow))
    assert (set(run_ids), [], 1000) == (cancelled, skipped, total)
    await until(lambda: _no_tasks(store, run_ids))  # the engine takes back what was queued


async def test_more_than_a_thousand_are_cancelled_in_parts(http: ASGIConductor, workflow: str) -> None:
    """1,200 runs of two instants: no bound of time cuts parts out of them."""
    run_ids: set[str] = set()
    for count in (1000, 200):
        body = orjson.dumps({"workflow_id": workflow, "inputs": [None] * count})
        run_ids |= set((await http.simulate_post("/runs/bulk", body=body)).json["run_ids"])
    dry = (await _cancel(http, workflow_id=workflow, limit=1000, dry_run=True)).json
    assert (1000, 200) == (dry["total"], dry["remaining"])
    cursor: dict[str, str] = {}
    parts = []
    while not parts or "next" in parts[-1]:
        parts.append((await _cancel(http, workflow_id=workflow, limit=500, **cursor)).json)
        cursor = {"cursor": parts[-1].get("next", "")}
    assert [(500, 700), (500, 200), (200, 0)] == [(part["total"], part["remaining"]) for part in parts]
    assert dry["cancelled"] == [*parts[0]["cancelled"], *parts[1]["cancelled"]]
    assert run_ids == {run_id for part in parts for run_id in part["cancelled"]}
    assert {"cancelled"} == {await _status(http, run_id) for run_id in [*run_ids][:20]}


BAD: dict[str, dict[str, Any]] = {
    "no condition: give at least one of workflow_id, ": {},
    "workflow_id must be a string, not a number": {"workflow_id": 1},
    '"nobody"': {"workflow_id": "nobody"},
    'workflow "a b"': {"workflow_id": "a b"},
    "status must be one of running pending all": {"workflow_id": "one", "status": "completed"},
    "status must be a string": {"workflow_id": "one", "status": 1},
    "limit must be a whole number from 1 to 1000, not 0": {"workflow_id": "one", "limit": 0},
    "limit must be a whole number from 1 to 1000, not 1001": {"workflow_id": "one", "limit": 1001},
    "cursor goes with limit only": {"workflow_id": "one", "cursor": "1.a"},
    'cursor "x"': {"workflow_id": "one", "limit": 1, "cursor": "x"},
    "after must be a time": {"workflow_id": "one", "after": "yesterday"},
    "before must be a time": {"workflow_id": "one", "before": "2001-01-01"},
    "dry_run must be true or false": {"workflow_id": "one", "dry_run": "yes"},
    'unknown field "reason"': {"workflow_id": "one", "reason": "x"},
}


@pytest.mark.parametrize("told", BAD)
async def test_a_bad_request_is_named_and_cancels_nothing(http: ASGIConductor, store: Store, told: str) -> None:
    before = await store.history.last_seq()
    answer = await http.simulate_post("/runs/cancel", body=orjson.dumps(BAD[told]))
    assert 400 == answer.status_code
    assert told in answer.text
    assert before == await store.history.last_seq()


async def test_all_that_is_wrong_is_named_at_once(http: ASGIConductor) -> None:
    answer = await _cancel(http, workflow_id="one", status="x", after="y", before="z")
    assert ["status", "after", "before"] == [line.split()[0] for line in answer.text.splitlines()]


async def _cancel(http: ASGIConductor, **request: Any) -> Result:
    return await http.simulate_post("/runs/cancel", body=orjson.dumps(request))


def _result(answer: Result) -> tuple[set[str], list[dict[str, str]], int, bool]:
    found = answer.json
    assert len(found["cancelled"]) == len(set(found["cancelled"]))
    return set(found["cancelled"]), found["skipped"], found["total"], found["dry_run"]


async def _start(http: ASGIConductor, workflow: str, count: int, **more: Any) -> list[str]:
    request = orjson.dumps({"workflow": workflow, **more})
    return [(await http.simulate_post("/runs", body=request)).json["run_id"] for _ in range(count)]


async def _status(http: ASGIConductor, run_id: str) -> str:
    return str((await http.simulate_get(f"/runs/{run_id}")).json["status"])


async def _complete(store: Store, run_id: str) -> None:
    at = datetime.now(UTC).isoformat()
    await store.history.append(StepCompleted(run_id=run_id, step_id="a", timestamp=at))
    await store.history.append(WorkflowCompleted(run_id=run_id, timestamp=at, payload=Completed()))


async def _ended(store: Store, run_id: str) -> bool:
    return len(await store.history.read(run_id)) > 2


async def _no_tasks(store: Store, run_ids: list[str]) -> bool:
    return not await store.reader.last(names.TASKS, [names.task_subject("work", run_id) for run_id in run_ids])


async def _all_tasks(store: Store, run_ids: list[str]) -> bool:
    return len(run_ids) == len(
        await store.reader.last(names.TASKS, [names.task_subject("work", run_id) for run_id in run_ids])
    )
