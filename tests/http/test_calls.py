"""Calling a workflow: the answer is that of the run, whatever becomes of the caller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import uuid4

import orjson
import pytest
from falcon.testing import ASGIConductor, Result
from msgspec import Raw

from penstock.actors.control.calls import called
from penstock.broker import names
from penstock.broker.nats.direct import DirectReader, Stored
from penstock.broker.store import Store
from penstock.config.limits import PAYLOAD_BYTES_MAX
from penstock.engine.run.event_payloads import Completed, Failure, Reply, Resumed, RunFailure, StepFacts
from penstock.engine.run.events import (
    StepCompleted,
    StepFailed,
    StepStarted,
    WorkflowCancelled,
    WorkflowCompleted,
    WorkflowFailed,
    WorkflowResumed,
)
from tests.support.waiting import until


async def call(http: ASGIConductor, name: str = "one", body: object = None, **options: Any) -> Result:
    given = {"timeout_ms": "20000", **options.pop("query", {})}
    content = b"" if body is None else orjson.dumps(body)
    query = "&".join(f"{key}={value}" for key, value in given.items())
    return await http.simulate_post(f"/workflows/{name}/call?{query}", body=content, **options)


async def begun(http: ASGIConductor, calling: asyncio.Task[Result], store: Store, before: int) -> str:
    """The id of the run that the call has started, once it is in the log."""

    async def find() -> str | None:
        assert not calling.done(), calling.result().text
        seq = await store.history.seq_after(before)
        if seq is None:
            return None
        stored = await store.broker.api("STREAM.MSG.GET.WORKFLOW_HISTORY", {"seq": seq})
        return str(stored["message"]["subject"]).rpartition(".")[2]

    return await until(find)


async def calling(http: ASGIConductor, store: Store, **options: Any) -> tuple[asyncio.Task[Result], str]:
    before = await store.history.last_seq()
    task = asyncio.create_task(call(http, **options))
    return task, await begun(http, task, store, before)


async def complete(store: Store, run_id: str, output: bytes = b'{"n":1}') -> None:
    await store.history.append(StepCompleted(run_id=run_id, step_id="a", attempt_number=1, payload=Raw(output)))
    await store.history.append(WorkflowCompleted(run_id=run_id, payload=Completed(Raw(output))))


async def fail(store: Store, run_id: str, error: str = 'step "a" failed: no luck') -> None:
    failure = Failure("no luck", failure_type="non_retriable")
    await store.history.append(StepFailed(run_id=run_id, step_id="a", attempt_number=1, payload=failure))
    await store.history.append(WorkflowFailed(run_id=run_id, payload=RunFailure(error, "a")))


async def test_the_answer_is_the_output_of_the_run(http: ASGIConductor, store: Store) -> None:
    answer, run_id = await calling(http, store, body={"who": "Ada"})
    await complete(store, run_id)
    done = await answer
    assert (200, b'{"n":1}') == (done.status_code, done.content)
    assert "application/json" == done.headers["content-type"]
    assert f"/runs/{run_id}" == done.headers["location"]
    assert "completed" == done.headers["penstock-outcome"]
    found = (await http.simulate_get(done.headers["location"])).json
    assert ("completed", {"who": "Ada"}) == (found["status"], found["input"])


async def test_a_failed_run_is_502_with_its_error(http: ASGIConductor, store: Store) -> None:
    answer, run_id = await calling(http, store)
    await fail(store, run_id)
    done = await answer
    assert (502, 'step "a" failed: no luck\n') == (done.status_code, done.text)
    assert done.headers["content-type"].startswith("text/plain")
    assert (f"/runs/{run_id}", "failed") == (done.headers["location"], done.headers["penstock-outcome"])


async def test_a_cancelled_run_is_502(http: ASGIConductor, store: Store) -> None:
    answer, run_id = await calling(http, store)
    await store.history.append(WorkflowCancelled(run_id=run_id))
    done = await answer
    assert (502, f"run {run_id} was cancelled\n") == (done.status_code, done.text)
    assert (f"/runs/{run_id}", "cancelled") == (done.headers["location"], done.headers["penstock-outcome"])


@pytest.mark.parametrize("timeout", ["0", "50"])
async def test_a_run_that_takes_longer_is_202_and_goes_on(http: ASGIConductor, timeout: str) -> None:
    done = await call(http, query={"timeout_ms": timeout})
    assert (202, ["run_id"]) == (done.status_code, list(done.json))
    assert (f"/runs/{done.json['run_id']}", "running") == (
        done.headers["location"],
        done.headers["penstock-outcome"],
    )
    assert "running" == (await http.simulate_get(done.headers["location"])).json["status"]


async def test_a_workflow_that_nobody_registered_is_404(http: ASGIConductor) -> None:
    done = await call(http, "unknown")
    assert (404, True) == (done.status_code, "unknown" in done.text)
    assert "location" not in done.headers


@pytest.mark.parametrize("name", [".", "a b", "a" * 129])
async def test_what_is_no_name_is_400(http: ASGIConductor, name: str) -> None:
    assert 400 == (await call(http, name.replace(" ", "%20").replace(".", "%2E"))).status_code


async def test_the_input_is_checked_before_a_run_starts(http: ASGIConductor, store: Store) -> None:
    before = await store.history.last_seq()
    done = await call(http, "typed", {"n": "x"})
    assert (400, True) == (done.status_code, "input.n" in done.text)
    assert 400 == (await http.simulate_post("/workflows/one/call", body=b"{")).status_code
    assert 413 == (await http.simulate_post("/workflows/one/call", body=b"1" * (PAYLOAD_BYTES_MAX + 1))).status_code
    assert before == await store.history.last_seq()


@pytest.mark.parametrize("query", ["timeout_ms=300001", "timeout_ms=-1", "timeout_ms=x", "wait=1", "timeout_ms="])
async def test_a_wrong_query_is_400(http: ASGIConductor, query: str) -> None:
    assert 400 == (await http.simulate_post(f"/workflows/one/call?{query}")).status_code


async def test_the_same_key_gets_the_same_run_and_the_same_answer(http: ASGIConductor, store: Store) -> None:
    key = {"Idempotency-Key": "k-same"}
    first, run_id = await calling(http, store, headers=key)
    second = asyncio.create_task(call(http, headers=key))
    await complete(store, run_id, b"[1]")
    third = await call(http, headers=key)
    started = (await http.simulate_post("/runs", body=b'{"workflow":"one"}', headers=key)).json
    assert run_id == started["run_id"]
    for done in (await first, await second, third):
        assert (200, b"[1]", f"/runs/{run_id}") == (done.status_code, done.content, done.headers["location"])


async def test_a_call_whose_key_is_new_reads_nothing(
    http: ASGIConductor, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 0
    pages = DirectReader.pages

    def counted(reader: DirectReader, stream: str, *more: Any, **options: Any) -> AsyncIterator[Sequence[Stored]]:
        nonlocal reads
        reads += stream == names.HISTORY
        return pages(reader, stream, *more, **options)

    monkeypatch.setattr(DirectReader, "pages", counted)
    key = {"Idempotency-Key": "k-new"}
    first, run_id = await calling(http, store, headers=key)
    await store.history.append(StepStarted(run_id=run_id, step_id="a", attempt_number=1))
    await complete(store, run_id, b"[2]")
    assert (200, b"[2]", 0) == ((await first).status_code, (await first).content, reads)

    again = await call(http, headers=key)  # nothing will come of a run that has ended: it has to be read
    assert (200, b"[2]", True) == (again.status_code, again.content, reads > 0)


async def test_a_caller_that_leaves_ends_nothing_and_gets_the_answer_later(http: ASGIConductor, store: Store) -> None:
    key = {"Idempotency-Key": "k-left"}
    first, run_id = await calling(http, store, headers=key)
    first.cancel()
    await asyncio.wait([first])
    await complete(store, run_id, b"2")
    done = await call(http, headers=key)
    assert (200, b"2", f"/runs/{run_id}") == (done.status_code, done.content, done.headers["location"])


async def test_the_answer_stays_that_of_the_first_end(http: ASGIConductor, store: Store) -> None:
    """A resumed run ends a second time; whoever repeats the call gets what the first caller got."""
    key = {"Idempotency-Key": "k-resumed"}
    first, run_id = await calling(http, store, headers=key)
    await fail(store, run_id)
    assert 502 == (await first).status_code
    await store.history.append(WorkflowResumed(run_id=run_id, payload=Resumed(steps=("a",))))
    await store.history.append(StepCompleted(run_id=run_id, step_id="a", attempt_number=2, payload=Raw(b"3")))
    await store.history.append(WorkflowCompleted(run_id=run_id, payload=Completed(Raw(b"3"), resumes=1)))
    assert "completed" == (await http.simulate_get(f"/runs/{run_id}")).json["status"]
    assert 502 == (await call(http, headers=key)).status_code


async def test_a_large_output_is_read_back(http: ASGIConductor, store: Store) -> None:
    output = b'"%b"' % (b"x" * 100_000)
    answer, run_id = await calling(http, store)
    await complete(store, run_id, output)
    assert output == (await answer).content


async def test_copies_that_are_lost_are_read_from_the_stream(
    http: ASGIConductor, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a connection that is lost for a moment: the broker's copies are only the fast way."""
    from penstock.broker.streams import watch

    async def lose(*_: object) -> None:
        return

    monkeypatch.setattr(watch, "QUIET_S", 0.05)
    monkeypatch.setattr(watch.Copies, "receive", lose)
    answer, run_id = await calling(http, store)
    await complete(store, run_id)
    assert 200 == (await answer).status_code


