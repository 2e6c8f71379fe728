"""What is shown of outputs that a run has left in its history."""

from __future__ import annotations

import re

import orjson
import pytest
from falcon.testing import ASGIConductor
from msgspec import Raw

from penstock.actors.runs.loading import load
from penstock.broker import names
from penstock.broker.store import Store
from penstock.config.limits import EVENTS_BYTES_MAX, KIB, OUTPUTS_SHOWN_BYTES_MAX, PAYLOAD_BYTES_MAX
from penstock.engine.run.events import StepCompleted
from penstock.engine.run.state import to_snapshot
from penstock.engine.validation import parse
from penstock.http.resources import listing

WIDE = {"name": "wide", "steps": [{"id": f"s{n}", "task": "work"} for n in range(10)]}
LARGE = b'"' + b"x" * (PAYLOAD_BYTES_MAX - 2) + b'"'
SHOWN = OUTPUTS_SHOWN_BYTES_MAX // PAYLOAD_BYTES_MAX


async def begun(http: ASGIConductor, store: Store, outputs: dict[str, bytes]) -> str:
    """A run whose steps have given this back."""
    await store.definitions.register(parse(WIDE))
    run_id = (await http.simulate_post("/runs", json={"workflow": "wide"})).json["run_id"]
    for step_id, body in outputs.items():
        await store.history.append(StepCompleted(run_id=run_id, step_id=step_id, payload=Raw(body)))
    assert isinstance(run_id, str)
    return run_id


async def test_large_outputs_are_shown_as_far_as_one_answer_may_hold_them(http: ASGIConductor, store: Store) -> None:
    run_id = await begun(http, store, {f"s{n}": LARGE for n in range(10)})
    steps = (await http.simulate_get(f"/runs/{run_id}")).json["steps"]
    whole = [step_id for step_id, step in steps.items() if "output" in step]
    assert whole == [f"s{n}" for n in range(SHOWN)]
    assert steps["s0"]["output"] == orjson.loads(LARGE)
    told = [{key: value for key, value in steps[f"s{n}"].items() if key != "finished_at"} for n in (8, 9)]
    assert told == [{"status": "completed", "attempts": 1, "output_bytes": len(LARGE)}] * 2
    assert "output_bytes" not in steps["s0"]


@pytest.mark.usefixtures("index")
async def test_a_list_shows_large_outputs_as_far_as_one_answer_may_hold_them(
    http: ASGIConductor, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "PAGE_BYTES_MAX", OUTPUTS_SHOWN_BYTES_MAX)
    first = await begun(http, store, {f"s{n}": LARGE for n in range(6)})
    second = await begun(http, store, {f"s{n}": LARGE for n in range(6)} | {"s7": b"7"})
    listed = {run["run_id"]: run["steps"] for run in (await http.simulate_get("/runs?workflow=wide&limit=2")).json}
    whole = {
        run_id: [step_id for step_id, step in listed[run_id].items() if "output" in step] for run_id in (first, second)
    }
    assert whole == {second: [f"s{n}" for n in range(6)] + ["s7"], first: ["s0", "s1"]}
    assert listed[first]["s5"]["output_bytes"] == len(LARGE)


async def test_any_output_comes_whole_on_its_own(http: ASGIConductor, store: Store) -> None:
    odd = b'{ "big" : 12345678901234567890123, "a":"' + b"y" * 8 * KIB + b'" }'
    run_id = await begun(http, store, {"s0": LARGE, "s1": odd, "s2": b"[ 1 ]"})
    for step_id, body in {"s0": LARGE, "s1": odd, "s2": b"[ 1 ]"}.items():
        answer = await http.simulate_get(f"/runs/{run_id}/steps/{step_id}/output")
        assert (200, "application/json", body) == (answer.status_code, answer.headers["content-type"], answer.content)


async def test_what_has_no_output_is_not_found_and_says_why(http: ASGIConductor, store: Store) -> None:
    run_id = await begun(http, store, {})
    asked = {
        f"/runs/{run_id}/steps/s0/output": (404, f'step "s0" of run {run_id} has no output: it is queued'),
        f"/runs/{run_id}/steps/nosuch/output": (404, f'run {run_id} has no step "nosuch"'),
        f"/runs/{'0' * 32}/steps/s0/output": (404, f"run {'0' * 32} does not exist"),
        f"/runs/{run_id}/steps//output": (400, "the step id is missing"),
        "/runs//steps/s0/output": (400, "the run id is missing"),
    }
    found = {path: await http.simulate_get(path) for path in asked}
    assert asked == {path: (answer.status_code, answer.text.strip()) for path, answer in found.items()}


async def test_an_output_that_was_trimmed_from_the_history_is_named(http: ASGIConductor, store: Store) -> None:
    run_id = await begun(http, store, {"s0": LARGE, "s1": LARGE})
    stored = await store.history.read(run_id)
    await store.runs.put(run_id, await snapshot_of(store, run_id))
    await store.broker.api(f"STREAM.MSG.DELETE.{names.HISTORY}", {"seq": stored[1].seq})
    steps = (await http.simulate_get(f"/runs/{run_id}")).json["steps"]
    answer = await http.simulate_get(f"/runs/{run_id}/steps/s0/output")
    assert (404, True) == (answer.status_code, f"event {stored[1].seq} of the history" in answer.text)
    assert ("output" in steps["s0"], steps["s0"]["output_bytes"], "output" in steps["s1"]) == (False, len(LARGE), True)


