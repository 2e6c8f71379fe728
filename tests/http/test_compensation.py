"""Compensation over HTTP: runs that undo their steps, as those who cancel, list, call and retry them see them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from falcon.testing import ASGIConductor

from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs.shard import Shard
from penstock.broker.store import Store, open_store
from penstock.broker.worker_messages import TaskPayload
from penstock.config.settings import BrokerSettings
from penstock.engine.validation import parse
from tests.support.waiting import until
from tests.support.world import Echo, echo

pytestmark = pytest.mark.usefixtures("index", "shard")


@pytest.fixture
async def shard(store: Store, broker_settings: BrokerSettings) -> AsyncIterator[Shard]:
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")) as opened:
        yield opened


@pytest.fixture
async def workflow(store: Store) -> str:
    """Charge, then ship; the charge can be undone. Its task types begin with its name."""
    name = f"w{uuid4().hex}"
    charge = {"id": "charge", "task": f"{name}.charge", "compensate": {"task": f"{name}.refund"}}
    ship = {"id": "ship", "task": f"{name}.ship", "depends_on": ["charge"]}
    await store.definitions.register(parse({"name": name, "steps": [charge, ship]}))
    return name


async def broken(worker: Echo, task: TaskPayload) -> None:
    await worker.fail(task, "no lorry", "non_retriable")


async def start(http: ASGIConductor, workflow: str) -> str:
    answer = await http.simulate_post("/runs", json={"workflow": workflow, "input": 7})
    return str(answer.json["run_id"])


async def get(http: ASGIConductor, run_id: str, query: str = "") -> Any:
    return (await http.simulate_get(f"/runs/{run_id}?{query}")).json


async def charged(http: ASGIConductor, store: Store, workflow: str, count: int = 1) -> list[str]:
    """Runs that have charged, and wait for a worker that ships."""
    async with echo(store, f"{workflow}.charge"):
        run_ids = [await start(http, workflow) for _ in range(count)]
        for run_id in run_ids:
            await until(lambda run_id=run_id: _is_queued(http, run_id))
    return run_ids


async def _is_queued(http: ASGIConductor, run_id: str) -> bool:
    return bool((await get(http, run_id))["steps"]["ship"]["status"] == "queued")


async def listed(http: ASGIConductor, workflow: str, status: str) -> list[str]:
    found = await http.simulate_get(f"/runs?workflow={workflow}&status={status}")
    return [run["run_id"] for run in found.json]


async def failed(http: ASGIConductor, store: Store, workflow: str) -> str:
    """A run that has failed, and was undone."""
    async with echo(store, f"{workflow}.charge"), echo(store, f"{workflow}.ship", broken):
        run_id = await start(http, workflow)
        async with echo(store, f"{workflow}.refund"):
            assert (await get(http, run_id, "wait_ms=20000"))["status"] == "failed"
    return run_id


async def test_a_run_is_compensating_until_its_steps_are_undone(
    http: ASGIConductor, store: Store, workflow: str
) -> None:
    [run_id] = await charged(http, store, workflow)

    answer = await http.simulate_post(f"/runs/{run_id}/cancel", json={"reason": "enough", "compensate": True})

    assert (200, {"run_id": run_id, "status": "compensating"}) == (answer.status_code, answer.json)
    again = await http.simulate_post(f"/runs/{run_id}/cancel", json={"compensate": True})
    assert (409, f"run {run_id} is compensating already\n") == (again.status_code, again.text)
    seen = await get(http, run_id, "wait_ms=100")
    assert ("compensating", "enough", None) == (seen["status"], seen["error"], seen.get("compensation"))
    assert ("queued", "charge") == tuple(seen["steps"]["charge.compensate"][key] for key in ("status", "handles"))
    await until(lambda: _lists(http, workflow, "compensating", run_id))
    async with echo(store, f"{workflow}.refund"):
        done = await get(http, run_id, "wait_ms=20000")
    assert ("cancelled", "completed") == (done["status"], done["compensation"])
    await until(lambda: _lists(http, workflow, "cancelled", run_id))
    assert [] == await listed(http, workflow, "compensating")
    assert 200 == (await http.simulate_post(f"/runs/{run_id}/cancel")).status_code


async def _lists(http: ASGIConductor, workflow: str, status: str, run_id: str) -> bool:
    return await listed(http, workflow, status) == [run_id]


async def test_the_history_says_what_is_undone_and_why(http: ASGIConductor, store: Store, workflow: str) -> None:
    run_id = await failed(http, store, workflow)

    *_, failure, begun, _, _, end = (await http.simulate_get(f"/runs/{run_id}/events")).json

    error = 'step "ship" failed: no lorry'
    assert ("step.failed", "workflow.compensating") == (failure["type"], begun["type"])
    assert {"error": error, "steps": ["charge"]} == begun["payload"]
    assert ("workflow.failed", "completed") == (end["type"], end["payload"]["compensation"])


async def test_a_stream_of_events_goes_on_until_the_steps_are_undone(
    http: ASGIConductor, store: Store, workflow: str, served: str
) -> None:
    [run_id] = await charged(http, store, workflow)
    await http.simulate_post(f"/runs/{run_id}/cancel", json={"compensate": True})
    kinds = list[str]()

    async with (
        httpx2.AsyncClient(base_url=served, trust_env=False, timeout=20) as client,
        client.stream("GET", f"/runs/{run_id}/events", headers={"Accept": "text/event-stream"}) as answer,
        AsyncExitStack() as workers,
    ):
        async for line in answer.aiter_lines():
            if line.startswith("event: "):
                kinds.append(line.removeprefix("event: "))
            if line == "event: workflow.compensating":  # it was cancelled before, and goes on all the same
                await workers.enter_async_context(echo(store, f"{workflow}.refund"))

    of_the_run = [kind for kind in kinds if kind.startswith("workflow.")]
    assert ["workflow.started", "workflow.cancelled", "workflow.compensating", "workflow.cancelled"] == of_the_run
    assert ["workflow.compensating", "step.started", "step.completed", "workflow.cancelled"] == kinds[-4:]


async def test_without_anything_to_undo_it_is_cancelled_at_once(http: ASGIConductor, workflow: str) -> None:
    run_id = await start(http, workflow)

    answer = await http.simulate_post(f"/runs/{run_id}/cancel", json={"compensate": True})

    assert {"run_id": run_id, "status": "cancelled"} == answer.json
    assert "compensation" not in await get(http, run_id)


async def test_many_are_cancelled_with_compensation(http: ASGIConductor, store: Store, workflow: str) -> None:
    run_ids = await charged(http, store, workflow, 2)
    fresh = await start(http, workflow)

    answer = await http.simulate_post("/runs/cancel", json={"workflow_id": workflow, "compensate": True})

    assert ({*run_ids, fresh}, [], 3) == ({*answer.json["cancelled"]}, answer.json["skipped"], answer.json["total"])
    async with echo(store, f"{workflow}.refund") as refunds:
        for run_id in run_ids:
            done = await get(http, run_id, "wait_ms=20000")
            assert ("cancelled", "completed") == (done["status"], done["compensation"])
    assert {f"{run_id}.charge.compensate": 1 for run_id in run_ids} == dict(refunds.seen)
    assert "compensation" not in await get(http, fresh)


async def test_a_call_is_answered_when_the_steps_are_undone(http: ASGIConductor, store: Store, workflow: str) -> None:
    async with echo(store, f"{workflow}.charge"), echo(store, f"{workflow}.ship", broken):
        call = asyncio.create_task(http.simulate_post(f"/workflows/{workflow}/call?timeout_ms=20000", body=b"7"))
        [run_id] = await until(lambda: _compensating(http, workflow))
        assert not call.done()
        async with echo(store, f"{workflow}.refund"):
            answer = await call

    assert (502, 'step "ship" failed: no lorry\n') == (answer.status_code, answer.text)
    assert ("failed", f"/runs/{run_id}") == (answer.headers["penstock-outcome"], answer.headers["location"])


async def _compensating(http: ASGIConductor, workflow: str) -> list[str]:
    return await listed(http, workflow, "compensating")


async def test_it_is_not_replayed_and_a_rerun_starts_afresh(http: ASGIConductor, store: Store, workflow: str) -> None:
    run_id = await failed(http, store, workflow)
    refusal = f"run {run_id} has undone its steps, so it cannot be resumed: rerun it"

    replay = await http.simulate_post(f"/runs/{run_id}/retry")
    [letter] = (await http.simulate_get(f"/dead-letters?run={run_id}")).json
    by_letter = await http.simulate_post(f"/dead-letters/{letter['seq']}/replay")
    many = await http.simulate_post("/runs/retry", json={"workflow_id": workflow, "mode": "replay"})

    assert (409, f"{refusal}\n") == (replay.status_code, replay.text)
    assert (409, f"{refusal}\n") == (by_letter.status_code, by_letter.text)
    assert ([], [{"run_id": run_id, "reason": refusal}]) == (many.json["retried"], many.json["skipped"])
    again = await http.simulate_post(f"/runs/{run_id}/retry", json={"mode": "rerun"})
    fresh = await get(http, again.json["new_run_id"])
    assert ("running", run_id) == (fresh["status"], fresh["rerun_of"])
    assert "charge.compensate" not in fresh["steps"]


@pytest.mark.parametrize("body", [{"compensate": "yes"}, {"compensate": 1}, {"compensation": True}])
async def test_a_bad_request_cancels_nothing(http: ASGIConductor, workflow: str, body: dict[str, Any]) -> None:
    run_id = await start(http, workflow)

    answers = [
        await http.simulate_post(f"/runs/{run_id}/cancel", json=body),
        await http.simulate_post("/runs/cancel", json={"workflow_id": workflow, **body}),
    ]

    assert [400, 400] == [answer.status_code for answer in answers]
    assert all("compensat" in answer.text for answer in answers)
    assert "running" == (await get(http, run_id))["status"]


async def test_every_problem_of_a_compensation_is_named(http: ASGIConductor) -> None:
    bad = {"task": "", "timeout": "soon", "undo": 1}
    steps = [{"id": "a", "task": "t", "compensate": bad}, {"id": "a.compensate", "task": "t"}]

    answer = await http.simulate_post("/workflows", json={"name": "bad", "steps": steps})

    assert 400 == answer.status_code
    for part in ('step "a": compensate: task', 'step "a": compensate: timeout', "undo", '"a.compensate" has the id'):
        assert part in answer.text
