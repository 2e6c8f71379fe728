"""Runs that are paused and resumed by requests."""

from __future__ import annotations

import orjson
import pytest
from falcon.testing import ASGIConductor, Result
from msgspec import Raw

from penstock.actors.control.run_operations import now
from penstock.broker.store import Store
from penstock.engine.run.event_payloads import ApprovalRequest
from penstock.engine.run.events import ApprovalRequested, StepCompleted, WorkflowCompleted
from penstock.engine.validation import parse
from tests.http.conftest import ONE_STEP

UNKNOWN = "0198c0de" * 4


async def test_a_paused_run_keeps_its_status_and_shows_since_when(http: ASGIConductor) -> None:
    run_id = await _started(http)

    paused = await http.simulate_post(f"/runs/{run_id}/pause")

    run = (await http.simulate_get(f"/runs/{run_id}")).json
    assert (200, {"run_id": run_id, "status": "running", "paused_at": run["paused_at"]}) == (
        paused.status_code,
        paused.json,
    )
    assert ("running", True) == (run["status"], run["paused_at"] >= run["started_at"])
    resumed = await http.simulate_post(f"/runs/{run_id}/resume")
    assert (200, {"run_id": run_id, "status": "running"}) == (resumed.status_code, resumed.json)
    assert "paused_at" not in (await http.simulate_get(f"/runs/{run_id}")).json


async def test_pausing_and_resuming_twice_is_answered_alike_and_appends_nothing(http: ASGIConductor) -> None:
    run_id = await _started(http)
    for verb in ("pause", "resume"):
        answers = [await http.simulate_post(f"/runs/{run_id}/{verb}") for _ in range(2)]
        assert (200, answers[0].json) == (answers[1].status_code, answers[1].json)
    events = (await http.simulate_get(f"/runs/{run_id}/events")).json
    assert ["workflow.started", "workflow.paused", "workflow.unpaused"] == [event["type"] for event in events]


async def test_resuming_a_run_that_is_not_paused_is_nothing_to_do(http: ASGIConductor) -> None:
    run_id = await _started(http)
    assert (200, "running") == _told(await http.simulate_post(f"/runs/{run_id}/resume"))
    assert 1 == len((await http.simulate_get(f"/runs/{run_id}/events")).json)


async def test_a_scheduled_run_is_paused_too(http: ASGIConductor) -> None:
    body = b'{"workflow":"one","run_at":"2099-01-01T00:00:00Z"}'
    run_id = (await http.simulate_post("/runs", body=body)).json["run_id"]
    assert (200, "scheduled") == _told(await http.simulate_post(f"/runs/{run_id}/pause"))
    assert (200, "scheduled") == _told(await http.simulate_post(f"/runs/{run_id}/resume"))


async def test_the_request_may_say_that_children_are_paused_too(http: ASGIConductor) -> None:
    run_id = await _started(http)
    assert 200 == (await http.simulate_post(f"/runs/{run_id}/pause", body=b'{"children":true}')).status_code
    last = (await http.simulate_get(f"/runs/{run_id}/events")).json[-1]
    assert ("workflow.paused", {"children": True}) == (last["type"], last["payload"])


@pytest.mark.parametrize("verb", ["pause", "resume"])
async def test_an_ended_run_is_a_conflict_that_names_its_status(http: ASGIConductor, store: Store, verb: str) -> None:
    run_id = await _started(http)
    await store.history.append(StepCompleted(run_id=run_id, step_id="a", attempt_number=1, payload=Raw(b"1")))
    await store.history.append(WorkflowCompleted(run_id=run_id))
    answer = await http.simulate_post(f"/runs/{run_id}/{verb}")
    assert (409, f"run {run_id} is completed already") == (answer.status_code, answer.text.strip())


@pytest.mark.parametrize("verb", ["pause", "resume"])
async def test_an_unknown_run_is_not_found(http: ASGIConductor, verb: str) -> None:
    answer = await http.simulate_post(f"/runs/{UNKNOWN}/{verb}")
    assert (404, True) == (answer.status_code, UNKNOWN in answer.text)


