"""The elements of a map over HTTP, read from the events that the state names."""

from __future__ import annotations

import orjson
from falcon.testing import ASGIConductor
from msgspec import Raw

from penstock.broker.store import Store
from penstock.engine.run.event_payloads import Failure, StepFacts
from penstock.engine.run.events import StepCompleted, StepFailed, StepStarted
from penstock.engine.run.execution.children import child_run_id
from penstock.engine.validation import parse

MAP = {"id": "m", "type": "map", "config": {"on_item_failure": "continue"}}
BIG = "x" * 5000


async def _begun(http: ASGIConductor, store: Store, name: str, elements: int, **fields: object) -> str:
    config = {**MAP["config"], **fields.pop("config", {})}  # type: ignore[dict-item]
    await store.definitions.register(parse({"name": name, "steps": [{**MAP, **fields, "config": config}]}))
    body = orjson.dumps({"workflow": name, "input": list(range(elements))})
    run_id: str = (await http.simulate_post("/runs", body=body)).json["run_id"]
    facts = StepFacts(items=elements)
    await store.history.append(StepStarted(run_id=run_id, step_id="m", attempt_number=1, payload=facts))
    return run_id


async def test_the_elements_of_a_map_are_listed(http: ASGIConductor, store: Store) -> None:
    run_id = await _begun(http, store, "mapped", 4, task="t")
    at = "2026-01-02T03:04:05Z"
    one = {"run_id": run_id, "attempt_number": 1, "timestamp": at}
    for number in range(3):
        await store.history.append(StepStarted(**one, step_id=f"m.{number}", worker_id="w", item=number))
    await store.history.append(StepCompleted(**one, step_id="m.0", payload=Raw(b'{"x":1}')))
    await store.history.append(StepFailed(**one, step_id="m.1", payload=Failure("boom", "non_retriable")))
    await store.history.append(StepCompleted(**one, step_id="m.2", payload=Raw(orjson.dumps(BIG))))

    begun = {"attempts": 1, "worker_id": "w", "started_at": at, "finished_at": at}
    answer = await http.simulate_get(f"/runs/{run_id}/steps/m/items")
    assert answer.json == [
        {"item": 0, "status": "completed", **begun, "output": {"x": 1}},
        {"item": 1, "status": "failed", **begun, "error": "boom"},
        {"item": 2, "status": "completed", **begun, "output_bytes": 5002},
        {"item": 3, "status": "queued", "attempts": 1},
    ]
    failed = await http.simulate_get(f"/runs/{run_id}/steps/m/items?status=failed")
    assert [item["item"] for item in failed.json] == [1]
    first = await http.simulate_get(f"/runs/{run_id}/steps/m/items?limit=3")
    assert "cursor=3" in first.headers["link"]


async def test_the_output_of_an_element_is_read_whole(http: ASGIConductor, store: Store) -> None:
    run_id = await _begun(http, store, "outputs", 4, task="t")
    one = {"run_id": run_id, "attempt_number": 1}
    for number in range(3):
        await store.history.append(StepStarted(**one, step_id=f"m.{number}", worker_id="w", item=number))
    await store.history.append(StepCompleted(**one, step_id="m.0", payload=Raw(orjson.dumps(BIG))))
    await store.history.append(StepCompleted(**one, step_id="m.1"))
    await store.history.append(StepFailed(**one, step_id="m.2", payload=Failure("boom", "non_retriable")))

    answers = [await http.simulate_get(f"/runs/{run_id}/steps/m.{number}/output") for number in range(5)]

    assert [(answer.status_code, answer.json) for answer in answers[:2]] == [(200, BIG), (200, None)]
    assert [(answer.status_code, answer.text) for answer in answers[2:]] == [
        (404, f'step "m.2" of run {run_id} has no output: it is failed\n'),
        (404, f'step "m.3" of run {run_id} has no output: it is queued\n'),
        (404, f'run {run_id} has no step "m.4"\n'),
    ]


async def test_an_element_that_is_a_run_names_it(http: ASGIConductor, store: Store) -> None:
    run_id = await _begun(http, store, "children", 2, config={"workflow": "one"})
    child = child_run_id(run_id, "m.0", 1)
    facts = StepFacts(child_run_id=child)
    await store.history.append(StepStarted(run_id=run_id, step_id="m.0", attempt_number=1, payload=facts))

    [first, second] = (await http.simulate_get(f"/runs/{run_id}/steps/m/items")).json

    assert (first["status"], first["child_run_id"]) == ("running", child)
    assert (second["status"], "child_run_id" in second) == ("queued", False)


async def test_what_is_no_map_is_not_found(http: ASGIConductor) -> None:
    run_id = (await http.simulate_post("/runs", body=b'{"workflow":"one"}')).json["run_id"]
    for step in ("hello", "nothing"):
        answer = await http.simulate_get(f"/runs/{run_id}/steps/{step}/items")
        assert answer.status_code == 404
        assert f'has no map "{step}" that has begun' in answer.text
    assert 400 == (await http.simulate_get(f"/runs/{run_id}/steps/hello/items?status=lost")).status_code
