"""Recorded runs over HTTP: as they were, compared, as a graph, as a document."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import orjson
import pytest
from falcon.testing import ASGIConductor
from msgspec import Raw

from penstock.actors.runs.loading import load
from penstock.actors.runs.past_runs import load_at
from penstock.broker.nats.direct import Stored
from penstock.broker.store import Store
from penstock.engine.errors import NotFound
from penstock.engine.run.event_payloads import Failure, Fragment, StepFacts
from penstock.engine.run.events import Event, PlannerExpanded, StepCompleted, StepFailed, StepStarted
from penstock.engine.run.state import to_snapshot
from penstock.engine.validation import parse

CHAIN = [{"id": "a", "task": "t"}, {"id": "b", "task": "t", "depends_on": ["a"]}]
AT = "2026-01-02T03:04:05Z"


async def started(http: ASGIConductor, store: Store, name: str, *steps: dict[str, Any]) -> str:
    await store.definitions.register(parse({"name": name, "steps": list(steps)}))
    answer = await http.simulate_post("/runs", body=orjson.dumps({"workflow": name, "input": 7}))
    return str(answer.json["run_id"])


async def stored(store: Store, *events: Event) -> list[int]:
    return [await store.history.append(event) for event in events]


def begun(run_id: str, step_id: str, worker: str = "w1") -> StepStarted:
    return StepStarted(run_id=run_id, step_id=step_id, attempt_number=1, timestamp=AT, worker_id=worker)


def done(run_id: str, step_id: str, output: bytes = b"1") -> StepCompleted:
    return StepCompleted(run_id=run_id, step_id=step_id, attempt_number=1, timestamp=AT, payload=Raw(output))


@pytest.mark.parametrize("saved", [False, True])
async def test_a_run_is_shown_as_it_was_at_each_of_its_events(http: ASGIConductor, store: Store, saved: bool) -> None:
    run_id = await started(http, store, "past", *CHAIN)
    first = await store.history.first_seq(run_id)
    began, ended, after = await stored(store, begun(run_id, "a"), done(run_id, "a"), begun(run_id, "b"))
    if saved:  # a snapshot in the middle: it serves later states, and no earlier one
        loaded = await load(store, run_id)
        assert loaded.run is not None
        await store.runs.put(run_id, to_snapshot(loaded.run))

    async def at(seq: int) -> dict[str, Any]:
        answer = await http.simulate_get(f"/runs/{run_id}?at={seq}")
        assert answer.status_code == 200, answer.text
        return {step_id: step["status"] for step_id, step in answer.json["steps"].items()}

    assert await at(first) == {"a": "queued", "b": "pending"}
    assert await at(began) == {"a": "running", "b": "pending"}
    assert await at(ended) == {"a": "completed", "b": "queued"}
    assert await at(after) == {"a": "completed", "b": "running"}
    now, then = [await http.simulate_get(f"/runs/{run_id}{query}") for query in ("", f"?at={after}")]
    assert now.json == then.json


async def long_run(http: ASGIConductor, store: Store, elements: int) -> tuple[str, int]:
    """A map of which each element has begun and ended in turn; and the sequence of the last event."""
    run_id = await started(http, store, "long", {"id": "m", "type": "map", "task": "t"})
    elements_begin = StepStarted(run_id=run_id, step_id="m", attempt_number=1, payload=StepFacts(items=elements))
    await stored(store, elements_begin)
    for first in range(0, elements, 250):
        ids = [f"m.{number}" for number in range(first, min(first + 250, elements))]
        await store.history.append_all([event(run_id, each) for each in ids for event in (begun, done)])
    last = await store.history.last(run_id)
    assert last is not None
    return run_id, last.seq


async def test_a_long_run_as_it_was_is_the_same_whatever_was_asked_for_before(
    http: ASGIConductor, store: Store
) -> None:
    run_id, last = await long_run(http, store, elements=1600)
    moments = [last, last - 1, last - 3000, last - 700, last - 2200, last - 1201, last - 1200, last - 1199, last]
    after_others = [to_snapshot(await load_at(store, run_id, seq)) for seq in moments]
    afresh = []
    for seq in moments:
        store.past_states.forget(run_id)
        afresh.append(to_snapshot(await load_at(store, run_id, seq)))
    assert after_others == afresh
    assert len(set(afresh)) == len(set(moments))


async def test_a_long_run_is_read_on_from_a_state_that_was_asked_for(
    http: ASGIConductor, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, last = await long_run(http, store, elements=1100)
    await load_at(store, run_id, last)
    read_after, pages = list[int](), store.history.pages

    def spied(run_id: str, after: int = 0, ahead_to: int = 0) -> AsyncGenerator[list[Stored]]:
        read_after.append(after)
        return pages(run_id, after, ahead_to)

    monkeypatch.setattr(store.history, "pages", spied)
    assert (await load_at(store, run_id, last - 10)).seq == last - 10
    (after,) = read_after
    assert last - 1010 <= after < last - 10


async def test_a_long_run_that_is_gone_is_not_answered_from_memory(http: ASGIConductor, store: Store) -> None:
    run_id, last = await long_run(http, store, elements=1100)
    assert (await load_at(store, run_id, last)).seq == last
    await store.run_data.remove(run_id, last + 1)
    with pytest.raises(NotFound):
        await load_at(store, run_id, last)


async def test_before_the_first_event_is_404_and_the_future_is_400(http: ASGIConductor, store: Store) -> None:
    run_id = await started(http, store, "bounds", *CHAIN)
    first = await store.history.first_seq(run_id)
    before = await http.simulate_get(f"/runs/{run_id}?at={first - 1}")
    assert before.status_code == 404
    assert before.text == f"run {run_id} was not there at {first - 1}: its first event is {first}\n"
    newest = await store.history.last_seq()
    future = await http.simulate_get(f"/runs/{run_id}?at={newest + 1}")
    assert future.status_code == 400
    assert future.text == f"at {newest + 1} is in the future: the log has {newest} events so far\n"
    assert (await http.simulate_get(f"/runs/{'0' * 32}?at={first}")).status_code == 404


@pytest.mark.parametrize("query", ["at=-1", "at=x", "at=", "at=1.5", "at=9999999999999999999999", "at=1&wait_ms=5"])
async def test_what_is_no_moment_is_refused(http: ASGIConductor, store: Store, query: str) -> None:
    run_id = await started(http, store, "moments", *CHAIN)
    answer = await http.simulate_get(f"/runs/{run_id}?{query}")
    assert (answer.status_code, answer.text.startswith("at ")) == (400, True)


async def test_times_and_workers_make_no_difference_and_outputs_do(http: ASGIConductor, store: Store) -> None:
    one, two = [await started(http, store, "twins", *CHAIN) for _ in range(2)]
    await stored(store, begun(one, "a", "w1"), done(one, "a"), begun(two, "a", "w2"), done(two, "a", b" 1"))
    same = (await http.simulate_get(f"/runs/{one}/diff/{two}")).json
    assert same["run"]["differs"] is False
    assert {step_id: step["differs"] for step_id, step in same["steps"].items()} == {"a": False, "b": False}
    assert (same["steps"]["a"]["a"]["worker_id"], same["steps"]["a"]["b"]["worker_id"]) == ("w1", "w2")
    assert same["steps"]["a"]["a"]["duration_ms"] == 0
    await stored(store, done(one, "b"), done(two, "b", b"2"))
    other = (await http.simulate_get(f"/runs/{one}/diff/{two}")).json
    assert (other["steps"]["b"]["differs"], other["steps"]["b"]["fields"]) == (True, ["output"])


async def test_a_step_that_was_completed_by_hand_makes_no_difference_by_that(http: ASGIConductor, store: Store) -> None:
    one, two = [await started(http, store, "twins", *CHAIN) for _ in range(2)]
    await stored(store, begun(one, "a", "w1"), done(one, "a", b"1"), begun(two, "a", "w2"))
    skipped = await http.simulate_post(f"/runs/{two}/steps/a/skip", body=b'{"output": 1}')
    assert (200, True) == (
        skipped.status_code,
        (await http.simulate_get(f"/runs/{two}")).json["steps"]["a"]["overridden"],
    )
    same = (await http.simulate_get(f"/runs/{one}/diff/{two}")).json
    assert (False, True) == (same["steps"]["a"]["differs"], same["steps"]["a"]["b"]["overridden"])


async def test_runs_of_different_workflows_are_compared_by_the_ids_of_their_steps(
    http: ASGIConductor, store: Store
) -> None:
    one = await started(http, store, "left", *CHAIN)
    two = await started(http, store, "right", {"id": "a", "task": "t"}, {"id": "c", "task": "t"})
    found = (await http.simulate_get(f"/runs/{one}/diff/{two}")).json
    assert found["run"]["fields"] == ["workflow_id"]
    assert {step_id: sorted(step) for step_id, step in found["steps"].items()} == {
        "a": ["a", "b", "differs"],
        "b": ["a", "differs"],
        "c": ["b", "differs"],
    }


@pytest.mark.parametrize("other", ["0" * 32, "x", "..%2F..", "%00", "A" * 32])
async def test_a_run_is_not_compared_with_what_is_none(http: ASGIConductor, store: Store, other: str) -> None:
    run_id = await started(http, store, "alone", *CHAIN)
    assert (await http.simulate_get(f"/runs/{run_id}/diff/{other}")).status_code in (400, 404)
    assert (await http.simulate_get(f"/runs/{other}/graph")).status_code in (400, 404)
    assert (await http.simulate_get(f"/runs/{other}/export")).status_code in (400, 404)


async def test_the_graph_has_planned_steps_between_their_planner_and_what_depends_on_it(
    http: ASGIConductor, store: Store
) -> None:
    planner = {"id": "p", "type": "planner", "task": "plan"}
    run_id = await started(http, store, "planned", planner, {"id": "z", "task": "t", "depends_on": ["p"]})
    steps = [{"id": "x", "task": "t"}, {"id": "y", "task": "t", "depends_on": ["x"]}]
    fragment = Fragment(steps=Raw(orjson.dumps(steps)))
    await stored(
        store,
        begun(run_id, "p"),
        done(run_id, "p", orjson.dumps({"steps": steps})),
        PlannerExpanded(run_id=run_id, step_id="p", attempt_number=1, payload=fragment),
    )
    found = (await http.simulate_get(f"/runs/{run_id}/graph")).json
    assert found["layers"] == [["p"], ["p.x"], ["p.y"], ["z"]]
    assert found["edges"] == [
        {"from": "p.y", "to": "z"},
        {"from": "p", "to": "p.x"},
        {"from": "p.x", "to": "p.y"},
    ]
    assert {node["id"]: node["status"] for node in found["nodes"]} == {
        "p": "running",
        "z": "pending",
        "p.x": "queued",
        "p.y": "pending",
    }


async def test_the_graph_has_handlers_behind_their_steps_and_counts_of_maps(http: ASGIConductor, store: Store) -> None:
    run_id = await started(http, store, "handled", {"id": "a", "task": "t", "on_failure": {"task": "mend"}})
    failed = StepFailed(run_id=run_id, step_id="a", payload=Failure("no", "non_retriable"))
    await stored(store, begun(run_id, "a"), failed)
    found = (await http.simulate_get(f"/runs/{run_id}/graph")).json
    assert found["nodes"] == [
        {"id": "a", "type": "normal", "status": "failed", "task": "t"},
        {"id": "a.on_failure", "type": "on_failure", "status": "queued", "task": "mend", "handles": "a"},
    ]
    assert found["edges"] == [{"from": "a", "to": "a.on_failure"}]


async def test_an_exported_run_has_its_definition_and_every_event(http: ASGIConductor, store: Store) -> None:
    run_id = await started(http, store, "document", *CHAIN)
    seqs = await stored(store, begun(run_id, "a"), done(run_id, "a"))
    found = (await http.simulate_get(f"/runs/{run_id}/export")).json
    assert (found["run_id"], found["definition"]["name"]) == (run_id, "document")
    assert [event["type"] for event in found["events"]] == ["workflow.started", "step.started", "step.completed"]
    assert [event["seq"] for event in found["events"]][1:] == seqs
    assert all("stored_at" in event for event in found["events"])
