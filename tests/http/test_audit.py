"""The audit log: who has changed what, and what was refused; and `by` in the log of runs."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest
from falcon.testing import ASGIConductor, Result

from penstock.broker import names
from penstock.broker.records.audit import Audit
from penstock.broker.store import Store
from penstock.config.limits import REFUSALS_BURST
from penstock.config.settings import BrokerSettings, HttpSettings, Settings
from penstock.engine.errors import Full
from penstock.engine.run.event_payloads import Failure
from penstock.engine.run.events import StepFailed, WorkflowFailed
from penstock.engine.validation import parse
from penstock.http.access import audit_trail
from penstock.http.app import create_app
from tests.support.conductor import Conductor

TOKEN, BRIDGE = "t0ken", "br1dge"
ADMIN = {"Authorization": f"Bearer {TOKEN}"}
APPROVED = {"name": "asks", "steps": [{"id": "a", "type": "approval"}]}


@pytest.fixture(autouse=True)
async def empty_log(store: Store) -> AsyncIterator[None]:
    """Each test begins with an empty audit log and without keys, and leaves none."""
    await store.api_keys.change(lambda _: [])
    for stream in (names.AUDIT, names.REFUSALS):
        await store.broker.api(f"STREAM.PURGE.{stream}")
    yield
    await store.api_keys.change(lambda _: [])


@pytest.fixture
async def guarded(broker_settings: BrokerSettings, definitions: None) -> AsyncIterator[ASGIConductor]:
    settings = Settings(broker=broker_settings, http=HttpSettings(api_token=TOKEN, bridge_token=BRIDGE))
    async with Conductor(create_app(settings)) as one:
        yield one


async def ask(
    http: ASGIConductor, method: str, path: str, body: object = None, key: str = TOKEN, **more: Any
) -> Result:
    content = b"" if body is None else orjson.dumps(body)
    headers = {"Authorization": f"Bearer {key}"}
    found: Result = await http.simulate_request(method, path, body=content, headers=headers, **more)
    return found


async def log_of(http: ASGIConductor) -> list[dict[str, Any]]:
    answer = await ask(http, "GET", "/audit")
    assert 200 == answer.status_code, answer.text
    entries: list[dict[str, Any]] = answer.json
    return entries


async def key_of(http: ASGIConductor, name: str, scope: str, **more: str) -> str:
    answer = await ask(http, "POST", "/keys", {"name": name, "scope": scope, **more})
    assert 201 == answer.status_code, answer.text
    return str(answer.json["key"])


async def test_a_change_is_written_down_with_who_what_on_from_and_its_outcome(guarded: ASGIConductor) -> None:
    ada = await key_of(guarded, "ada", "operate")
    run_id = (await ask(guarded, "POST", "/runs", {"workflow": "one"}, ada)).json["run_id"]
    assert 200 == (await ask(guarded, "POST", f"/runs/{run_id}/cancel", key=ada, remote_addr="192.0.2.7")).status_code
    assert 404 == (await ask(guarded, "DELETE", "/triggers/nobody")).status_code
    failed, cancelled, made = await log_of(guarded)
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", cancelled.pop("at"))
    assert {
        "who": "ada",
        "what": "cancelRun",
        "on": f"/runs/{run_id}/cancel",
        "from": "192.0.2.7",
        "outcome": "done",
        "status": 200,
    } == cancelled
    assert ("SERVICE_API_TOKEN", "createKey", "/keys/ada", "done") == tuple(
        made[name] for name in ("who", "what", "on", "outcome")
    )
    assert ("deleteTrigger", "failed", 404) == tuple(failed[name] for name in ("what", "outcome", "status"))


@pytest.mark.usefixtures("index")
async def test_of_many_runs_it_says_of_which_workflow_and_whether_only_to_look(guarded: ASGIConductor) -> None:
    asked = {
        "/runs/cancel": {"status": "pending"},
        "/runs/pause": {},
        "/runs/resume": {},
        "/runs/rerun": {"status": "completed"},
        "/runs/retry": {"mode": "replay"},
        "/runs/prune": {},
    }
    for path, body in asked.items():
        for more in ({"dry_run": True}, {}):
            wanted = {"workflow_id": "one", "before": "2026-01-01T00:00:00Z", **body, **more}
            assert 200 == (await ask(guarded, "POST", path, wanted)).status_code
    assert 200 == (await ask(guarded, "POST", "/runs/prune", {"status": "all", "dry_run": True})).status_code
    assert 400 == (await ask(guarded, "POST", "/runs/pause", {"workflow_id": "\n?&"})).status_code
    notes = ("?workflow_id=one&dry_run=true", "?workflow_id=one")
    expected = [f"{path}{note}" for path in asked for note in notes]
    entries = (await log_of(guarded))[: len(expected) + 2][::-1]
    assert [*expected, "/runs/prune?dry_run=true", "/runs/pause"] == [one["on"] for one in entries]


async def test_what_an_operator_does_to_steps_and_to_ended_runs_is_written_down(
    guarded: ASGIConductor, store: Store, index: None
) -> None:
    ada = await key_of(guarded, "ada", "admin")
    run_id, by_hand = [(await ask(guarded, "POST", "/runs", {"workflow": "one"}, ada)).json["run_id"] for _ in range(2)]
    await store.history.append(StepFailed(run_id=run_id, step_id="a", payload=Failure(failure_type="non_retriable")))
    await store.history.append(WorkflowFailed(run_id=run_id))
    asked = [
        ("retryStep", f"/runs/{by_hand}/steps/a/retry", None, 409),
        ("skipStep", f"/runs/{by_hand}/steps/a/skip", {"output": 1}, 200),
        ("rerunRun", f"/runs/{run_id}/rerun", None, 201),
        ("retryStep", f"/runs/{run_id}/steps/a/retry", None, 200),
        ("pruneRuns", "/runs/prune", {"workflow_id": "one"}, 200),
    ]
    for _, path, body, status in asked:
        assert status == (await ask(guarded, "POST", path, body, ada)).status_code
    entries = (await log_of(guarded))[: len(asked)][::-1]
    found = [(one["who"], one["what"], one["outcome"], one["status"]) for one in entries]
    outcomes = {200: "done", 201: "done", 409: "failed"}
    assert [("ada", what, outcomes[status], status) for what, _, _, status in asked] == found
    assert all(one["on"].startswith(path) for one, (_, path, _, _) in zip(entries, asked, strict=True))


async def test_what_is_read_is_not_written_down(guarded: ASGIConductor) -> None:
    for path in ("/runs", "/workflows", "/audit", "/keys", "/triggers"):
        assert 200 == (await ask(guarded, "GET", path)).status_code
    assert [] == await log_of(guarded)


async def test_no_entry_has_a_secret(guarded: ASGIConductor) -> None:
    ada = await key_of(guarded, "ada", "read")
    await ask(guarded, "POST", "/workflows?token=qu3ry", {"name": "x", "password": "b0dy"}, ada)
    trigger = {"name": "hook", "workflow": "one", "webhook": {"secret": "wh-secret"}}
    assert 201 == (await ask(guarded, "POST", "/triggers", trigger)).status_code
    text = (await ask(guarded, "GET", "/audit")).text
    assert "/triggers/hook" in text
    for secret in (ada, TOKEN, "qu3ry", "b0dy", "wh-secret", "Bearer"):
        assert secret not in text


async def test_every_kind_of_refusal_is_an_entry(guarded: ASGIConductor, http: ASGIConductor) -> None:
    ada = await key_of(guarded, "ada", "read")
    some = await key_of(guarded, "some", "admin", workflow="two")
    await ask(guarded, "POST", "/runs", {"workflow": "one"}, ada)
    await ask(guarded, "GET", "/workers", key=some)
    await ask(guarded, "DELETE", "/workflows/one", key=some)
    await guarded.simulate_post("/runs", headers={**ADMIN, "Origin": "https://evil.example"})
    found = [(one["who"], one["what"], one["outcome"], one["status"]) for one in await log_of(guarded)][:4]
    assert [
        ("SERVICE_API_TOKEN", "POST", "refused", 403),
        ("some", "deleteWorkflow", "refused", 403),
        ("some", "GET /workers", "refused", 403),
        ("ada", "POST /runs", "refused", 403),
    ] == found


async def test_a_refusal_of_protected_mode_is_an_entry(
    http: ASGIConductor, guarded: ASGIConductor, store: Store
) -> None:
    assert 403 == (await http.simulate_get("/runs", remote_addr="192.0.2.9")).status_code
    (entry,) = await log_of(guarded)
    assert ("anonymous", "192.0.2.9", "refused") == (entry["who"], entry["from"], entry["outcome"])


async def test_a_wrong_key_is_no_entry(guarded: ASGIConductor) -> None:
    """Anyone can send one, and nothing was asked for in anybody's name."""
    assert 401 == (await ask(guarded, "GET", "/runs", key="wrong")).status_code
    assert [] == await log_of(guarded)