def responding(status: object = 201, headers: object = None, body: object = "<p>", name: str = "responding") -> bytes:
    config = {"status": status, "headers": headers or {}, "body": body}
    steps = [
        {"id": "say", "type": "respond", "config": config},
        {"id": "again", "type": "respond", "config": {"body": "later"}, "depends_on": ["say"]},
        {"id": "a", "task": "work", "depends_on": ["say"]},
    ]
    return orjson.dumps({"name": name, "steps": steps})


async def respond(store: Store, run_id: str, step_id: str, reply: Reply, attempt: int = 1) -> None:
    await store.history.append(
        StepStarted(run_id=run_id, step_id=step_id, attempt_number=attempt, payload=StepFacts(reply=reply)),
        message_id=uuid4().hex,  # the broker would drop a repeat
    )


@pytest.mark.parametrize(
    ("reply", "content_type", "body"),
    [
        (Reply(201, {"X-A": "1"}, Raw(b'"<p>"')), "application/json", b'"<p>"'),
        (Reply(201, {"X-A": "1", "content-type": "text/html"}, Raw(b'"<p>\\n"')), "text/html", b"<p>\n"),
        (Reply(201, {"X-A": "1", "Content-Type": "application/x"}, Raw(b'{"n":1}')), "application/x", b'{"n":1}'),
        (Reply(201, {"X-A": "1"}), "application/json", b"null"),
    ],
)
async def test_a_response_is_the_answer_while_the_run_goes_on(
    http: ASGIConductor, store: Store, reply: Reply, content_type: str, body: bytes
) -> None:
    await http.simulate_post("/workflows", body=responding())
    answer, run_id = await calling(http, store, name="responding")
    await respond(store, run_id, "say", reply)
    done = await answer
    assert (201, content_type, body) == (done.status_code, done.headers["content-type"], done.content)
    assert ("1", "responded", f"/runs/{run_id}") == tuple(
        done.headers[name] for name in ("x-a", "penstock-outcome", "location")
    )
    assert "running" == (await http.simulate_get(f"/runs/{run_id}")).json["status"]


