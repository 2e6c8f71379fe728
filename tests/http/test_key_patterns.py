"""Keys that are for some workflows only: what they see of lists, and what they may name in a body."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple
from uuid import uuid4

import msgspec
import orjson
import pytest
from falcon.testing import ASGIConductor, Result

from penstock.actors.control import keys, run_operations, triggers
from penstock.actors.imports import importing
from penstock.broker import names
from penstock.broker.records.imports import ImportDocument
from penstock.broker.store import Store
from penstock.config.settings import BrokerSettings, Settings
from penstock.engine.access.scopes import KeyScope
from penstock.engine.definition.definitions import digest, to_json
from penstock.engine.run.event_payloads import NULL
from penstock.engine.validation import parse
from penstock.http.app import create_app
from tests.support.conductor import Conductor

OURS, THEIRS = "ours-1", "theirs"
ONE_STEP = [{"id": "a", "task": "t"}]


class TwoWorkflows(NamedTuple):
    http: ASGIConductor
    key: str
    runs: dict[str, str]

    async def ask(self, method: str, path: str, body: object = None) -> Result:
        content = b"" if body is None else orjson.dumps(body)
        headers = {"Authorization": f"Bearer {self.key}"}
        found: Result = await self.http.simulate_request(method, path, body=content, headers=headers)
        return found


def an_export(workflow: str) -> dict[str, object]:
    """A run of the workflow as another service exports it, with an id of its own."""
    run_id, definition = uuid4().hex, to_json(parse({"name": workflow, "steps": ONE_STEP}))
    at = "2026-01-02T03:04:05Z"
    payload = {"workflow": workflow, "version": "1", "digest": digest(definition), "input": None}
    begun = {"type": "workflow.started", "run_id": run_id, "timestamp": at, "payload": payload}
    events = [{"seq": 1, "stored_at": at, **begun}]
    return {"run_id": run_id, "definition": orjson.loads(definition), "events": events}


@pytest.fixture
async def both(broker_settings: BrokerSettings, store: Store, index: None) -> AsyncIterator[TwoWorkflows]:
    """A service with two workflows, each with a run, a trigger and a dead letter; and an admin key for one of them."""
    runs = {}
    for name in (OURS, THEIRS):
        await store.definitions.register(parse({"name": name, "steps": ONE_STEP}))
        runs[name] = await run_operations.start(store, *await store.definitions.latest(name), NULL)
        await triggers.put(store, {"name": f"of-{name}", "workflow": name, "webhook": {"secret": "s"}})
        headers = {"Dead-Run": runs[name], "Dead-Error": "x"}
        await store.publisher.send(names.dead_history_subject(runs[name]), b"no event", headers)
    made = await keys.create(store, "ada", KeyScope.ADMIN, workflow="ours-*", has_token=True)
    async with Conductor(create_app(Settings(broker=broker_settings))) as http:
        yield TwoWorkflows(http, made.key, runs)
    await store.api_keys.change(lambda _: [])


async def test_lists_have_only_what_the_key_is_for(both: TwoWorkflows) -> None:
    assert [OURS] == [one["name"] for one in (await both.ask("GET", "/workflows")).json]
    listed = (await both.ask("GET", "/runs")).json
    assert both.runs[OURS] in [one["run_id"] for one in listed]
    assert {OURS} == {one["workflow_id"] for one in listed}
    assert [] == (await both.ask("GET", f"/runs?workflow={THEIRS}")).json
    assert len(listed) == (await both.ask("GET", "/runs/stats")).json["total"]
    assert 0 == (await both.ask("GET", f"/runs/stats?workflow={THEIRS}")).json["total"]
    assert [f"of-{OURS}"] == [one["name"] for one in (await both.ask("GET", "/triggers")).json]
    assert both.runs[OURS] in (letters := {one["run_id"] for one in (await both.ask("GET", "/dead-letters")).json})
    assert both.runs[THEIRS] not in letters
    assert [] == (await both.ask("GET", "/approvals")).json


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/runs", {"workflow": THEIRS}),
        ("POST", "/runs/bulk", {"workflow_id": THEIRS, "inputs": [1]}),
        ("POST", "/runs/cancel", {"workflow_id": THEIRS}),
        ("POST", "/runs/retry", {"workflow_id": THEIRS, "mode": "replay"}),
        ("POST", "/runs/rerun", {"workflow_id": THEIRS}),
        ("POST", "/runs/pause", {"workflow_id": THEIRS}),
        ("POST", "/runs/resume", {"workflow_id": THEIRS}),
        ("POST", "/runs/prune", {"workflow_id": THEIRS}),
        ("POST", "/workflows", {"name": THEIRS, "steps": ONE_STEP}),
        (
            "POST",
            "/workflows",
            {"name": OURS, "steps": [{"id": "a", "type": "sub_workflow", "config": {"workflow": THEIRS}}]},
        ),
        ("POST", "/runs/import", an_export(THEIRS)),
        ("POST", "/triggers", {"name": "new", "workflow": THEIRS, "webhook": {}}),
        ("POST", "/triggers", {"name": f"of-{THEIRS}", "workflow": OURS, "webhook": {}}),
        ("PUT", f"/triggers/of-{THEIRS}", {"workflow": OURS, "webhook": {}}),
    ],
)
async def test_a_body_that_names_another_workflow_is_refused(
    both: TwoWorkflows, store: Store, method: str, path: str, body: object
) -> None:
    before = await store.history.last_seq()
    refused = await both.ask(method, path, body)
    assert (403, True) == (refused.status_code, "is for the workflows ours-*" in refused.text)
    assert before == await store.history.last_seq()


async def test_imported_runs_belong_to_their_workflow(both: TwoWorkflows, store: Store) -> None:
    imported = await both.ask("POST", "/runs/import", an_export(OURS))
    assert 201 == imported.status_code
    assert OURS == (await both.ask("GET", f"/runs/{imported.json['run_id']}")).json["workflow_id"]
    assert 409 == (await both.ask("POST", f"/runs/{imported.json['run_id']}/cancel")).status_code
    document = msgspec.json.decode(orjson.dumps(an_export(THEIRS)), type=ImportDocument)
    await importing.store_run(store, document, theirs := await importing.checked(document))
    for path in ("", "/events", "/export", "/graph"):
        assert 404 == (await both.ask("GET", f"/runs/{theirs.run_id}{path}")).status_code
    assert theirs.run_id not in [one["run_id"] for one in (await both.ask("GET", "/runs")).json]


async def test_what_is_named_for_our_workflow_is_done(both: TwoWorkflows) -> None:
    assert 201 == (await both.ask("POST", "/runs", {"workflow": OURS})).status_code
    assert 201 == (await both.ask("POST", "/runs/bulk", {"workflow_id": OURS, "inputs": [1]})).status_code
    assert 200 == (await both.ask("GET", f"/runs/{both.runs[OURS]}")).status_code
    assert 404 == (await both.ask("GET", f"/runs/{both.runs[THEIRS]}")).status_code
    assert 201 == (await both.ask("POST", "/workflows", {"name": OURS, "steps": ONE_STEP})).status_code


@pytest.mark.parametrize(("verb", "done"), [("cancel", "cancelled"), ("pause", "paused"), ("resume", "resumed")])
@pytest.mark.parametrize("by", ["time", "ids"])
async def test_many_runs_without_a_workflow_are_those_that_the_key_is_for(
    both: TwoWorkflows, verb: str, done: str, by: str
) -> None:
    given = {"after": "2020-01-01T00:00:00Z"} if by == "time" else {"run_ids": list(both.runs.values())}

    answer = await both.ask("POST", f"/runs/{verb}", {**given, "dry_run": True})

    named = {*answer.json[done], *(one["run_id"] for one in answer.json["skipped"])}
    assert (200, True, False) == (answer.status_code, both.runs[OURS] in named, both.runs[THEIRS] in named)