async def test_a_flood_of_refusals_is_counted_and_not_written(
    guarded: ASGIConductor, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(audit_trail.time, "monotonic", lambda: clock[0])
    ada = await key_of(guarded, "ada", "read")
    for _ in range(REFUSALS_BURST + 50):
        assert 403 == (await ask(guarded, "POST", "/runs", key=ada)).status_code
    state = (await store.broker.api(f"STREAM.INFO.{names.REFUSALS}"))["state"]
    assert REFUSALS_BURST == state["messages"]
    clock[0] += 1
    assert 403 == (await ask(guarded, "POST", "/runs", key=ada)).status_code
    assert 50 == (await log_of(guarded))[0]["more"]


async def test_what_cannot_be_written_down_is_not_changed(
    guarded: ASGIConductor, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object) -> None:
        raise Full("no room")

    run_id = (await ask(guarded, "POST", "/runs", {"workflow": "one"})).json["run_id"]
    monkeypatch.setattr(Audit, "write", full)
    for method, path, body in (
        ("POST", f"/runs/{run_id}/cancel", None),
        ("POST", "/workflows", {"name": "unseen", "steps": [{"id": "a", "task": "t"}]}),
        ("DELETE", "/workflows/two", None),
        ("POST", "/keys", {"name": "unseen", "scope": "admin"}),
    ):
        refused = await ask(guarded, method, path, body)
        assert 503 == refused.status_code
        assert "nothing was changed, as the audit log cannot be written: no room" in refused.text
    monkeypatch.undo()
    events = (await ask(guarded, "GET", f"/runs/{run_id}/events")).json
    assert "workflow.cancelled" not in [event["type"] for event in events]
    assert 404 == (await ask(guarded, "GET", "/workflows/unseen")).status_code
    assert 200 == (await ask(guarded, "GET", "/workflows/two")).status_code
    assert [] == (await ask(guarded, "GET", "/keys")).json


async def test_a_process_that_dies_over_a_change_leaves_an_entry_without_outcome(
    guarded: ASGIConductor, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_trail, "_ended", lambda entry, *_: entry)
    assert 404 == (await ask(guarded, "DELETE", "/triggers/nobody")).status_code
    (entry,) = await log_of(guarded)
    assert ("unknown", False) == (entry["outcome"], "status" in entry)


async def test_a_list_is_newest_first_and_its_links_lead_through_all(guarded: ASGIConductor) -> None:
    ada = await key_of(guarded, "ada", "read")
    for number in range(7):
        await ask(guarded, "DELETE", f"/triggers/t{number}")
        await ask(guarded, "DELETE", f"/triggers/r{number}", key=ada)
    expected = [f"/triggers/{kind}{number}" for number in reversed(range(7)) for kind in "rt"] + ["/keys/ada"]
    found: list[str] = []
    path: str | None = "/audit?limit=4"
    while path is not None:
        answer = await ask(guarded, "GET", path)
        found += [one["on"] for one in answer.json]
        link = answer.headers.get("link")
        path = None if link is None else "?".join(urlsplit(link[1 : link.index(">")])[2:4])
    assert expected == found


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "cursor=", "cursor=1", "cursor=-1.2", "since=1"])
async def test_a_bad_query_is_named(guarded: ASGIConductor, query: str) -> None:
    answer = await ask(guarded, "GET", f"/audit?{query}")
    assert (400, True) == (answer.status_code, query.partition("=")[0] in answer.text)