@pytest.mark.parametrize("status", [204, 304])
async def test_a_status_without_a_body_has_none(http: ASGIConductor, store: Store, status: int) -> None:
    await http.simulate_post("/workflows", body=responding())
    answer, run_id = await calling(http, store, name="responding")
    await respond(store, run_id, "say", Reply(status, {"Set-Cookie": "a=b"}, Raw(b'"x"')))
    done = await answer
    assert (status, b"", "a=b") == (done.status_code, done.content, done.headers["set-cookie"])


async def test_the_first_response_of_the_log_counts(http: ASGIConductor, store: Store) -> None:
    """What comes late or for a step that is not due gives none, and what comes after the first is only recorded."""
    key = {"Idempotency-Key": "k-first"}
    await http.simulate_post("/workflows", body=responding())
    answer, run_id = await calling(http, store, name="responding", headers=key)
    await respond(store, run_id, "again", Reply(body=Raw(b'"not due"')))
    await respond(store, run_id, "say", Reply(body=Raw(b'"other attempt"')), attempt=2)
    await respond(store, run_id, "say", Reply(body=Raw(b'"first"')))
    await respond(store, run_id, "again", Reply(body=Raw(b'"second"')))
    assert b'"first"' == (await answer).content
    assert b'"first"' == (await call(http, "responding", headers=key)).content
    await store.history.append(WorkflowCancelled(run_id=run_id))
    assert (200, b'"first"') == ((last := await call(http, "responding", headers=key)).status_code, last.content)
    steps = (await http.simulate_get(f"/runs/{run_id}")).json["steps"]
    assert ("first", "second") == (steps["say"]["output"], steps["again"]["output"])


async def test_nothing_of_a_call_stays_behind(store: Store, definitions: None) -> None:
    definition, digest = await store.definitions.latest("one")
    receivers = store.broker.client.receivers
    before = {**receivers}
    async with called(store, definition, digest, Raw(b"1")) as waiting:
        assert 1 == len(receivers.keys() - before.keys())
        assert "running" == (await waiting.answer(asyncio.timeout(0.01))).outcome
    assert before == receivers
