from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import NamedTuple

import httpx2
import orjson
import pytest
from falcon.testing import ASGIConductor
from msgspec import Raw

from penstock.actors.control import run_operations
from penstock.actors.control.run_operations import now
from penstock.broker import names
from penstock.broker.store import Store
from penstock.engine.run.event_payloads import Completed
from penstock.engine.run.events import Event, StepCompleted, StepStarted, WorkflowCompleted
from penstock.engine.times import rfc3339

STREAM = {"Accept": "text/event-stream"}


class Message(NamedTuple):
    id: int
    event: str
    data: bytes


async def test_the_history_is_an_array_in_the_order_of_its_sequences(http: ASGIConductor, store: Store) -> None:
    run_id = await _run(http, store)
    found = (await http.simulate_get(f"/runs/{run_id}/events")).json
    assert ["workflow.started", "step.started", "step.completed", "workflow.completed"] == [
        event["type"] for event in found
    ]
    assert sorted(event["seq"] for event in found) == [event["seq"] for event in found]
    assert {run_id} == {event["run_id"] for event in found}
    assert {"n": 1} == found[2]["payload"]


async def test_after_leaves_out_what_was_seen(http: ASGIConductor, store: Store) -> None:
    run_id = await _run(http, store)
    found = (await http.simulate_get(f"/runs/{run_id}/events")).json
    assert found[2:] == (await http.simulate_get(f"/runs/{run_id}/events?after={found[1]['seq']}")).json
    assert [] == (await http.simulate_get(f"/runs/{run_id}/events?after={found[-1]['seq']}")).json
    assert [] == (await http.simulate_get(f"/runs/{run_id}/events?after={2**63 - 1}")).json


@pytest.mark.parametrize("after", ["-1", "x", "", "1.5", "9223372036854775808", "%D9%A1"])
async def test_after_that_is_no_sequence_is_refused(http: ASGIConductor, store: Store, after: str) -> None:
    run_id = await _run(http, store)
    answer = await http.simulate_get(f"/runs/{run_id}/events?after={after}")
    assert 400 == answer.status_code
    assert "after" in answer.text
    resumed = await http.simulate_get(f"/runs/{run_id}/events", headers={**STREAM, "Last-Event-ID": after or "x"})
    assert 400 == resumed.status_code


async def test_an_unknown_run_has_no_stream_either(http: ASGIConductor) -> None:
    assert 404 == (await http.simulate_get(f"/runs/{'0' * 32}/events", headers=STREAM)).status_code


async def test_what_is_no_event_is_left_out(http: ASGIConductor, store: Store, served: str) -> None:
    run_id = await _run(http, store)
    for body in (b"", b"{", b"[]", b"\xff", b'{"type":"step.flown"}', b'{"type":"signal.received","run_id":"\xff"}'):
        await store.publisher.send(names.history_subject(run_id), body)
    assert 4 == len((await http.simulate_get(f"/runs/{run_id}/events")).json)
    assert 4 == len([one async for one in _stream(served, run_id)])


async def test_an_event_is_shown_with_the_time_that_its_run_shows_and_without_nulls(
    http: ASGIConductor, store: Store, served: str
) -> None:
    run_id = await _start(http)
    told = {
        "type": "signal.received",
        "run_id": run_id,
        "timestamp": "yesterday",
        "trace_parent": None,
        "more": 1,
        "payload": {"name": "go"},
    }
    await store.publisher.send(names.history_subject(run_id), orjson.dumps(told))
    [_, stored] = await store.history.read(run_id)
    expected = {
        "type": "signal.received",
        "run_id": run_id,
        "timestamp": rfc3339(stored.at),
        "more": 1,
        "payload": {"name": "go"},
    }
    assert {"seq": stored.seq, **expected} == (await http.simulate_get(f"/runs/{run_id}/events")).json[1]
    stream = _stream(served, run_id)
    async with aclosing(stream):
        assert [stored.seq, expected] == [
            (await anext(stream), message := await anext(stream))[1].id,
            orjson.loads(message.data),
        ]


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("2026-01-01T00:00:00.25Z", "2026-01-01T00:00:00.25Z"),
        ("2026-01-01T01:00:00.25+01:00", "2026-01-01T00:00:00.250000Z"),
        ("2026-01-01T00:00:02Z", "2026-01-01T00:00:01Z"),  # not after the answer
        ("yesterday", "2026-01-01T00:00:01Z"),
        (None, None),
    ],
)
async def test_an_answer_shows_when_its_execution_began_as_its_run_does(
    http: ASGIConductor, store: Store, served: str, said: str | None, shown: str | None
) -> None:
    run_id = await _start(http)
    about = {"run_id": run_id, "step_id": "a", "worker_id": "w", "attempt_number": 1, "delivery": 2}
    told = {"type": "step.completed", "timestamp": "2026-01-01T00:00:01Z", "started_at": said, **about, "payload": 1}
    await store.publisher.send(names.history_subject(run_id), orjson.dumps(told))
    [_, found] = (await http.simulate_get(f"/runs/{run_id}/events")).json
    assert (shown, 2, 1) == (found.get("started_at"), found["delivery"], found["payload"])
    stream = _stream(served, run_id)
    async with aclosing(stream):
        await anext(stream)
        assert found == {"seq": found["seq"], **orjson.loads((await anext(stream)).data)}
    step = (await http.simulate_get(f"/runs/{run_id}")).json["steps"]["a"]
    assert ("completed", "w", shown) == (step["status"], step["worker_id"], step.get("started_at"))
    exported = (await http.simulate_get(f"/runs/{run_id}/export")).json["events"]
    assert said == exported[1]["started_at"]  # as it is stored


