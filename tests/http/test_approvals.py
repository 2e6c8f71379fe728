"""Approvals from the request to the decision: the front end over a real broker, and a shard that does what the engine
orders."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any

import orjson
import pytest
from falcon.testing import ASGIConductor, Result
from nats.aio.msg import Msg

from penstock.actors.control import approvals
from penstock.actors.control.run_operations import now
from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.broker import names, record_keys
from penstock.broker.run_ids import new_run_id
from penstock.broker.store import Store
from penstock.engine.run.event_payloads import Decision
from penstock.engine.run.events import ApprovalGranted, ApprovalRejected, ApprovalRequested, Event, decode
from tests.support.clocks import set_clock
from tests.support.waiting import until
from tests.support.world import echo, ended, register, start


@pytest.fixture
async def shard(store: Store) -> AsyncIterator[None]:
    async with open_shard(store, new_member("shard")):
        yield


def definition(name: str, **config: Any) -> dict[str, Any]:
    return {"name": name, "steps": [{"id": "ok", "type": "approval", "config": config}]}


async def requested(store: Store, run_id: str, attempt: int = 1) -> ApprovalRequested:
    """The request, as soon as it is in the history."""
    async with asyncio.timeout(10):
        async for stored in store.history.follow(run_id):
            event = None if stored is None else decode(stored.data)
            if isinstance(event, ApprovalRequested) and event.attempt_number == attempt:
                return event
    raise AssertionError("unreachable")


async def asked(store: Store, document: dict[str, Any]) -> tuple[str, str]:
    """A run that waits for its approval, and the token."""
    run_id = await start(store, document)
    return run_id, (await requested(store, run_id)).payload.token


async def decide(
    http: ASGIConductor, run_id: str, token: str, action: str = "approve", step: str = "ok", **body: Any
) -> Result:
    content = orjson.dumps(body) if body else b""
    return await http.simulate_post(
        f"/runs/{run_id}/approval/{step}", params={"action": action, "token": token}, body=content
    )


async def decide_by_right(http: ASGIConductor, run_id: str, step: str = "ok", **body: Any) -> Result:
    return await http.simulate_post(f"/approvals/{run_id}/{step}", body=orjson.dumps(body))


async def events(store: Store, run_id: str) -> list[Event]:
    return [decode(stored.data) for stored in await store.history.read(run_id)]


async def test_an_approved_step_completes_with_the_decision_as_its_output(
    http: ASGIConductor, store: Store, shard: None
) -> None:
    run_id, token = await asked(store, definition("approve"))
    waiting = (await http.simulate_get(f"/runs/{run_id}")).json
    assert ("running", "running") == (waiting["status"], waiting["steps"]["ok"]["status"])
    answer = await decide(http, run_id, token, comment="fine", approved_by="ann")
    assert (200, {"status": "approved", "run_id": run_id, "step": "ok"}) == (answer.status_code, answer.json)
    await ended(store, run_id)
    run = (await http.simulate_get(f"/runs/{run_id}")).json
    assert ("completed", {"comment": "fine", "approved_by": "ann"}) == (run["status"], run["steps"]["ok"]["output"])


async def test_a_decision_needs_no_body_and_its_output_is_then_empty(
    http: ASGIConductor, store: Store, shard: None
) -> None:
    run_id, token = await asked(store, definition("bare"))
    assert 200 == (await decide(http, run_id, token)).status_code
    assert b"{}" == bytes((await ended(store, run_id)).steps["ok"].output)  # type: ignore[arg-type]


async def test_a_rejected_step_fails_its_run_and_is_a_dead_letter(
    http: ASGIConductor, store: Store, shard: None
) -> None:
    run_id, token = await asked(store, definition("reject"))
    answer = await decide(http, run_id, token, "reject", comment="too dear", approved_by="bob")
    assert (200, "rejected") == (answer.status_code, answer.json["status"])
    run = await ended(store, run_id)
    assert ("failed", 'step "ok" failed: rejected by bob: too dear') == (run.status, run.error)
    letters = await store.reader.subject(names.DEAD, names.dead_subject("approval", run_id, "ok"))
    assert 1 == len(letters)


async def test_of_fifty_decisions_at_once_one_counts(http: ASGIConductor, store: Store, shard: None) -> None:
    run_id, token = await asked(store, definition("many"))
    answers = await asyncio.gather(*(decide(http, run_id, token, approved_by=f"p{n}") for n in range(50)))
    assert [200] + [409] * 49 == sorted(answer.status_code for answer in answers)
    winner = next(n for n, answer in enumerate(answers) if answer.status_code == 200)
    run = await ended(store, run_id)
    assert {"approved_by": f"p{winner}"} == orjson.loads(bytes(run.steps["ok"].output))  # type: ignore[arg-type]
    granted = [one for one in await store.history.read(run_id) if isinstance(decode(one.data), ApprovalGranted)]
    assert 1 == len(granted)


async def test_of_fifty_equal_decisions_in_one_instant_one_counts(
    http: ASGIConductor, store: Store, shard: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, token = await asked(store, definition("equal"))
    instant = now()
    monkeypatch.setattr(approvals, "rfc3339", lambda _: instant)
    answers = await asyncio.gather(*(decide(http, run_id, token) for _ in range(50)))
    assert [200] + [409] * 49 == sorted(answer.status_code for answer in answers)
    await ended(store, run_id)


async def test_a_used_token_is_a_conflict_for_ever_whatever_the_action(
    http: ASGIConductor, store: Store, shard: None
) -> None:
    run_id, token = await asked(store, definition("used"))
    await decide(http, run_id, token)
    await ended(store, run_id)
    for action in ("approve", "reject"):
        answer = await decide(http, run_id, token, action)
        assert (409, True) == (answer.status_code, "used already" in answer.text)


async def test_tokens_that_do_not_fit_are_unauthorized(http: ASGIConductor, store: Store, shard: None) -> None:
    run_id, token = await asked(store, definition("first"))
    _, other = await asked(store, definition("second"))
    for wrong in (
        other,
        token[:-1],
        token.upper() if token != token.upper() else token + "0",
        "x",
        token + "\N{SNOWMAN}",
    ):
        assert 401 == (await decide(http, run_id, wrong)).status_code
    assert 401 == (await decide(http, run_id, token, step="unknown")).status_code
    assert 200 == (await decide(http, run_id, token)).status_code


async def test_a_run_that_nobody_started_is_not_found(http: ASGIConductor) -> None:
    answer = await decide(http, new_run_id(), "0" * 64)
    assert (404, True) == (answer.status_code, "does not exist" in answer.text)


@pytest.mark.parametrize(
    ("query", "offender"),
    [
        ("token=x", "action is missing"),
        ("action=approve", "token is missing"),
        ("action=approve&token=", "token is missing"),
        ("action=maybe&token=x", 'action must be approve or reject, not "maybe"'),
        ("action=approve&action=reject&token=x", "action is given 2 times"),
        ("action=approve&token=x&force=1", 'unknown query parameter "force"'),
    ],
)
async def test_a_bad_query_is_named(http: ASGIConductor, query: str, offender: str) -> None:
    answer = await http.simulate_post(f"/runs/{new_run_id()}/approval/ok", query_string=query)
    assert (400, True) == (answer.status_code, offender in answer.text)


@pytest.mark.parametrize(
    ("path", "offender"), [("/runs//approval/ok", "run id is missing"), ("/runs/%s/approval/", "step id is missing")]
)
async def test_a_missing_id_is_named(http: ASGIConductor, path: str, offender: str) -> None:
    answer = await http.simulate_post(path.replace("%s", new_run_id()), query_string="action=approve&token=x")
    assert (400, True) == (answer.status_code, offender in answer.text)


@pytest.mark.parametrize(
    ("body", "offender"), [(b"[]", "must be an object"), (b'{"reason":"x"}', '"reason"'), (b'{"comment":1}', "comment")]
)
async def test_a_bad_body_is_named_and_uses_nothing_up(
    http: ASGIConductor, store: Store, shard: None, body: bytes, offender: str
) -> None:
    run_id, token = await asked(store, definition("body"))
    answer = await http.simulate_post(
        f"/runs/{run_id}/approval/ok", params={"action": "approve", "token": token}, body=body
    )
    assert (400, True) == (answer.status_code, offender in answer.text)
    assert 200 == (await decide(http, run_id, token)).status_code


async def test_a_request_that_nobody_decides_expires_and_its_token_with_it(
    http: ASGIConductor, store: Store, shard: None
) -> None:
    run_id, token = await asked(store, definition("slow", timeout="300ms"))
    run = await ended(store, run_id)
    assert ("failed", 'step "ok" failed: approval expired after 300ms') == (run.status, run.error)
    assert 401 == (await decide(http, run_id, token)).status_code


async def test_a_front_end_whose_clock_is_ahead_lets_a_decision_through_that_is_in_time(
    http: ASGIConductor, store: Store, shard: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, token = await asked(store, definition("ahead", timeout="1h"))
    set_clock(monkeypatch, 7200.0)
    assert 200 == (await decide(http, run_id, token)).status_code


async def test_the_token_of_a_cancelled_run_is_not_valid_any_more(
    http: ASGIConductor, store: Store, shard: None
) -> None:
    run_id, token = await asked(store, definition("cancelled"))
    await http.simulate_post(f"/runs/{run_id}/cancel")
    await ended(store, run_id)
    assert 401 == (await decide(http, run_id, token)).status_code


async def test_the_bucket_holds_a_hash_and_the_history_alone_the_token(
    http: ASGIConductor, store: Store, shard: None
) -> None:
    run_id, token = await asked(store, definition("kept"))
    entry = await until(lambda: store.approval_tokens.get(record_keys.step_key(run_id, "ok")))
    assert sha256(token.encode()).hexdigest() == orjson.loads(entry.value)["sha256"]
    assert 200 == (await decide(http, run_id, token)).status_code
    await ended(store, run_id)
    assert token.encode() not in entry.value
    snapshot, end = await store.runs.get(run_id), await store.history.last(run_id)
    assert end is not None
    kept = names.owner_state(end.headers) if snapshot is None else snapshot.value
    assert kept is not None
    assert token.encode() not in kept
    assert token not in (await http.simulate_get(f"/runs/{run_id}")).text


async def test_the_subject_of_the_definition_receives_all_that_a_decision_needs(
    http: ASGIConductor, store: Store, shard: None
) -> None:
    told: asyncio.Queue[Msg] = asyncio.Queue()
    await store.broker.subscribe("ask.people", told.put)
    run_id = await start(store, definition("tell", subject="ask.people", description="Pay?", metadata={"amount": "5"}))
    async with asyncio.timeout(10):
        notice = orjson.loads((await told.get()).data)
    assert ("tell", "ok", "Pay?", {"amount": "5"}) == (
        notice["workflow"],
        notice["step_id"],
        notice["description"],
        notice["metadata"],
    )
    answer = await http.simulate_post(notice["path"], params={"action": "approve", "token": notice["token"]})
    assert 200 == answer.status_code
    assert run_id == notice["run_id"]


async def test_an_operator_decides_without_the_token(http: ASGIConductor, store: Store, shard: None) -> None:
    run_id, token = await asked(store, definition("operator"))
    answer = await decide_by_right(http, run_id, action="approve", comment="fine", approved_by="ann")
    assert (200, {"status": "approved", "run_id": run_id, "step": "ok"}) == (answer.status_code, answer.json)
    run = await ended(store, run_id)
    assert {"comment": "fine", "approved_by": "ann"} == orjson.loads(bytes(run.steps["ok"].output))  # type: ignore[arg-type]
    assert 409 == (await decide(http, run_id, token)).status_code
    again = await decide_by_right(http, run_id, action="reject")
    assert (409, f'step "ok" of run {run_id} is decided already: it is completed\n') == (again.status_code, again.text)
    assert None is await store.approval_tokens.get(record_keys.step_key(run_id, "ok"))


async def test_an_operators_rejection_fails_the_run(http: ASGIConductor, store: Store, shard: None) -> None:
    run_id, _ = await asked(store, definition("refused"))
    assert "rejected" == (await decide_by_right(http, run_id, action="reject", comment="too dear")).json["status"]
    assert 'step "ok" failed: rejected: too dear' == (await ended(store, run_id)).error


async def test_of_decisions_by_token_and_by_right_at_once_one_counts(
    http: ASGIConductor, store: Store, shard: None
) -> None:
    run_id, token = await asked(store, definition("both"))
    by_right = [decide_by_right(http, run_id, action="reject") for _ in range(20)]
    answers = await asyncio.gather(*by_right, *(decide(http, run_id, token) for _ in range(20)))
    assert [200] + [409] * 39 == sorted(answer.status_code for answer in answers)
    won = next(answer.json["status"] for answer in answers if answer.status_code == 200)
    assert {"approved": "completed", "rejected": "failed"}[won] == (await ended(store, run_id)).status
    decisions = [
        event for event in await events(store, run_id) if isinstance(event, ApprovalGranted | ApprovalRejected)
    ]
    assert 1 == len(decisions)


async def test_an_operator_is_answered_why_there_is_nothing_to_decide(
    http: ASGIConductor, store: Store, shard: None
) -> None:
    document = definition("nothing", timeout="300ms")
    document["steps"].append({"id": "next", "type": "approval", "depends_on": ["ok"]})
    run_id, _ = await asked(store, document)
    early = await decide_by_right(http, run_id, "next", action="approve")
    assert (409, f'step "next" of run {run_id} does not wait for an approval: it is pending\n') == (
        early.status_code,
        early.text,
    )
    unknown = await decide_by_right(http, run_id, "nope", action="approve")
    assert (404, f'run {run_id} has no step "nope"\n') == (unknown.status_code, unknown.text)
    await ended(store, run_id)
    late = await decide_by_right(http, run_id, action="approve")
    assert (409, f'step "ok" of run {run_id} does not wait for an approval: it is failed\n') == (
        late.status_code,
        late.text,
    )
    assert 404 == (await decide_by_right(http, new_run_id(), action="approve")).status_code


@pytest.mark.parametrize(
    ("body", "offender"),
    [
        (b"", "the body"),
        (b"{}", "action is required"),
        (b'{"action":"maybe"}', 'action must be approve or reject, not "maybe"'),
        (b'{"action":"approve","token":"x"}', 'unknown field "token"'),
        (b'{"action":"approve","comment":1}', "comment must be a string"),
    ],
)
async def test_a_bad_decision_of_an_operator_is_named(http: ASGIConductor, body: bytes, offender: str) -> None:
    answer = await http.simulate_post(f"/approvals/{new_run_id()}/ok", body=body)
    assert (400, True) == (answer.status_code, offender in answer.text)


@pytest.mark.parametrize(
    ("path", "told"), [("/approvals//ok", "the run id is missing"), ("/approvals/x/", "the step id is missing")]
)
async def test_an_operators_missing_id_is_named(http: ASGIConductor, path: str, told: str) -> None:
    answer = await http.simulate_post(path, body=b'{"action":"approve"}')
    assert (400, True) == (answer.status_code, told in answer.text)


async def test_what_waits_is_listed_oldest_run_first_and_only_as_long_as_it_waits(
    http: ASGIConductor, store: Store, shard: None
) -> None:
    document = definition("listed", description="Pay?", subject="ask.people", metadata={"amount": "5"})
    first, token = await asked(store, document)
    second, _ = await asked(store, document)
    third, _ = await asked(store, document)
    await until(lambda: _are_listed(http, 3))
    listed = (await http.simulate_get("/approvals?workflow=listed")).json
    assert [first, second, third] == [one["run_id"] for one in listed]
    told = {key: value for key, value in listed[0].items() if not key.endswith("_at")}
    same = {"run_id": first, "workflow_id": "listed", "step_id": "ok", "description": "Pay?", "subject": "ask.people"}
    assert {**same, "metadata": {"amount": "5"}} == told
    assert token not in orjson.dumps(listed).decode()
    page = await http.simulate_get("/approvals?workflow=listed&limit=2")
    link = page.headers["link"]
    assert [first, second] == [one["run_id"] for one in page.json]
    assert [third] == [one["run_id"] for one in (await http.simulate_get(link[1 : link.index(">")])).json]
    await decide(http, first, token)
    await decide_by_right(http, second, action="reject")
    await http.simulate_post(f"/runs/{third}/cancel")
    await ended(store, third)
    assert [] == (await http.simulate_get("/approvals?workflow=listed")).json


async def test_an_approval_of_a_plan_is_listed_and_decided_however_long_its_id_is(
    http: ASGIConductor, store: Store, shard: None
) -> None:
    long = "a" * 128
    ask = {"id": long, "type": "approval", "config": {"description": "Pay?"}}
    planned = orjson.dumps({"steps": [ask]})
    document = {"name": "planned", "steps": [{"id": "plan", "type": "planner", "task": "plan.approvals"}]}
    async with echo(store, "plan.approvals", lambda worker, task: worker.complete(task, planned)):
        run_id, _ = await asked(store, document)
        await until(lambda: _are_listed(http, 1, "planned"))

    [listed] = (await http.simulate_get("/approvals?workflow=planned")).json
    assert (f"plan.{long}", "Pay?") == (listed["step_id"], listed["description"])
    assert 200 == (await decide_by_right(http, run_id, listed["step_id"], action="approve")).status_code
    assert "completed" == (await ended(store, run_id)).status


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "workflow=", "colour=red"])
async def test_a_bad_list_of_approvals_is_named(http: ASGIConductor, query: str) -> None:
    answer = await http.simulate_get(f"/approvals?{query}")
    assert (400, True) == (answer.status_code, query.partition("=")[0] in answer.text)


async def test_what_follows_an_approval_receives_the_decision(http: ASGIConductor, store: Store, shard: None) -> None:
    document = definition("then")
    document["steps"].append({"id": "last", "type": "approval", "depends_on": ["ok"], "task": "ignored"})
    run_id, token = await asked(store, document)
    assert 200 == (await decide(http, run_id, token)).status_code
    second = await until(lambda: _second_token(store, run_id))
    assert 401 == (await decide(http, run_id, token, step="last")).status_code
    assert 200 == (await decide(http, run_id, second, step="last")).status_code
    assert "completed" == (await ended(store, run_id)).status


async def test_a_decision_for_a_step_that_is_none_of_that_kind_is_unauthorized(
    http: ASGIConductor, store: Store
) -> None:
    await register(store, {"name": "plain", "steps": [{"id": "ok", "task": "work"}]})
    run_id = (await http.simulate_post("/runs", json={"workflow": "plain"})).json["run_id"]
    assert 401 == (await decide(http, run_id, "0" * 64)).status_code
    await store.history.append(ApprovalGranted(run_id=run_id, step_id="ok", payload=Decision()))
    assert "running" == (await http.simulate_get(f"/runs/{run_id}")).json["status"]


async def _are_listed(http: ASGIConductor, count: int, workflow: str = "listed") -> bool:
    return count == len((await http.simulate_get(f"/approvals?workflow={workflow}")).json)


async def _second_token(store: Store, run_id: str) -> str | None:
    events = [decode(stored.data) for stored in await store.history.read(run_id)]
    return next(
        (one.payload.token for one in events if isinstance(one, ApprovalRequested) and one.step_id == "last"), None
    )
