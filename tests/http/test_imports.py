"""Imported runs over HTTP: what was exported comes back as a record that everybody can read and nobody can change."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import orjson
import pytest
from falcon.testing import ASGIConductor
from msgspec import Raw

from penstock.actors.maintenance import retention
from penstock.broker import names
from penstock.broker.run_ids import keyed_run_id
from penstock.broker.store import Store
from penstock.config.limits import IMPORT_BYTES_MAX
from penstock.engine.run.event_payloads import Failure
from penstock.engine.run.events import Event, StepCompleted, StepFailed, StepStarted, WorkflowCompleted, WorkflowFailed
from penstock.engine.validation import parse

CHAIN = [{"id": "a", "task": "t"}, {"id": "b", "task": "t", "depends_on": ["a"]}]
LARGE = b'"%b"' % (b"x" * 20_000)  # stays in the history
AT = "2026-01-02T03:04:05Z"


async def recorded(http: ASGIConductor, store: Store, name: str, *steps: dict[str, Any], value: object = 7) -> str:
    """A run with these steps, of which nothing has begun."""
    await store.definitions.register(parse({"name": name, "steps": list(steps)}))
    body = orjson.dumps({"workflow": name, "input": value, "labels": {"of": name}})
    return str((await http.simulate_post("/runs", body=body)).json["run_id"])


async def ended(http: ASGIConductor, store: Store, name: str) -> str:
    """A run that has completed, with an output that stays in the history."""
    run_id = await recorded(http, store, name, *CHAIN)
    for event in (
        StepStarted(run_id=run_id, step_id="a", attempt_number=1, timestamp=AT, worker_id="w"),
        StepCompleted(run_id=run_id, step_id="a", attempt_number=1, timestamp=AT, payload=Raw(LARGE)),
        StepCompleted(run_id=run_id, step_id="b", attempt_number=1, timestamp=AT, payload=Raw(b"2")),
        WorkflowCompleted(run_id=run_id, timestamp=AT),
    ):
        await store.history.append(event)
    return run_id


async def exported(http: ASGIConductor, run_id: str) -> dict[str, Any]:
    answer = await http.simulate_get(f"/runs/{run_id}/export")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json
    return found


def renamed(document: dict[str, Any], run_id: str) -> dict[str, Any]:
    """The document as another service would have exported it, in which the run has another id."""
    events = [event | {"run_id": run_id} for event in document["events"]]
    return document | {"run_id": run_id, "events": events}


async def imported(http: ASGIConductor, document: dict[str, Any]) -> str:
    answer = await http.simulate_post("/runs/import", body=orjson.dumps(document))
    assert answer.status_code == 201, answer.text
    return str(answer.json["run_id"])


async def a_copy(http: ASGIConductor, store: Store, name: str) -> tuple[str, str]:
    """A completed run, and its copy that was imported."""
    run_id = await ended(http, store, name)
    return run_id, await imported(http, renamed(await exported(http, run_id), uuid4().hex))


async def test_an_imported_run_is_read_as_the_run_that_was_exported(http: ASGIConductor, store: Store) -> None:
    run_id, copy = await a_copy(http, store, "copied")
    answers = {one: (await http.simulate_get(f"/runs/{one}")).json for one in (run_id, copy)}
    assert answers[copy] == answers[run_id] | {"run_id": copy, "imported": True}
    assert answers[copy]["steps"]["a"]["output"] == "x" * 20_000
    for path in ("graph", "steps/a/output", "steps/b/output", "logs", "explain"):
        one, other = [await http.simulate_get(f"/runs/{found}/{path}") for found in (run_id, copy)]
        assert (one.status_code, one.text) == (other.status_code, other.text), path
    diff = (await http.simulate_get(f"/runs/{run_id}/diff/{copy}")).json
    assert diff["run"]["fields"] == ["imported"]
    assert [step["differs"] for step in diff["steps"].values()] == [False, False]


async def test_an_import_is_exported_byte_for_byte(http: ASGIConductor, store: Store) -> None:
    run_id = await ended(http, store, "bytes")
    first = (await http.simulate_get(f"/runs/{run_id}/export")).content
    await store.run_data.remove(run_id, before=await store.history.last_seq() + 1)
    answer = await http.simulate_post("/runs/import", body=first)
    assert (answer.status_code, answer.json["run_id"]) == (201, run_id), answer.text
    assert (await http.simulate_get(f"/runs/{run_id}/export")).content == first
    assert (await http.simulate_get(f"/runs/{run_id}")).json["imported"] is True


async def test_events_and_past_states_have_the_sequences_of_the_log_they_come_from(
    http: ASGIConductor, store: Store
) -> None:
    run_id, copy = await a_copy(http, store, "sequences")
    events, theirs = [(await http.simulate_get(f"/runs/{one}/events")).json for one in (run_id, copy)]
    assert theirs == [event | {"run_id": copy} for event in events]
    after = (await http.simulate_get(f"/runs/{copy}/events?after={events[1]['seq']}")).json
    assert after == theirs[2:]
    for event in events:
        then, now = [(await http.simulate_get(f"/runs/{one}?at={event['seq']}")).json for one in (run_id, copy)]
        assert now == then | {"run_id": copy, "imported": True}
    first, last = events[0]["seq"], events[-1]["seq"]
    assert (await http.simulate_get(f"/runs/{copy}?at={first - 1}")).status_code == 404
    assert (await http.simulate_get(f"/runs/{copy}?at={last + 1}")).status_code == 400
    assert (await http.simulate_get(f"/runs/{copy}/events?after={last}")).json == []


async def test_watching_an_import_ends_at_once(http: ASGIConductor, store: Store) -> None:
    document = await exported(http, await recorded(http, store, "open", *CHAIN))
    copy = await imported(http, renamed(document, uuid4().hex))
    assert (await http.simulate_get(f"/runs/{copy}?wait_ms=60000")).json["status"] == "running"
    live = await http.simulate_get(f"/runs/{copy}/events", headers={"Accept": "text/event-stream"})
    assert (live.status_code, live.text.count("event: ")) == (200, 1)


VERBS = [
    ("POST", "cancel", None),
    ("POST", "pause", None),
    ("POST", "resume", None),
    ("POST", "rerun", None),
    ("POST", "rerun", {"from": "a"}),
    ("POST", "rerun", {"latest": True}),
    ("POST", "retry", None),
    ("POST", "retry", {"mode": "rerun"}),
    ("POST", "signal/go", 1),
    ("POST", "steps/a/retry", None),
    ("POST", "steps/a/skip", {"output": 1}),
]


@pytest.mark.parametrize("status", ["running", "completed", "failed"])
async def test_every_verb_is_409_and_leaves_no_trace(http: ASGIConductor, store: Store, status: str) -> None:
    if status == "completed":
        run_id = await ended(http, store, "verbs")
    else:
        run_id = await recorded(http, store, "verbs", *CHAIN)
    if status == "failed":
        failures: list[Event] = [
            StepFailed(run_id=run_id, step_id="a", payload=Failure("no", "non_retriable")),
            WorkflowFailed(run_id=run_id),
        ]
        for event in failures:
            await store.history.append(event)
    copy = await imported(http, renamed(await exported(http, run_id), uuid4().hex))
    before = await store.history.last_seq()
    for method, verb, body in VERBS:
        content = b"" if body is None else orjson.dumps(body)
        answer = await http.simulate_request(method, f"/runs/{copy}/{verb}", body=content)
        assert (answer.status_code, "is imported" in answer.text) == (409, True), f"{verb}: {answer.text}"
    assert (await http.simulate_get(f"/runs/{copy}")).json["status"] == status
    assert before == await store.history.last_seq()


async def test_an_id_that_is_taken_is_409(http: ASGIConductor, store: Store) -> None:
    run_id, copy = await a_copy(http, store, "taken")
    document = await exported(http, run_id)
    for found in (run_id, copy):
        answer = await http.simulate_post("/runs/import", body=orjson.dumps(renamed(document, found)))
        assert (answer.status_code, answer.text) == (409, f"run {found} exists already\n")
    documents = [key for key in await store.imports.keys() if key[0] in (run_id, copy)]
    assert [copy] == [found for found, _ in documents]


async def test_a_start_with_the_id_of_an_import_is_409(http: ASGIConductor, store: Store) -> None:
    document = await exported(http, await ended(http, store, "claimed"))
    single, first = keyed_run_id("claimed", "k"), keyed_run_id("claimed", "many\n0")
    for found in (single, first):
        await imported(http, renamed(document, found))
    for body in ({"workflow": "claimed"}, {"workflow": "claimed", "run_at": "2099-01-01T00:00:00Z"}):
        answer = await http.simulate_post("/runs", body=orjson.dumps(body), headers={"Idempotency-Key": "k"})
        assert (answer.status_code, "imported" in answer.text) == (409, True), answer.text
    bulk = orjson.dumps({"workflow_id": "claimed", "inputs": [1]})
    answer = await http.simulate_post("/runs/bulk", body=bulk, headers={"Idempotency-Key": "many"})
    assert answer.status_code == 409, answer.text
    call = await http.simulate_post("/workflows/claimed/call", body=b"1", headers={"Idempotency-Key": "k"})
    assert call.status_code == 409, call.text
    assert (await http.simulate_get(f"/runs/{single}")).json["imported"] is True


async def test_imports_are_found_in_lists_and_searches_and_skipped_by_bulk(
    http: ASGIConductor, store: Store, index: None
) -> None:
    run_id = await recorded(http, store, "listed", *CHAIN)
    copy = await imported(http, renamed(await exported(http, run_id), uuid4().hex))
    for query in ("workflow=listed", "label=of:listed", "q=listed", "workflow=listed&status=running"):
        found = (await http.simulate_get(f"/runs?{query}")).json
        assert {run_id: None, copy: True} == {one["run_id"]: one.get("imported") for one in found}, query
    assert [copy] == [one["run_id"] for one in (await http.simulate_get(f"/runs?q={copy}")).json]
    assert (await http.simulate_get("/runs/stats?workflow=listed")).json["total"] == 2
    assert [] == (await http.simulate_get("/runs?q=::imported")).json
    for path in ("pause", "resume", "cancel"):
        answer = await http.simulate_post(f"/runs/{path}", body=orjson.dumps({"workflow_id": "listed"}))
        assert (answer.status_code, answer.json["total"]) == (200, 1), answer.text
    assert (await http.simulate_get(f"/runs/{copy}")).json["status"] == "running"
    assert (await http.simulate_delete("/workflows/listed")).status_code == 200  # no import needs its workflow


async def test_problems_are_all_listed_with_their_places(http: ASGIConductor, store: Store) -> None:
    document = renamed(await exported(http, await ended(http, store, "wrong")), uuid4().hex)
    one, two, three, *others = document["events"]
    wrong = document | {
        "run_id": "x",
        "definition": {"name": "wrong", "steps": [{"id": "a"}]},
        "events": [
            one,
            two | {"seq": one["seq"]},
            three | {"type": "step.unknown"},
            {"type": "step.started"},
            others[0] | {"stored_at": "yesterday"},
            others[1] | {"run_id": "0" * 32},
        ],
    }
    answer = await http.simulate_post("/runs/import", body=orjson.dumps(wrong))
    assert answer.status_code == 400
    problems = answer.text.splitlines()
    for start in ("run_id must be", "definition: ", "events[1]: seq ", "events[2]: ", "events[3]: ", "events[4]: "):
        assert any(problem.startswith(start) for problem in problems), (start, problems)
    assert any("events[5]: run_id is" in problem for problem in problems)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"events": []}, "events is empty"),
        ({"definition": {"name": "other", "steps": [{"id": "a", "task": "t"}]}}, "not of other"),
        ({"definition": {"name": "small", "steps": [{"id": "z", "task": "t"}]}}, "not the one of the run"),
        ({"definition": 7}, "definition: "),
        ({"definition": None}, "definition"),
        ({"events": [7]}, "events[0]: "),
        ({"events": None}, "events"),
        ({"more": 1}, 'unknown field "more"'),
    ],
)
async def test_a_document_with_one_thing_wrong_is_400(
    http: ASGIConductor, store: Store, change: dict[str, Any], problem: str
) -> None:
    document = renamed(await exported(http, await ended(http, store, "small")), uuid4().hex) | change
    answer = await http.simulate_post("/runs/import", body=orjson.dumps(document))
    assert (answer.status_code, problem in answer.text) == (400, True), answer.text


async def test_a_run_begins_with_its_start(http: ASGIConductor, store: Store) -> None:
    document = renamed(await exported(http, await ended(http, store, "headless")), uuid4().hex)
    document["events"] = document["events"][1:]
    answer = await http.simulate_post("/runs/import", body=orjson.dumps(document))
    problem = "events: none of them is workflow.started or workflow.scheduled, with which a run begins\n"
    assert (answer.status_code, answer.text) == (400, problem)


async def test_a_document_over_the_limit_is_413_with_the_limit(http: ASGIConductor) -> None:
    answer = await http.simulate_post("/runs/import", body=b" " * (IMPORT_BYTES_MAX + 1))
    assert (answer.status_code, str(IMPORT_BYTES_MAX) in answer.text) == (413, True)


async def test_a_document_close_to_the_limit_is_stored_and_read(http: ASGIConductor, store: Store) -> None:
    document = renamed(await exported(http, await ended(http, store, "big")), uuid4().hex)
    room = IMPORT_BYTES_MAX - len(orjson.dumps(document)) - 1000
    document["events"][0]["payload"]["input"] = "y" * room
    copy = await imported(http, document)
    assert (await http.simulate_get(f"/runs/{copy}")).json["status"] == "completed"
    assert len((await http.simulate_get(f"/runs/{copy}/export")).content) > room


async def test_a_document_without_its_mark_is_removed_and_counts_for_nothing(
    http: ASGIConductor, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, copy = await a_copy(http, store, "lost")
    await store.broker.remove(
        f"STREAM.PURGE.{names.HISTORY}", {"filter": names.stored_subject(copy)}
    )  # as if the process had died before
    assert (await http.simulate_get(f"/runs/{copy}")).status_code == 404
    await retention.remove_leftovers(store)
    assert copy in [found for found, _ in await store.imports.keys()]  # it may be on its way
    monkeypatch.setattr(retention, "LOST_AFTER_S", -1.0)
    await retention.remove_leftovers(store)
    assert copy not in [found for found, _ in await store.imports.keys()]
    assert (await http.simulate_get(f"/runs/{run_id}")).status_code == 200
