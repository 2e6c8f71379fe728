"""Reruns, and what is done about one step, over HTTP: forms of requests, answers and refusals."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from falcon.testing import ASGIConductor, Result
from uuid_utils import uuid4

from penstock.actors.control import run_operations
from penstock.broker.store import Store
from penstock.config.limits import PAYLOAD_BYTES_MAX
from penstock.engine.run.event_payloads import RunFailure
from penstock.engine.run.events import StepCompleted, StepFailed, StepOverridden, WorkflowFailed, decode
from penstock.engine.run.state import RunStatus
from tests.support.world import chain, register

pytestmark = pytest.mark.usefixtures("index")
NOWHERE = "0" * 32


@pytest.fixture
async def workflow(store: Store) -> str:
    """Three steps, s0 to s2, for which there are no workers."""
    name = f"w{uuid4().hex}"
    await register(store, {**chain(name), "input_schema": {"type": "integer"}})
    return name


async def failed(http: ASGIConductor, store: Store, workflow: str) -> str:
    """A run whose s0 has completed and s1 has failed. No engine lives."""
    started = await http.simulate_post("/runs", body=orjson.dumps({"workflow": workflow, "input": 1}))
    run_id = str(started.json["run_id"])
    for event in (
        StepCompleted(run_id=run_id, step_id="s0"),
        StepFailed(run_id=run_id, step_id="s1"),
        WorkflowFailed(run_id=run_id, payload=RunFailure(error="s1", step_id="s1")),
    ):
        await store.history.append(event)
    return run_id


async def post(http: ASGIConductor, path: str, body: Any = None, key: str | None = None) -> Result:
    headers = {} if key is None else {"Idempotency-Key": key}
    return await http.simulate_post(path, body=b"" if body is None else orjson.dumps(body), headers=headers)


async def test_a_rerun_says_what_it_repeats_and_a_key_gives_the_same_run(
    http: ASGIConductor, store: Store, workflow: str
) -> None:
    run_id = await failed(http, store, workflow)
    path = f"/runs/{run_id}/rerun"
    wish = {"from": "s1", "outputs": {"s0": [1]}, "input": 2, "labels": {"why": "again"}}
    first, again = await post(http, path, wish, "k"), await post(http, path, wish, "k")
    assert (201, first.json, run_id) == (first.status_code, again.json, first.json["rerun_of"])
    shown = (await http.simulate_get(f"/runs/{first.json['run_id']}")).json
    assert (run_id, "s1", 2, {"why": "again"}) == tuple(
        shown[name] for name in ("rerun_of", "rerun_from", "input", "labels")
    )
    assert {"s0": "completed", "s1": "queued", "s2": "pending"} == {
        step_id: step["status"] for step_id, step in shown["steps"].items()
    }
    assert [1] == shown["steps"]["s0"]["output"]
    plain = (await post(http, path)).json
    assert (201, False) == (again.status_code, plain["run_id"] == first.json["run_id"])
    assert "rerun_from" not in (await http.simulate_get(f"/runs/{plain['run_id']}")).json


@pytest.mark.parametrize(
    ("wish", "status", "text"),
    [
        ({"from": "nowhere"}, 400, 'has no step "nowhere"'),
        ({"from": 5}, 400, "from must be a string"),
        ({"outputs": {"s0": 1}}, 400, "outputs goes with from only"),
        ({"from": "s1", "outputs": {"s2": 1, "z": 1}}, 400, 'step "s2" is not taken over'),
        ({"from": "s1", "outputs": []}, 400, "outputs must be an object"),
        ({"from": "s1", "input": "x"}, 400, "input"),
        ({"from": "s1", "labels": {"a b": "x"}}, 400, "label"),
        ({"form": "s1"}, 400, "unknown field"),
        ({"from": "s1", "outputs": {"s0": "x" * PAYLOAD_BYTES_MAX}}, 413, "outputs.s0"),
    ],
)
async def test_a_wish_that_cannot_be_fulfilled_is_named(
    http: ASGIConductor, store: Store, workflow: str, wish: dict[str, Any], status: int, text: str
) -> None:
    run_id = await failed(http, store, workflow)
    answer = await post(http, f"/runs/{run_id}/rerun", wish)
    assert (status, True) == (answer.status_code, text in answer.text), answer.text
    assert 404 == (await post(http, f"/runs/{NOWHERE}/rerun", wish)).status_code or status in (400, 413)


async def test_a_run_that_has_not_ended_is_not_rerun(http: ASGIConductor, workflow: str) -> None:
    run_id = (await post(http, "/runs", {"workflow": workflow, "input": 1})).json["run_id"]
    answer = await post(http, f"/runs/{run_id}/rerun")
    assert (409, True) == (answer.status_code, "only one that has ended" in answer.text)


async def test_many_are_rerun_from_a_step_by_status(http: ASGIConductor, store: Store, workflow: str) -> None:
    run_ids = [await failed(http, store, workflow) for _ in range(3)]
    cancelled = (await post(http, "/runs", {"workflow": workflow, "input": 1})).json["run_id"]
    await run_operations.cancel(store, cancelled)
    wish = {"workflow_id": workflow, "from": "s1"}
    dry = await post(http, "/runs/rerun", {**wish, "dry_run": True})
    assert (run_ids, 3, True) == ([one["original_run_id"] for one in dry.json["rerun"]], dry.json["total"], True)
    first = await post(http, "/runs/rerun", wish, "k")
    again = await post(http, "/runs/rerun", wish, "k")
    assert (200, first.json, []) == (first.status_code, again.json, first.json["skipped"])
    new = [one["new_run_id"] for one in first.json["rerun"]]
    for run_id, original in zip(new, run_ids, strict=True):
        run = await run_operations.get(store, run_id)
        assert (original, "s1") == (run.rerun_of, run.rerun_from)
    other = await post(http, "/runs/rerun", {**wish, "from": "s2"}, "k")
    assert (409, True) == (other.status_code, "another filter" in other.text)
    once = await post(http, "/runs/rerun", {"workflow_id": workflow, "status": "all", "once": True})
    assert [cancelled] == [one["original_run_id"] for one in once.json["rerun"]]
    unknown = await post(http, "/runs/rerun", {"workflow_id": workflow, "from": "z", "limit": 1})
    assert ([], 1) == (unknown.json["rerun"], len(unknown.json["skipped"]))
    assert 'has no step "z"' in unknown.json["skipped"][0]["reason"]


@pytest.mark.parametrize(
    "wish",
    [{"status": "running"}, {"cursor": "x"}, {"limit": 0}, {"after": "now"}, {"workflow_id": "nobody"}, {"a": 1}],
)
async def test_a_bad_request_for_many_starts_nothing(
    http: ASGIConductor, store: Store, workflow: str, wish: dict[str, Any]
) -> None:
    await failed(http, store, workflow)
    assert 400 == (await post(http, "/runs/rerun", {"workflow_id": workflow, **wish})).status_code


async def test_a_step_is_completed_by_hand_once(http: ASGIConductor, store: Store, workflow: str) -> None:
    run_id = await failed(http, store, workflow)
    path = f"/runs/{run_id}/steps/s1/skip"
    done, again = await post(http, path, {"output": {"n": 1}}), await post(http, path)
    assert {"run_id": run_id, "step_id": "s1", "status": "completed"} == done.json
    assert (409, True) == (again.status_code, 'step "s1" has completed already' in again.text)
    shown = (await http.simulate_get(f"/runs/{run_id}")).json
    step = shown["steps"]["s1"]
    assert ("running", True, {"n": 1}, "queued") == (
        shown["status"],
        step["overridden"],
        step["output"],
        shown["steps"]["s2"]["status"],
    )
    [event] = [
        event for one in await store.history.read(run_id) if isinstance(event := decode(one.data), StepOverridden)
    ]
    assert event.payload.by is None
    for wrong, status in (("s0", 409), ("nowhere", 404)):
        assert status == (await post(http, f"/runs/{run_id}/steps/{wrong}/skip")).status_code
    assert 400 == (await post(http, f"/runs/{run_id}/steps/s2/skip", {"result": 1})).status_code
    assert 413 == (await post(http, f"/runs/{run_id}/steps/s2/skip", {"output": "x" * PAYLOAD_BYTES_MAX})).status_code
    assert 404 == (await post(http, f"/runs/{NOWHERE}/steps/s1/skip")).status_code


async def test_a_failed_run_goes_on_at_a_step_over_http(http: ASGIConductor, store: Store, workflow: str) -> None:
    run_id = await failed(http, store, workflow)
    refused = await post(http, f"/runs/{run_id}/steps/s2/retry")
    assert (409, True) == (refused.status_code, 'depends on "s1", which is failed' in refused.text)
    done = await post(http, f"/runs/{run_id}/steps/s1/retry")
    assert {"run_id": run_id, "step_id": "s1", "resumed": True} == done.json
    assert RunStatus.RUNNING is (await run_operations.get(store, run_id)).status
    again = await post(http, f"/runs/{run_id}/steps/s1/retry")
    assert (409, True) == (again.status_code, "does not wait for its next attempt: it is queued" in again.text)
    assert 404 == (await post(http, f"/runs/{run_id}/steps/z/retry")).status_code