async def test_a_decision_by_the_token_of_an_approval_is_written_down_without_it(
    guarded: ASGIConductor, store: Store
) -> None:
    await store.definitions.register(parse(APPROVED))
    run_id = (await ask(guarded, "POST", "/runs", {"workflow": "asks"})).json["run_id"]
    answer = await guarded.simulate_post(f"/runs/{run_id}/approval/a", params={"action": "approve", "token": "0" * 64})
    assert 401 == answer.status_code
    (entry,) = await log_of(guarded)
    assert ("approval token", "decide", "refused") == (entry["who"], entry["what"], entry["outcome"])
    assert "0" * 64 not in str(entry)


async def test_starts_signals_and_events_name_who_did_it_in_their_log(guarded: ASGIConductor, store: Store) -> None:
    ada = await key_of(guarded, "ada", "operate")
    run_id = (await ask(guarded, "POST", "/runs", {"workflow": "one"}, ada)).json["run_id"]
    (bulk,) = (await ask(guarded, "POST", "/runs/bulk", {"workflow_id": "one", "inputs": [1]}, ada)).json["run_ids"]
    later = {"workflow": "one", "run_at": "2099-01-01T00:00:00Z"}
    scheduled = (await ask(guarded, "POST", "/runs", later, ada)).json["run_id"]
    called = await ask(guarded, "POST", "/workflows/one/call?timeout_ms=0", 1)
    assert 200 == (await ask(guarded, "POST", f"/runs/{run_id}/signal/go", 1, ada)).status_code
    assert 200 == (await ask(guarded, "POST", f"/v1/runs/{run_id}/signals/on", 1, BRIDGE)).status_code
    sent = (await ask(guarded, "POST", "/events/paid", 1, ada)).json["seq"]
    found = {
        (event["type"], event["payload"].get("by"))
        for one in (run_id, bulk, scheduled, called.json["run_id"])
        for event in (await ask(guarded, "GET", f"/runs/{one}/events")).json
    }
    assert {
        ("workflow.started", "ada"),
        ("workflow.scheduled", "ada"),
        ("workflow.started", "SERVICE_API_TOKEN"),
        ("signal.received", "ada"),
        ("signal.received", "SERVICE_BRIDGE_TOKEN"),
    } == found
    event = await store.reader.leaders.at(names.EVENTS, sent)
    assert event is not None
    assert b"\r\nEvent-By: ada\r\n" in event.headers
    assert ["createKey"] == [one["what"] for one in await log_of(guarded)]


