"""What a worker over HTTP says of its task: kept, or refused with the reason, and never more than it may."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import msgspec
import orjson
import pytest

from penstock.broker import names
from penstock.broker.live import chunks, lines
from penstock.broker.live.lines import LogLine
from penstock.broker.store import Store
from penstock.config.limits import CHUNK_BYTES_MAX, SAID_AT_ONCE_BYTES
from penstock.config.process import rate_limited_log
from penstock.engine.run.events import StepCompleted
from penstock.worker import Context, Worker
from penstock.worker.live import live_output
from tests.http.bridge import TOKEN, leased, no_room, polled, resolve, room_for_chunks
from tests.support.frontends import FrontEnd
from tests.support.waiting import until
from tests.worker.task_queue import answer, dispatch

LONGER_THAN_A_REQUEST_S = 8.0
CHUNKS = ["x" * 20_000, "y", "z"]


async def logged(store: Store, run_id: str) -> list[LogLine]:
    found = await store.reader.subject(names.LOGS, names.log_subject(run_id, ">"))
    batches = [batch for stored in found if (batch := lines.read(stored.data)) is not None]
    return [line for batch in batches for body in batch.lines if (line := lines.read_line(body)) is not None]


async def streamed(store: Store, run_id: str) -> list[Any]:
    found = await store.reader.subject(names.CHUNKS, names.chunk_subject(run_id, ">"))
    batches = [batch for stored in found if (batch := chunks.read(stored.data)) is not None]
    return [orjson.loads(bytes(body)) for batch in batches for body in batch.chunks]


async def test_lines_and_chunks_are_stored_when_the_answer_comes_from_any_process(
    store: Store, bridge: httpx2.AsyncClient, other: httpx2.AsyncClient, task: str
) -> None:
    run_id = await dispatch(store, task)
    found = await polled(bridge, task, worker_id="w-1")
    for http, text in ((bridge, "one"), (other, "two")):
        line = {"text": text, "level": "WARN", "at": "2026-01-01T00:00:00Z", "fields": {"n": 1}}
        assert {"status": "ok"} == (await resolve(http, found, "log", data=[line])).json()
        assert {"status": "ok"} == (await resolve(http, found, "stream", data={"token": text})).json()
    said = await logged(store, run_id)
    assert [("one", "warning"), ("two", "warning")] == [(line.text, line.level) for line in said]
    assert [{"token": "one"}, {"token": "two"}] == await streamed(store, run_id)
    await resolve(bridge, found, "complete")
    late = await resolve(bridge, found, "log", data=[{"text": "late"}])
    assert 404 == late.status_code
    assert 2 == len(await logged(store, run_id))


async def test_a_repeat_with_the_same_id_is_stored_once(store: Store, bridge: httpx2.AsyncClient, task: str) -> None:
    run_id = await dispatch(store, task)
    found = await polled(bridge, task)
    for _ in range(2):
        await resolve(bridge, found, "log", data=[{"text": "once"}], id="request-1")
        await resolve(bridge, found, "stream", data="once", id="request-2")
        await resolve(bridge, found, "log", data=[{"text": "twice"}])
    assert ["once", "twice", "twice"] == [line.text for line in await logged(store, run_id)]
    assert ["once"] == await streamed(store, run_id)


@pytest.mark.parametrize(
    ("action", "fields", "problem"),
    [
        ("log", {}, "data is required"),
        ("log", {"data": "text"}, "data must be an array of lines, each {text, level?, at?, fields?}"),
        ("log", {"data": [{"text": "x"}, {}]}, "data[1]: text is required"),
        ("log", {"data": ["x"]}, "data[0] must be an object, not a string"),
        ("log", {"data": [{"text": "x", "txt": 1}]}, 'data[0]: unknown field "txt"'),
        (
            "log",
            {"data": [{"text": "x", "level": "loud"}]},
            'data[0].level must be one of debug info warning error critical, not "loud"',
        ),
        (
            "log",
            {"data": [{"text": "x", "at": "noon"}]},
            'data[0].at must be a time such as 2025-01-31T12:00:00Z, not "noon"',
        ),
        ("log", {"data": [{"text": "x", "fields": [1]}]}, "data[0].fields must be an object"),
        ("log", {"data": [{"text": "x"}] * 1001}, "data has 1001 lines, 1000 is the most"),
        ("stream", {}, "data is required"),
        ("progress", {"data": {"total": 1}}, "data: done is required"),
        ("progress", {"data": {"done": -1}}, "data: done must be a number from 0 on, not -1.0"),
        ("progress", {"data": 5}, "data must be an object, not a number"),
    ],
)
async def test_what_is_wrong_is_named_and_nothing_of_it_is_stored(
    store: Store, bridge: httpx2.AsyncClient, task: str, action: str, fields: dict[str, Any], problem: str
) -> None:
    run_id = await dispatch(store, task)
    found = await polled(bridge, task)
    answer = await resolve(bridge, found, action, **fields)
    assert (400, [problem]) == (answer.status_code, answer.text.splitlines())
    assert ([], []) == (await logged(store, run_id), await streamed(store, run_id))


async def test_chunks_have_a_largest_size_and_nobody_speaks_for_a_task_that_he_does_not_hold(
    store: Store, bridge: httpx2.AsyncClient, task: str
) -> None:
    run_id = await dispatch(store, task)
    for action, data in (("log", [{"text": "x"}]), ("stream", "x"), ("progress", {"done": 1})):
        assert 404 == (await resolve(bridge, f"{run_id}.s", action, data=data)).status_code
    found = await polled(bridge, task)
    for size in (CHUNK_BYTES_MAX - 1, 7_000_000):
        assert 413 == (await resolve(bridge, found, "stream", data="x" * size)).status_code
    assert 200 == (await resolve(bridge, found, "stream", data="x" * (CHUNK_BYTES_MAX - 2))).status_code
    assert 1 == len(await streamed(store, run_id))


async def test_a_flood_over_http_is_cut_and_the_lines_of_others_are_not(
    store: Store, bridge: httpx2.AsyncClient, task: str
) -> None:
    flooded, other_run = await dispatch(store, task), await dispatch(store, task)
    tasks = {found["run_id"]: found for found in [await polled(bridge, task), await polled(bridge, task)]}
    for _ in range(16):
        data = [{"text": "x" * 16_000}] * 60
        assert 200 == (await resolve(bridge, tasks[flooded], "log", data=data)).status_code
        assert 200 == (await resolve(bridge, tasks[other_run], "log", data=[{"text": "mine"}])).status_code
    await resolve(bridge, tasks[flooded], "complete")
    found = await logged(store, flooded)
    notices = [msgspec.json.decode(line.fields) for line in found if line.text.endswith(" lines dropped")]
    assert 16 * 60 == len(found) - len(notices) + sum(notice["dropped"] for notice in notices)
    assert 0 < sum(notice["dropped"] for notice in notices) < 16 * 60
    assert 16 == len(await logged(store, other_run))


@pytest.mark.parametrize("kind", ["log", "stream"])
async def test_what_a_flood_has_lost_is_said_even_if_the_store_fails_in_between(
    store: Store, bridge: httpx2.AsyncClient, task: str, kind: str
) -> None:
    run_id = await dispatch(store, task)
    found, accepted = await polled(bridge, task), 0

    async def say(text: str, lines: int = 1) -> int:
        nonlocal accepted
        data: Any = text if kind == "stream" else [{"text": text}] * lines
        answered = await resolve(bridge, found, kind, data=data)
        if answered.status_code == 200:
            accepted += lines
        return answered.status_code

    async def refused() -> bool:
        return await say("y") == 503

    flood = ("x" * 60_000, 1) if kind == "stream" else ("x" * 16_000, 50)
    for _ in range(1 + SAID_AT_ONCE_BYTES // 10_000 // flood[1]):
        assert 200 == await say(*flood)
    async with no_room(store, names.CHUNKS if kind == "stream" else names.LOGS):
        await until(refused)  # until then it is cut, and counted
    assert 200 == (await resolve(bridge, found, "complete")).status_code
    kept, dropped = await kept_and_dropped(store, run_id, kind)
    assert (accepted, True) == (kept + dropped, dropped > 0)


async def kept_and_dropped(store: Store, run_id: str, kind: str) -> tuple[int, int]:
    if kind == "log":
        said = await logged(store, run_id)
        notices = [msgspec.json.decode(line.fields) for line in said if line.text.endswith(" lines dropped")]
        return len(said) - len(notices), sum(notice["dropped"] for notice in notices)
    found = await store.reader.subject(names.CHUNKS, names.chunk_subject(run_id, ">"))
    batches = [batch for stored in found if (batch := chunks.read(stored.data)) is not None]
    return sum(len(batch.chunks) for batch in batches), sum(batch.dropped for batch in batches)


async def test_many_lines_write_the_lease_no_more_often_than_one(
    store: Store, bridge: httpx2.AsyncClient, task: str
) -> None:
    await dispatch(store, task)
    found = await polled(bridge, task)
    before = await leased(store, found)
    for _ in range(20):
        await asyncio.gather(*(resolve(bridge, found, "log", data=[{"text": "x"}]) for _ in range(5)))
    assert before.revision == (await leased(store, found)).revision


@pytest.fixture
def talker(ends: list[FrontEnd], task: str) -> Worker:
    worker = Worker(transport="bridge", url=ends[0].url, bridge_token=TOKEN, worker_id="w-1", grace_s=1)

    @worker.task(task)
    async def say(value: None, ctx: Context) -> None:
        for chunk in CHUNKS:
            ctx.stream(chunk)

    return worker


async def test_a_step_is_not_completed_before_what_it_said_is_stored(store: Store, talker: Worker, task: str) -> None:
    run_id = await dispatch(store, task)
    async with talker.running():
        async with room_for_chunks(store, 5_000):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(LONGER_THAN_A_REQUEST_S):
                    await answer(store, run_id)
        assert isinstance(await answer(store, run_id), StepCompleted)
    assert CHUNKS == await streamed(store, run_id)


async def test_what_cannot_be_stored_does_not_hold_up_the_step_for_ever(
    store: Store, talker: Worker, task: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rate_limited_log.reset()
    monkeypatch.setattr(live_output, "FLUSH_S_MAX", 0.1)
    run_id = await dispatch(store, task)
    async with room_for_chunks(store, 5_000), talker.running():
        assert isinstance(await answer(store, run_id), StepCompleted)
    assert [] == await streamed(store, run_id)
    assert any("step_output_late" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("kind", ["log", "stream"])
async def test_what_is_refused_while_nobody_holds_the_task_is_stored_when_its_worker_holds_it_again(
    store: Store, bridge: httpx2.AsyncClient, ends: list[FrontEnd], task: str, kind: str
) -> None:
    """A lease may be lost with its front end and the broker; the answer of the first execution then counts."""
    rate_limited_log.reset()
    worker = Worker(transport="bridge", url=ends[0].url, bridge_token=TOKEN, worker_id="w-1", max_tasks=2, grace_s=1)
    begun, again, lost = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @worker.task(task)
    async def say(value: None, ctx: Context) -> str:
        if ctx.deliveries > 1:
            again.set()
            await asyncio.Event().wait()
        begun.set()
        await lost.wait()
        for text in ("one", "two"):
            ctx.stream(text) if kind == "stream" else ctx.log(text)
        await again.wait()
        return "first"

    run_id = await dispatch(store, task)
    async with worker.running():
        await begun.wait()
        assert 200 == (await resolve(bridge, f"{run_id}.s", "pause", duration_ms=1500)).status_code
        lost.set()
        assert isinstance(await answer(store, run_id), StepCompleted)
        said = await streamed(store, run_id) if kind == "stream" else [x.text for x in await logged(store, run_id)]
        assert ["one", "two"] == said
