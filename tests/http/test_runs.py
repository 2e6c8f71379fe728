from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from falcon.testing import ASGIConductor, Result
from msgspec import Raw

from penstock.actors.control.run_operations import now
from penstock.actors.control.watch import wait_for_end
from penstock.broker.store import Store
from penstock.engine.errors import NotFound
from penstock.engine.run.event_payloads import Completed, Failure, RunFailure
from penstock.engine.run.events import (
    StepCompleted,
    StepFailed,
    StepStarted,
    WorkflowCancelled,
    WorkflowCompleted,
    WorkflowFailed,
)


async def test_a_started_run_is_there_at_once_with_all_its_steps(http: ASGIConductor) -> None:
    answer = await _start(http, {"workflow": "two", "input": {"n": 1}})
    assert 201 == answer.status_code
    assert {"run_id", "warnings"} == answer.json.keys(), "no worker serves it"
    run = (await http.simulate_get(f"/runs/{answer.json['run_id']}")).json
    assert (answer.json["run_id"], "two", "1", {"n": 1}) == (
        run["run_id"],
        run["workflow_id"],
        run["version"],
        run["input"],
    )
    assert {"a", "b"} == run["steps"].keys()
    assert {"status": "pending", "attempts": 0} == run["steps"]["b"]


async def test_what_only_the_engine_needs_is_not_shown(http: ASGIConductor) -> None:
    run_id = await _started(http, "one")
    run = (await http.simulate_get(f"/runs/{run_id}")).json
    assert {"run_id", "workflow_id", "version", "status", "created_at", "input", "steps", "started_at"} == run.keys()
    assert run["input"] is None


async def test_a_finished_run_shows_output_times_and_worker(http: ASGIConductor, store: Store) -> None:
    run_id = await _started(http, "one")
    await _complete(store, run_id, b'{ "big" : 12345678901234567890123 }')
    run = (await http.simulate_get(f"/runs/{run_id}")).json
    step = run["steps"]["a"]
    assert ("completed", "completed", 1, "w1") == (run["status"], step["status"], step["attempts"], step["worker_id"])
    assert {"big": 12345678901234567890123} == step["output"]
    assert run["finished_at"] >= run["started_at"]
    assert "error" not in run


async def test_a_failed_run_shows_its_error(http: ASGIConductor, store: Store) -> None:
    run_id = await _started(http, "one")
    await store.history.append(
        StepFailed(
            run_id=run_id, step_id="a", timestamp=now(), attempt_number=1, payload=Failure("no paper", "non_retriable")
        )
    )
    await store.history.append(
        WorkflowFailed(run_id=run_id, timestamp=now(), payload=RunFailure("step a: no paper", "a"))
    )
    run = (await http.simulate_get(f"/runs/{run_id}")).json
    assert ("failed", "failed", "no paper") == (run["status"], run["steps"]["a"]["status"], run["steps"]["a"]["error"])
    assert "no paper" in run["error"]


@pytest.mark.parametrize("value", [b"null", b"0", b'"text"', b"[1, 2]", b'{"a":{"b":[]}}', b"1e300", '"ü"'.encode()])
async def test_any_json_is_an_input(http: ASGIConductor, value: bytes) -> None:
    answer = await http.simulate_post("/runs", body=b'{"workflow":"one","input":' + value + b"}")
    run = (await http.simulate_get(f"/runs/{answer.json['run_id']}")).json
    assert orjson.loads(value) == run["input"]


async def test_an_input_is_checked_against_the_schema_and_all_problems_are_named(http: ASGIConductor) -> None:
    answer = await _start(http, {"workflow": "typed", "input": {"n": "one", "x": 1}})
    assert 400 == answer.status_code
    assert 2 == len(answer.text.strip().splitlines())
    assert "input.n" in answer.text
    assert 201 == (await _start(http, {"workflow": "typed", "input": {"n": 1}})).status_code
    assert "input" in (await _start(http, {"workflow": "typed"})).text


@pytest.mark.parametrize("run_at", ["2001-01-01T00:00:00Z", "2001-01-01T00:00:00.5+02:00", None])
async def test_a_time_that_is_over_starts_the_run_now(http: ASGIConductor, run_at: str | None) -> None:
    assert 201 == (await _start(http, {"workflow": "one", "run_at": run_at})).status_code


@pytest.mark.parametrize("run_at", ["tomorrow", "2001-01-01", "2001-01-01T00:00:00", "2001-13-01T00:00:00Z", ""])
async def test_a_time_that_is_none_is_refused(http: ASGIConductor, run_at: str) -> None:
    answer = await _start(http, {"workflow": "one", "run_at": run_at})
    assert 400 == answer.status_code
    assert "run_at" in answer.text


async def test_the_same_key_and_workflow_give_the_same_run_for_ever(http: ASGIConductor, store: Store) -> None:
    first = await _start(http, {"workflow": "one", "input": 1}, {"Idempotency-Key": "order 17"})
    await _complete(store, first.json["run_id"], b"1")
    again = await _start(http, {"workflow": "one", "input": 2}, {"Idempotency-Key": "order 17"})
    other = await _start(http, {"workflow": "two", "input": 1}, {"Idempotency-Key": "order 17"})
    assert (201, first.json) == (again.status_code, again.json)
    assert first.json != other.json
    run = (await http.simulate_get(f"/runs/{first.json['run_id']}")).json
    assert (1, "completed") == (run["input"], run["status"])