@pytest.mark.usefixtures("index")
async def test_a_rerun_names_who_has_asked_for_it_in_its_log(guarded: ASGIConductor) -> None:
    ada, labels = await key_of(guarded, "ada", "operate"), {"again": "these"}
    first = (await ask(guarded, "POST", "/runs", {"workflow": "one", "labels": labels})).json["run_id"]
    assert 200 == (await ask(guarded, "POST", f"/runs/{first}/cancel", None, ada)).status_code
    many = {"workflow_id": "one", "status": "cancelled", "labels": labels}
    (repeated,) = (await ask(guarded, "POST", "/runs/rerun", many, ada)).json["rerun"]
    alone = (await ask(guarded, "POST", f"/runs/{first}/rerun", None, ada)).json["run_id"]
    for run_id in (repeated["new_run_id"], alone):
        (started,) = (await ask(guarded, "GET", f"/runs/{run_id}/events")).json
        assert (first, "ada") == (started["payload"]["rerun_of"], started["payload"]["by"])


async def test_while_the_api_is_open_nobody_is_named(http: ASGIConductor, store: Store) -> None:
    run_id = (await http.simulate_post("/runs", json={"workflow": "one"})).json["run_id"]
    assert 200 == (await http.simulate_post(f"/runs/{run_id}/signal/go", json=1)).status_code
    assert 200 == (await http.simulate_post(f"/runs/{run_id}/cancel")).status_code
    sent = (await http.simulate_post("/events/paid", json=1)).json["seq"]
    assert '"by"' not in (await http.simulate_get(f"/runs/{run_id}/events")).text
    event = await store.reader.leaders.at(names.EVENTS, sent)
    assert event is not None
    assert b"Event-By" not in event.headers
    assert [] == (await http.simulate_get("/audit")).json


async def test_the_first_key_is_written_down_though_nobody_can_be_named(http: ASGIConductor) -> None:
    key = (await http.simulate_post("/keys", json={"name": "root", "scope": "admin"})).json["key"]
    (entry,) = (await ask(http, "GET", "/audit", key=key)).json
    assert ("anonymous", "createKey", "/keys/root") == (entry["who"], entry["what"], entry["on"])
