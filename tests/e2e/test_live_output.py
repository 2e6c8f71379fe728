"""What steps say while they run, through a whole service: log lines, chunks and progress, over both transports."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import httpx2
import orjson
import pytest

from penstock.worker import BlockingContext, Context, Worker
from tests.http.bridge import TOKEN, client
from tests.support.service import Service
from tests.support.waiting import until, until_true

pytestmark = pytest.mark.timeout(120)

STREAM = {"Accept": "text/event-stream"}
TALK = {"name": "talk", "steps": [{"id": "a", "task": "say"}]}


@pytest.fixture(params=["nats", "bridge"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("live") / "service", shards=1, http_workers=2, bridge_token=TOKEN) as started:
        yield started


@pytest.fixture
async def http(service: Service) -> AsyncIterator[httpx2.AsyncClient]:
    async with client(service.url, None) as opened:
        yield opened


def new_worker(service: Service, transport: Any) -> Worker:
    place = {"url": service.url, "bridge_token": TOKEN} if transport == "bridge" else {"broker_url": service.broker_url}
    return Worker(worker_id="w-1", transport=transport, grace_s=1, **place)


async def started(http: httpx2.AsyncClient, definition: dict[str, Any], value: Any = None) -> str:
    assert (await http.post("/workflows", json=definition)).is_success
    answer = await http.post("/runs", json={"workflow": definition["name"], "input": value})
    return str(answer.json()["run_id"])


async def events(http: httpx2.AsyncClient, path: str, **headers: str) -> AsyncIterator[tuple[str, Any]]:
    """Name and data of each event, until the stream ends."""
    async with http.stream("GET", path, headers={**STREAM, **headers}, timeout=60) as answer:
        assert 200 == answer.status_code
        name = ""
        async for line in answer.aiter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield name, orjson.loads(line.removeprefix("data: "))


async def test_a_follower_sees_lines_and_chunks_as_they_are_said_and_who_comes_late_sees_them_all(
    service: Service, http: httpx2.AsyncClient, transport: str
) -> None:
    go_on = asyncio.Event()
    worker = new_worker(service, transport)

    @worker.task("say")
    async def say(value: None, ctx: Context) -> int:
        ctx.log("begun", order=17)
        ctx.log.debug("in detail")
        ctx.stream("Hel")
        await go_on.wait()
        for chunk in ("lo", {"n": 1}, None):
            ctx.stream(chunk)
        ctx.log.error("not good")
        return 1

    async with worker.running():
        run_id = await started(http, TALK)
        logs, chunks = events(http, f"/runs/{run_id}/logs?level=info"), events(http, f"/runs/{run_id}/stream")
        name, line = await anext(logs)
        assert ("log", "begun", "info", 1, "w-1", {"order": 17}) == (
            name,
            line["text"],
            line["level"],
            line["attempt"],
            line["worker_id"],
            line["fields"],
        )
        assert ("chunk", {"step_id": "a", "attempt": 1, "data": "Hel"}) == await anext(chunks)
        go_on.set()
        assert ["lo", {"n": 1}, None] == [data["data"] async for name, data in chunks if name == "chunk"]
        assert ["not good", "completed"] == [data.get("text") or data["status"] async for _, data in logs]
    late = [data async for _, data in events(http, f"/runs/{run_id}/stream?step=a")]
    assert ["Hel", "lo", {"n": 1}, None] == [data["data"] for data in late[:-1]]
    assert {"status": "completed"} == late[-1]
    page = (await http.get(f"/runs/{run_id}/logs")).json()
    assert ["begun", "in detail", "not good"] == [line["text"] for line in page]
    assert sorted(line["seq"] for line in page) == [line["seq"] for line in page]


async def test_threads_handlers_of_logging_and_processors_of_structlog_reach_the_log(
    service: Service, http: httpx2.AsyncClient, transport: str
) -> None:
    worker = new_worker(service, transport)
    logger = logging.getLogger("of-the-test")

    @worker.task("say")
    def say(value: None, ctx: BlockingContext) -> None:
        logger.addHandler(ctx.log)
        logger.warning("by %s", "logging", extra={"n": 1})
        ctx.log(None, "error", {"event": "by structlog", "key": "k"})

    async with worker.running():
        run_id = await started(http, TALK)
        async for _ in events(http, f"/runs/{run_id}/logs"):
            pass
    page = (await http.get(f"/runs/{run_id}/logs")).json()
    said = [(line["level"], line["text"], line["fields"]) for line in page]
    assert [
        ("warning", "by logging", {"logger": "of-the-test", "n": 1}),
        ("error", "by structlog", {"key": "k"}),
    ] == said
    assert [] == logger.handlers


async def test_progress_is_shown_while_the_step_runs_and_is_in_no_history(
    service: Service, http: httpx2.AsyncClient, transport: str
) -> None:
    go_on = asyncio.Event()
    worker = new_worker(service, transport)

    @worker.task("say")
    async def say(value: None, ctx: Context) -> None:
        ctx.progress(3, 10, "pages")
        await go_on.wait()

    async with worker.running():
        run_id = await started(http, TALK)

        async def shown() -> Any:
            return (await http.get(f"/runs/{run_id}")).json()["steps"]["a"].get("progress")

        assert {"done": 3, "total": 10, "text": "pages"} == await until(shown)
        go_on.set()
        async for _ in events(http, f"/runs/{run_id}/stream"):
            pass
        assert await shown() is None
    assert "pages" not in (await http.get(f"/runs/{run_id}/events")).text


async def test_progress_goes_on_after_a_restart_of_the_broker_and_a_new_front_end_knows_it(
    service: Service, http: httpx2.AsyncClient, transport: str
) -> None:
    steps: asyncio.Queue[int] = asyncio.Queue()
    worker = new_worker(service, transport)

    @worker.task("say")
    async def say(value: None, ctx: Context) -> None:
        while done := await steps.get():
            ctx.progress(done, 10)

    async with worker.running():
        run_id = await started(http, TALK)

        async def shown() -> Any:
            with suppress(httpx2.TransportError):  # of a front end that is gone
                answer = await http.get(f"/runs/{run_id}", headers={"Connection": "close"})
                return answer.is_success and answer.json()["steps"]["a"].get("progress", {}).get("done")
            return None

        async def shown_is(done: int) -> bool:
            return bool(await shown() == done)

        steps.put_nowait(1)
        await until(lambda: shown_is(1))
        former = service.kill("broker")
        await asyncio.to_thread(service.await_restart, "broker", former)
        await asyncio.to_thread(service.await_ready)
        steps.put_nowait(2)
        await until(lambda: shown_is(2))
        former_front_ends = service.http_worker_pids()
        for pid in former_front_ends:
            os.kill(pid, signal.SIGKILL)
        await until_true(lambda: len(set(service.http_worker_pids()) - set(former_front_ends)) == 2)
        await asyncio.to_thread(service.await_ready)
        await until(lambda: shown_is(2))
        steps.put_nowait(0)
        async for _ in events(http, f"/runs/{run_id}/stream"):
            pass


async def test_the_lines_of_a_map_are_found_by_the_map_and_by_its_elements(
    service: Service, http: httpx2.AsyncClient, transport: str
) -> None:
    worker = new_worker(service, transport)

    @worker.task("say")
    async def say(value: int, ctx: Context) -> int:
        ctx.log(f"element {value}")
        return value

    definition = {"name": "each", "steps": [{"id": "m", "type": "map", "task": "say"}]}
    async with worker.running():
        run_id = await started(http, definition, [0, 1, 2, 3])
        found = {data["text"] async for name, data in events(http, f"/runs/{run_id}/logs?step=m") if name == "log"}
    assert {"element 0", "element 1", "element 2", "element 3"} == found
    page = (await http.get(f"/runs/{run_id}/logs?step=m.3")).json()
    assert [("m.3", "element 3")] == [(line["step_id"], line["text"]) for line in page]
    assert 4 == len((await http.get(f"/runs/{run_id}/logs?step=m")).json())
    assert 404 == (await http.get(f"/runs/{run_id}/logs?step=n")).status_code


async def test_the_chunks_of_the_attempt_after_a_failure_are_told_apart(
    service: Service, http: httpx2.AsyncClient, transport: str
) -> None:
    worker = new_worker(service, transport)

    @worker.task("say")
    async def say(value: None, ctx: Context) -> None:
        ctx.stream(f"of {ctx.attempt}")
        if ctx.attempt == 1:
            raise ValueError("once more")

    retried = {"max_attempts": 1, "strategy": "fixed", "initial_delay": "1ms"}
    definition = {"name": "twice", "steps": [{"id": "a", "task": "say", "retry": retried}]}
    async with worker.running():
        run_id = await started(http, definition)
        found = [data async for _, data in events(http, f"/runs/{run_id}/stream")]
    assert [(1, "of 1"), (2, "of 2")] == [(data["attempt"], data["data"]) for data in found[:-1]]
