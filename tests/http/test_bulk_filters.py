"""The filters of requests for many runs: those of the list of runs, of one workflow or of all."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import orjson
import pytest
from falcon.testing import ASGIConductor, Result

from penstock.actors.control import run_operations
from penstock.broker.store import Store
from penstock.engine.definition.definitions import digest, to_json
from penstock.engine.run.event_payloads import NULL, TriggerRef
from penstock.engine.run.events import WorkflowFailed
from penstock.engine.validation import parse
from tests.http.conftest import ONE_STEP

pytestmark = pytest.mark.usefixtures("index")

VERBS = {"cancel": "cancelled", "pause": "paused", "resume": "resumed"}


@pytest.fixture
async def runs(http: ASGIConductor, store: Store) -> dict[str, str]:
    """Of two workflows: runs with a label, one that a trigger has started, and one without anything."""
    mark = uuid4().hex
    found = {"mark": mark}
    for name in ("a", "b"):
        definition = parse({**ONE_STEP, "name": f"{name}{mark}"})
        await store.definitions.register(definition)
        found[name] = definition.name
        told = {"workflow": definition.name, "labels": {"team": mark}}
        found[f"{name} labelled"] = (await http.simulate_post("/runs", json=told)).json["run_id"]
        found[f"{name} bare"] = (await http.simulate_post("/runs", json={"workflow": definition.name})).json["run_id"]
        ref = TriggerRef(name=f"t{mark}", kind="cron")
        known = digest(to_json(definition))
        begun = await run_operations.begin(store, definition, known, NULL, trigger=ref)
        found[f"{name} triggered"] = begun.run_id
    return found


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"labels": {"team": "MARK"}}, ["a labelled", "b labelled"]),
        ({"q": "MARK"}, ["a labelled", "b labelled"]),
        ({"trigger": "tMARK"}, ["a triggered", "b triggered"]),
        ({"trigger": "tMARK", "workflow_id": "bMARK"}, ["b triggered"]),
        ({"run_ids": ["a bare", "b labelled", "b labelled"]}, ["a bare", "b labelled"]),
        ({"run_ids": ["a bare", "b labelled"], "q": "MARK"}, ["b labelled"]),
        ({"run_ids": ["a bare", "b labelled"], "workflow_id": "aMARK"}, ["a bare"]),
        ({"parent": "a bare"}, []),
    ],
    ids=str,
)
async def test_the_runs_that_match_are_counted(
    http: ASGIConductor, runs: dict[str, str], verb: str, given: dict[str, Any], expected: list[str]
) -> None:
    answer = await _ask(http, verb, {**_filled(given, runs), "dry_run": True})

    assert {runs[name] for name in expected} == set(answer.json[VERBS[verb]]) | {
        one["run_id"] for one in answer.json["skipped"]
    }
    assert len(expected) == answer.json["total"]


async def test_only_the_runs_that_match_are_cancelled(http: ASGIConductor, runs: dict[str, str]) -> None:
    answer = await _ask(http, "cancel", {"q": runs["mark"]})

    assert 2 == answer.json["total"]
    statuses = {name: await _status(http, runs[name]) for name in runs if " " in name}
    assert {name: "cancelled" if "labelled" in name else "running" for name in statuses} == statuses


async def test_failed_runs_of_all_workflows_are_resumed(
    http: ASGIConductor, store: Store, runs: dict[str, str]
) -> None:
    chosen = [runs["a bare"], runs["b labelled"], runs["b bare"]]
    for run_id in chosen[:2]:
        await store.history.append(WorkflowFailed(run_id=run_id))

    answer = await _ask(http, "retry", {"mode": "replay", "run_ids": chosen})

    assert set(chosen[:2]) == {one["original_run_id"] for one in answer.json["retried"]}


@pytest.mark.parametrize(
    ("verb", "given", "text"),
    [
        ("cancel", {}, "no condition: give at least one of workflow_id, after"),
        ("pause", {"paused": True, "labels": {}}, "no condition"),
        ("cancel", {"run_ids": []}, "run_ids"),
        ("cancel", {"run_ids": ["0" * 32] * 1001}, "run_ids"),
        ("resume", {"run_ids": ["0" * 32, "x"]}, 'run_ids[1] must be a run id, not "x"'),
        ("cancel", {"q": ""}, "q is empty"),
        ("cancel", {"trigger": "a b", "q": "x" * 300}, "trigger"),
        ("retry", {"mode": "rerun", "q": "a"}, "workflow_id is missing"),
        ("rerun", {"q": "a"}, "workflow_id is missing"),
    ],
    ids=str,
)
async def test_what_is_wrong_is_named(http: ASGIConductor, verb: str, given: dict[str, Any], text: str) -> None:
    answer = await _ask(http, verb, given)

    assert (400, True) == (answer.status_code, text in answer.text), answer.text


def _filled(given: dict[str, Any], runs: dict[str, str]) -> dict[str, Any]:
    text = orjson.dumps(given).decode().replace("MARK", runs["mark"])
    for name, run_id in runs.items():
        text = text.replace(f'"{name}"', f'"{run_id}"') if " " in name else text
    found: dict[str, Any] = orjson.loads(text)
    return found


async def _ask(http: ASGIConductor, verb: str, body: dict[str, Any]) -> Result:
    found: Result = await http.simulate_post(f"/runs/{verb}", json=body)
    return found


async def _status(http: ASGIConductor, run_id: str) -> str:
    found: str = (await http.simulate_get(f"/runs/{run_id}")).json["status"]
    return found