@pytest.mark.parametrize("key", ["", "k" * 256, "\t", "ü"])
async def test_a_key_that_is_none_is_refused(http: ASGIConductor, key: str) -> None:
    answer = await _start(http, {"workflow": "one"}, {"Idempotency-Key": key})
    assert 400 == answer.status_code
    assert "Idempotency-Key" in answer.text


async def test_cancel_is_answered_alike_the_second_time(http: ASGIConductor) -> None:
    run_id = await _started(http, "two")
    for _ in range(2):
        answer = await http.simulate_post(f"/runs/{run_id}/cancel")
        assert (200, {"status": "cancelled", "run_id": run_id}) == (answer.status_code, answer.json)
    run = (await http.simulate_get(f"/runs/{run_id}")).json
    assert ("cancelled", "cancelled") == (run["status"], run["steps"]["b"]["status"])


async def test_the_reason_of_a_cancel_is_in_the_history(http: ASGIConductor) -> None:
    run_id = await _started(http, "one")
    await http.simulate_post(f"/runs/{run_id}/cancel", body=b'{"reason":"no longer needed"}')
    event = (await http.simulate_get(f"/runs/{run_id}/events")).json[-1]
    assert ("workflow.cancelled", {"reason": "no longer needed"}) == (event["type"], event["payload"])


async def test_a_run_that_has_ended_cannot_be_cancelled(http: ASGIConductor, store: Store) -> None:
    run_id = await _started(http, "one")
    await _complete(store, run_id, b"1")
    answer = await http.simulate_post(f"/runs/{run_id}/cancel")
    assert 409 == answer.status_code
    assert "completed" in answer.text


@pytest.mark.parametrize("run_id", ["0" * 32, "xyz", "F" * 32, "..", "%00", "a%0Ab", "*", ">"])
@pytest.mark.parametrize(("method", "tail"), [("GET", ""), ("POST", "/cancel"), ("GET", "/events")])
async def test_what_is_no_run_is_not_found(http: ASGIConductor, method: str, tail: str, run_id: str) -> None:
    answer = await http.simulate_request(method, f"/runs/{run_id}{tail}")
    assert 404 == answer.status_code
    assert answer.text.strip().isprintable()


async def _start(http: ASGIConductor, request: dict[str, Any], headers: dict[str, str] | None = None) -> Result:
    return await http.simulate_post("/runs", body=orjson.dumps(request), headers=headers)


async def _started(http: ASGIConductor, workflow: str) -> str:
    run_id = (await _start(http, {"workflow": workflow})).json["run_id"]
    assert isinstance(run_id, str)
    return run_id


async def _complete(store: Store, run_id: str, output: bytes) -> None:
    """What a worker and the engine write for a run of one step."""
    await store.history.append(
        StepStarted(run_id=run_id, step_id="a", timestamp=now(), worker_id="w1", attempt_number=1)
    )
    await store.history.append(
        StepCompleted(
            run_id=run_id, step_id="a", timestamp=now(), worker_id="w1", attempt_number=1, payload=Raw(output)
        )
    )
    await store.history.append(WorkflowCompleted(run_id=run_id, timestamp=now(), payload=Completed(Raw(output))))


async def test_waiting_is_answered_when_the_run_has_ended(http: ASGIConductor, store: Store) -> None:
    run_id = await _started(http, "one")
    waiting = asyncio.create_task(http.simulate_get(f"/runs/{run_id}?wait_ms=20000"))
    await store.history.append(WorkflowCancelled(run_id=run_id, timestamp=now()))
    assert "cancelled" == (await waiting).json["status"]


async def test_waiting_ends_with_its_time_and_shows_the_run_as_it_is(http: ASGIConductor) -> None:
    run_id = await _started(http, "one")
    assert "running" == (await http.simulate_get(f"/runs/{run_id}?wait_ms=50")).json["status"]


async def test_waiting_for_a_run_that_nobody_started_is_404_at_once(http: ASGIConductor) -> None:
    assert 404 == (await http.simulate_get(f"/runs/{'0' * 32}?wait_ms=20000")).status_code


async def test_a_wait_that_is_over_before_the_run_is_read_shows_it_all_the_same(
    http: ASGIConductor, store: Store
) -> None:
    run_id = await _started(http, "one")
    assert "running" == (await wait_for_end(store, run_id, asyncio.timeout(0))).status
    with pytest.raises(NotFound):
        await wait_for_end(store, "0" * 32, asyncio.timeout(0))


@pytest.mark.parametrize("wait", ["x", "-1", "60001", "1.5", ""])
async def test_wait_that_is_no_time_is_refused(http: ASGIConductor, wait: str) -> None:
    answer = await http.simulate_get(f"/runs/{'0' * 32}?wait_ms={wait}")
    assert 400 == answer.status_code
    assert "wait_ms" in answer.text