@pytest.mark.parametrize("verb", ["pause", "resume"])
@pytest.mark.parametrize("body", [b"[]", b'{"children":1}', b'{"child":true}', b"{"])
async def test_a_bad_body_changes_nothing(http: ASGIConductor, verb: str, body: bytes) -> None:
    run_id = await _started(http)
    answer = await http.simulate_post(f"/runs/{run_id}/{verb}", body=body)
    assert (400, 1) == (answer.status_code, len((await http.simulate_get(f"/runs/{run_id}/events")).json))


@pytest.mark.usefixtures("index")
async def test_many_runs_are_paused_and_resumed_by_a_filter(http: ASGIConductor, store: Store) -> None:
    await store.definitions.register(parse({**ONE_STEP, "name": "held"}))
    run_ids = {await _started(http, "held") for _ in range(3)}
    other = await _started(http)
    paused = (await _many(http, "pause", workflow_id="held")).json
    assert (run_ids, [], 3, False) == (set(paused["paused"]), paused["skipped"], paused["total"], paused["dry_run"])
    assert "paused_at" not in (await http.simulate_get(f"/runs/{other}")).json
    [first, *others] = paused["paused"]
    await http.simulate_post(f"/runs/{first}/resume")
    resumed = (await _many(http, "resume", workflow_id="held")).json
    assert (others, 3) == (resumed["resumed"], resumed["total"])
    assert [{"run_id": first, "reason": "it is not paused"}] == resumed["skipped"]


@pytest.mark.usefixtures("index")
async def test_a_dry_run_lists_what_matches_and_changes_nothing(http: ASGIConductor, store: Store) -> None:
    await store.definitions.register(parse({**ONE_STEP, "name": "dry"}))
    run_id = await _started(http, "dry")
    assert [run_id] == (await _many(http, "pause", workflow_id="dry", dry_run=True)).json["paused"]
    assert "paused_at" not in (await http.simulate_get(f"/runs/{run_id}")).json
    await http.simulate_post(f"/runs/{run_id}/pause")
    assert [run_id] == (await _many(http, "resume", workflow_id="dry", dry_run=True)).json["resumed"]
    assert "paused_at" in (await http.simulate_get(f"/runs/{run_id}")).json


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize("verb", ["pause", "resume"])
async def test_a_bad_request_for_many_runs_is_named(http: ASGIConductor, verb: str) -> None:
    unknown = await _many(http, verb, workflow_id="nope")
    assert (400, True) == (unknown.status_code, "nope" in unknown.text)
    wrong = await _many(http, verb, workflow_id="one", status="failed", cursor="1.x", after="yesterday")
    assert 400 == wrong.status_code
    assert all(name in wrong.text for name in ("status", "cursor", "after"))


async def test_an_approval_is_decided_once_also_while_its_run_is_paused(http: ASGIConductor, store: Store) -> None:
    await store.definitions.register(parse({"name": "asked", "steps": [{"id": "ok", "type": "approval"}]}))
    run_id = await _started(http, "asked")
    request = ApprovalRequest(token="secret", expires_at="2099-01-01T00:00:00Z")
    asked = ApprovalRequested(run_id=run_id, step_id="ok", attempt_number=1, timestamp=now(), payload=request)
    await store.history.append(asked)
    await http.simulate_post(f"/runs/{run_id}/pause")
    decision = f"/runs/{run_id}/approval/ok?action=approve&token=secret"

    assert [200, 409] == [(await http.simulate_post(decision)).status_code for _ in range(2)]
    assert 409 == (await http.simulate_post(f"/approvals/{run_id}/ok", body=b'{"action":"reject"}')).status_code
    assert "running" == (await http.simulate_get(f"/runs/{run_id}")).json["steps"]["ok"]["status"]
    await http.simulate_post(f"/runs/{run_id}/resume")
    assert "completed" == (await http.simulate_get(f"/runs/{run_id}")).json["steps"]["ok"]["status"]


async def _many(http: ASGIConductor, verb: str, **body: object) -> Result:
    return await http.simulate_post(f"/runs/{verb}", body=orjson.dumps(body))


async def _started(http: ASGIConductor, workflow: str = "one") -> str:
    answer = await http.simulate_post("/runs", body=orjson.dumps({"workflow": workflow}))
    return str(answer.json["run_id"])


def _told(answer: Result) -> tuple[int, str]:
    return answer.status_code, answer.json["status"]