async def test_the_stream_of_an_ended_run_has_everything_and_ends(
    http: ASGIConductor, store: Store, served: str
) -> None:
    run_id = await _run(http, store)
    stored = await store.history.read(run_id)
    found = [one async for one in _stream(served, run_id)]
    assert [one.seq for one in stored] == [one.id for one in found]
    assert [one.data for one in stored] == [one.data for one in found]
    assert "workflow.completed" == found[-1].event


async def test_a_stream_is_live_and_ends_with_the_run(http: ASGIConductor, store: Store, served: str) -> None:
    run_id = await _start(http)
    stream = _stream(served, run_id)
    assert "workflow.started" == (await anext(stream)).event
    for event in _story(run_id):
        await store.history.append(event)
    assert ["step.started", "step.completed", "workflow.completed"] == [one.event async for one in stream]


async def test_a_stream_goes_on_after_the_last_event_that_was_seen(
    http: ASGIConductor, store: Store, served: str
) -> None:
    run_id = await _run(http, store)
    found = [one async for one in _stream(served, run_id)]
    assert found[2:] == [one async for one in _stream(served, run_id, str(found[1].id))]
    assert [] == [one async for one in _stream(served, run_id, str(found[-1].id))]


async def test_an_event_that_did_not_end_the_run_does_not_end_the_stream(
    http: ASGIConductor, store: Store, served: str
) -> None:
    run_id = await _start(http)
    await store.history.append(WorkflowCompleted(run_id=run_id, timestamp=now()))  # too early: a step is open
    stream = _stream(served, run_id)
    assert ["workflow.started", "workflow.completed"] == [(await anext(stream)).event for _ in range(2)]
    await run_operations.cancel(store, run_id)
    assert ["workflow.cancelled"] == [one.event async for one in stream]


async def test_line_ends_in_a_payload_stay_within_the_message(http: ASGIConductor, store: Store, served: str) -> None:
    run_id = (await http.simulate_post("/runs", body=b'{"workflow":"one","input":{\r\n"a":\n"b\\nc"}}')).json["run_id"]
    message = await anext(_stream(served, run_id))
    assert b'{  "a": "b\\nc"}' in message.data


async def test_a_quiet_stream_says_something_within_five_seconds(http: ASGIConductor, served: str) -> None:
    run_id = await _start(http)
    blocks = _blocks(served, run_id, {})
    assert ": " == await anext(blocks)
    assert (await anext(blocks)).startswith("event: workflow.started")
    async with asyncio.timeout(5):
        assert ": " == await anext(blocks)
    await blocks.aclose()


async def _stream(served: str, run_id: str, last: str | None = None) -> AsyncIterator[Message]:
    """The messages of a stream until it ends."""
    async with aclosing(_blocks(served, run_id, {} if last is None else {"Last-Event-ID": last})) as blocks:
        async for block in blocks:
            if not block.startswith(":"):
                fields = dict(line.split(": ", 1) for line in block.split("\n"))
                yield Message(int(fields["id"]), fields["event"], fields["data"].encode())


async def _blocks(served: str, run_id: str, headers: dict[str, str]) -> AsyncGenerator[str]:
    async with (
        httpx2.AsyncClient(base_url=served, trust_env=False) as client,
        client.stream("GET", f"/runs/{run_id}/events", headers={**STREAM, **headers}) as answer,
    ):
        assert ("no-cache", "no") == (answer.headers["cache-control"], answer.headers["x-accel-buffering"])
        left = ""
        async for text in answer.aiter_text():
            *blocks, left = (left + text).split("\n\n")
            for block in blocks:
                yield block
        assert "" == left


async def _start(http: ASGIConductor) -> str:
    run_id = (await http.simulate_post("/runs", body=b'{"workflow":"one"}')).json["run_id"]
    assert isinstance(run_id, str)
    return run_id


async def _run(http: ASGIConductor, store: Store) -> str:
    """A run with its whole story."""
    run_id = await _start(http)
    for event in _story(run_id):
        await store.history.append(event)
    return run_id


def _story(run_id: str) -> list[Event]:
    return [
        StepStarted(run_id=run_id, step_id="a", timestamp=now(), attempt_number=1),
        StepCompleted(run_id=run_id, step_id="a", timestamp=now(), attempt_number=1, payload=Raw(b'{"n":1}')),
        WorkflowCompleted(run_id=run_id, timestamp=now(), payload=Completed(Raw(b'{"n":1}'))),
    ]
