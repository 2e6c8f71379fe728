"""GET /runs/summaries: lists of runs in short, and why they wait."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import orjson
import pytest
from falcon.testing import ASGIConductor
from msgspec import Raw

from penstock.broker.store import Store
from penstock.engine.run.event_payloads import Failure, StepFacts
from penstock.engine.run.events import StepCompleted, StepFailed, StepStarted
from penstock.engine.validation import parse
from penstock.http.diagnosis import run_summaries
from tests.http.conftest import TWO_STEPS

pytestmark = pytest.mark.usefixtures("index")


@pytest.fixture
async def workflow(store: Store) -> str:
    """A workflow of the test's own: nobody serves its task."""
    name = f"w{uuid4().hex}"
    steps = [{**step, "task": name} for step in TWO_STEPS["steps"]]  # type: ignore[dict-item, attr-defined]
    await store.definitions.register(parse({**TWO_STEPS, "name": name, "steps": steps}))
    return name


async def test_a_run_in_short(http: ASGIConductor, store: Store, workflow: str) -> None:
    run_id = await _started(http, workflow, input={"order": 17, "text": "x" * 500}, labels={"team": "payments"})
    await store.history.append(StepCompleted(run_id=run_id, step_id="a", payload=Raw(b"1")))

    (row,) = await _listed(http, workflow)

    run = (await http.simulate_get(f"/runs/{run_id}")).json
    same = ("run_id", "workflow_id", "version", "status", "created_at", "started_at", "labels")
    assert {name: run[name] for name in same} == {name: row[name] for name in same}
    assert {"completed": 1, "queued": 1} == row["steps"]
    text = orjson.dumps(run["input"]).decode()
    assert (text[:160], len(text)) == (row["input"], row["input_bytes"])
    assert not {"waiting", "held_up", "error"} & set(row)


@pytest.mark.parametrize(
    ("given", "shown"),
    [("é" * 158, '"' + "é" * 158 + '"'), ("é" * 159, '"' + "é" * 159), ("😀" * 300, '"' + "😀" * 159)],
)
async def test_an_input_is_cut_between_characters(http: ASGIConductor, workflow: str, given: str, shown: str) -> None:
    await _started(http, workflow, input=given)

    (row,) = await _listed(http, workflow)

    assert shown == row["input"]
    assert (len(orjson.dumps(given)) if len(given) > 158 else None) == row.get("input_bytes")


async def test_a_large_input_is_no_burden(http: ASGIConductor, workflow: str) -> None:
    await _started(http, workflow, input="y" * 300_000)

    answer = await http.simulate_get(f"/runs/summaries?workflow={workflow}&explain=true")

    assert len(answer.content) < 2000
    assert 300_002 == answer.json[0]["input_bytes"]


async def test_runs_that_are_held_up_say_why_when_asked(http: ASGIConductor, workflow: str) -> None:
    paused, waiting, ended = [await _started(http, workflow) for _ in range(3)]
    await http.simulate_post(f"/runs/{paused}/pause")
    await http.simulate_post(f"/runs/{ended}/cancel")

    rows = {row["run_id"]: row for row in await _listed(http, workflow, "explain=true")}

    explained = (await http.simulate_get(f"/runs/{waiting}/explain")).json["waiting"]
    assert "partition_unowned" == explained[0]["reason"]  # there is no engine
    assert (explained[0]["text"], True) == (rows[waiting]["waiting"]["text"], rows[waiting]["held_up"])
    assert True is rows[paused]["held_up"]
    assert not {"waiting", "held_up"} & set(rows[ended])


async def test_held_up_runs_are_found_a_part_at_a_time(
    http: ASGIConductor, workflow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_summaries, "PART", 2)
    monkeypatch.setattr(run_summaries, "LOOKED_AT_MAX", 2)
    first, second, third, ended = [await _started(http, workflow) for _ in range(4)]
    await http.simulate_post(f"/runs/{ended}/cancel")

    pages, path = [], f"/runs/summaries?workflow={workflow}&held_up=true"
    while path:
        answer = await http.simulate_get(path)
        pages.append([row["run_id"] for row in answer.json])
        path = answer.headers.get("link", "").partition(">")[0].lstrip("<")

    assert [[third, second], [first]] == pages
    assert [] == await _listed(http, workflow, "held_up=true&status=completed")
    assert [third] == [row["run_id"] for row in await _listed(http, workflow, "held_up=true&limit=1")]


@pytest.mark.parametrize("query", ["held_up=false", "explain=1", "limit=1001", "payload_max=1", "limit=0"])
async def test_what_cannot_be_asked_is_refused(http: ASGIConductor, query: str) -> None:
    answer = await http.simulate_get(f"/runs/summaries?{query}")

    assert 400 == answer.status_code
    assert query.partition("=")[0] in answer.text


async def test_elements_of_maps_that_have_failed_are_counted(http: ASGIConductor, store: Store) -> None:
    name = f"w{uuid4().hex}"
    each = {"id": "m", "type": "map", "task": name, "config": {"on_item_failure": "continue"}}
    await store.definitions.register(parse({"name": name, "steps": [each]}))
    run_id = await _started(http, name, input=[1, 2, 3])
    await store.history.append(StepStarted(run_id=run_id, step_id="m", attempt_number=1, payload=StepFacts(items=3)))
    for number in (0, 2):
        await store.history.append(
            StepFailed(run_id=run_id, step_id=f"m.{number}", payload=Failure("boom", "non_retriable"))
        )

    (row,) = await _listed(http, name)

    assert 2 == row["failed_items"]


async def _started(http: ASGIConductor, workflow: str, **more: Any) -> str:
    answer = await http.simulate_post("/runs", body=orjson.dumps({"workflow": workflow, **more}))
    run_id: str = answer.json["run_id"]
    return run_id


async def _listed(http: ASGIConductor, workflow: str, query: str = "") -> list[dict[str, Any]]:
    answer = await http.simulate_get(f"/runs/summaries?workflow={workflow}&{query}")
    assert 200 == answer.status_code, answer.text
    found: list[dict[str, Any]] = answer.json
    return found