async def snapshot_of(store: Store, run_id: str) -> bytes:
    """What an engine would write."""
    run = (await load(store, run_id)).run
    assert run is not None
    return to_snapshot(run)


async def test_a_large_history_comes_in_pages(http: ASGIConductor, store: Store) -> None:
    run_id = await begun(http, store, {f"s{n}": LARGE for n in range(10)})
    for number in range(10):  # what comes late changes nothing, and is in the log all the same
        await store.history.append(
            StepCompleted(run_id=run_id, step_id="s0", payload=Raw(LARGE)), message_id=f"late.{run_id}.{number}"
        )
    path, counts, seqs = f"/runs/{run_id}/events", [], []
    while path:
        answer = await http.simulate_get(path)
        counts.append(len(answer.json))
        seqs += [event["seq"] for event in answer.json]
        link = answer.headers.get("link")
        path = re.fullmatch(r'<(.+)>; rel="next"', link)[1] if link else ""  # type: ignore[index]
    assert counts == [EVENTS_BYTES_MAX // PAYLOAD_BYTES_MAX + 1, 21 - EVENTS_BYTES_MAX // PAYLOAD_BYTES_MAX - 1]
    assert seqs == [one.seq for one in await store.history.read(run_id)]


async def test_a_large_input_is_shown_like_an_output(http: ASGIConductor, store: Store) -> None:
    await store.definitions.register(parse(WIDE))
    run_id = (await http.simulate_post("/runs", body=b'{"workflow":"wide","input":' + LARGE + b"}")).json["run_id"]
    later = {"workflow": "wide", "input": orjson.loads(LARGE), "run_at": "2099-01-01T00:00:00Z"}
    scheduled = (await http.simulate_post("/runs", json=later)).json["run_id"]
    loaded = await load(store, run_id)
    assert loaded.run is not None
    assert len(to_snapshot(loaded.run)) < 4 * KIB
    for path in (f"/runs/{run_id}", f"/runs/{scheduled}", f"/runs/{scheduled}/scheduled"):
        shown = (await http.simulate_get(path)).json
        assert (shown["input"], "input_bytes" in shown) == (orjson.loads(LARGE), False)
    for number in range(10):
        await store.history.append(StepCompleted(run_id=run_id, step_id=f"s{number}", payload=Raw(LARGE)))
    steps = (await http.simulate_get(f"/runs/{run_id}")).json["steps"]
    assert [step_id for step_id, step in steps.items() if "output" in step] == [f"s{n}" for n in range(SHOWN - 1)]
    for place in await store.history.read(run_id):
        await store.broker.api(f"STREAM.MSG.DELETE.{names.HISTORY}", {"seq": place.seq})
    await store.runs.put(run_id, to_snapshot(loaded.run))
    assert (await http.simulate_get(f"/runs/{run_id}")).json["input_bytes"] == len(LARGE)


INPUTS = {
    "name": "given",
    "steps": [
        {"id": "first", "task": "work"},
        {"id": "plain", "task": "work", "depends_on": ["first"]},
        {
            "id": "told",
            "task": "work",
            "depends_on": ["first"],
            "with": {"who": "${{ input.who }}", "n": "${{ steps.first.output.n }}"},
        },
        {"id": "both", "task": "work", "depends_on": ["plain", "told"]},
    ],
}


async def test_a_step_shows_what_it_was_given(http: ASGIConductor, store: Store) -> None:
    await store.definitions.register(parse(INPUTS))
    started = await http.simulate_post("/runs", json={"workflow": "given", "input": {"who": "Ada"}})
    run_id = started.json["run_id"]

    async def given(step_id: str) -> tuple[int, str]:
        answer = await http.simulate_get(f"/runs/{run_id}/steps/{step_id}/input")
        return answer.status_code, answer.text.strip()

    assert (200, '{"who": "Ada"}') == await given("first")
    assert (404, f'step "plain" of run {run_id} has no input yet: it waits for other steps') == await given("plain")
    await store.history.append(StepCompleted(run_id=run_id, step_id="first", payload=Raw(b'{"n":7}')))
    assert (200, '{"n":7}') == await given("plain")
    status, told = await given("told")
    assert (200, {"who": "Ada", "n": 7}) == (status, orjson.loads(told))
    await store.history.append(StepCompleted(run_id=run_id, step_id="plain", payload=Raw(LARGE)))
    await store.history.append(StepCompleted(run_id=run_id, step_id="told", payload=Raw(b"2")))
    status, both = await given("both")
    assert (200, {"plain": orjson.loads(LARGE), "told": 2}) == (status, orjson.loads(both))
    assert (404, f'run {run_id} has no step "none"') == await given("none")


async def test_ids_of_an_input_are_checked(http: ASGIConductor) -> None:
    none = "0" * 32
    for path, status in (
        (f"/runs/{none}/steps/a..b/input", 400),
        (f"/runs/{none}/steps/a/input", 404),
        ("/runs/x/steps/a/input", 404),
    ):
        assert status == (await http.simulate_get(path)).status_code, path
