"""Cancellation reaches the function that carries a step out, over both transports, also when the message is lost."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import orjson
import pytest
from msgspec import Raw

from penstock.worker import BlockingContext, Context, NonRetriable, Worker
from penstock.worker.transports import bridge_intake
from tests.e2e.conftest import StartService
from tests.http.bridge import TOKEN
from tests.support.relay import relay
from tests.support.service import Service
from tests.support.waiting import until_true

pytestmark = pytest.mark.timeout(120)

TRANSPORTS = ("nats", "bridge")
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def service(start_service: StartService) -> Service:
    return start_service(shards=1, http_workers=2, bridge_token=TOKEN)


class Heard:
    """What the functions of one worker have noticed, by run."""

    def __init__(self) -> None:
        self.begun: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
        self.cancelled: asyncio.Queue[tuple[str, int, str | None, float]] = asyncio.Queue()


async def others_begun(heard: Heard) -> None:
    """All three elements of the map."""
    while heard.begun.qsize() < 3:  # noqa: ASYNC110 - each of them puts itself there
        await asyncio.sleep(0.01)


def worker_of(service: Service, transport: str, heard: Heard, url: str | None = None) -> Worker:
    loop = asyncio.get_running_loop()
    options: dict[str, Any] = {"worker_id": f"w-{transport}", "grace_s": 1}
    if transport == "nats":
        worker = Worker(broker_url=service.broker_url, **options)
    else:
        worker = Worker(transport="bridge", url=url or service.url, bridge_token=TOKEN, **options)

    @worker.task(f"{transport}.async")
    async def waits(value: Any, ctx: Context) -> str:
        heard.begun.put_nowait((ctx.run_id, ctx.attempt))
        if ctx.attempt > 1:
            return "the second attempt"
        if value == "fail":
            await asyncio.wait_for(others_begun(heard), 20)
            raise NonRetriable("NonRetriable")
        try:
            await asyncio.Event().wait()
        finally:
            heard.cancelled.put_nowait((ctx.run_id, ctx.attempt, ctx.cancel_reason, time.time()))
        return "never"

    @worker.task(f"{transport}.blocking")
    def blocks(value: Any, ctx: BlockingContext) -> str:
        loop.call_soon_threadsafe(heard.begun.put_nowait, (ctx.run_id, ctx.attempt))
        ctx.cancelled.wait(30)
        noticed = (ctx.run_id, ctx.attempt, ctx.cancel_reason, time.time())
        loop.call_soon_threadsafe(heard.cancelled.put_nowait, noticed)
        return "dropped"

    @worker.task(f"{transport}.saving")
    async def saves(value: Any, ctx: Context) -> None:
        heard.begun.put_nowait((ctx.run_id, ctx.attempt))
        try:
            while True:
                await ctx.checkpoint(ctx.attempt)
        finally:
            heard.cancelled.put_nowait((ctx.run_id, ctx.attempt, ctx.cancel_reason, time.time()))

    return worker


@asynccontextmanager
async def working(service: Service, transport: str, url: str | None = None) -> AsyncIterator[Heard]:
    heard = Heard()
    async with worker_of(service, transport, heard, url).running():
        yield heard


def define(service: Service, name: str, *steps: dict[str, Any]) -> None:
    with service.client() as client:
        client.register(orjson.dumps({"name": name, "steps": list(steps)}))


def begin(service: Service, name: str, value: Any = None) -> str:
    with service.client() as client:
        return client.start(name, orjson.dumps(value)).run_id


def ended(service: Service, run_id: str) -> list[tuple[str, Any]]:
    """Types and payloads of the run's events, once it has ended."""
    with service.client() as client:
        return [
            (one.type, orjson.loads(bytes(one.payload)))
            for one in client.follow(run_id)
            if isinstance(one.payload, Raw)
        ]


async def next_of(queue: asyncio.Queue[Any]) -> Any:
    async with asyncio.timeout(20):
        return await queue.get()


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("kind", ["async", "blocking"])
async def test_a_cancelled_run_reaches_its_function_at_once(service: Service, transport: str, kind: str) -> None:
    define(service, "flow", {"id": "s", "task": f"{transport}.{kind}"})
    async with working(service, transport) as heard:
        run_id = begin(service, "flow")
        assert await next_of(heard.begun) == (run_id, 1)
        with service.client() as client:
            client.cancel(run_id, "changed my mind")
        assert (await next_of(heard.cancelled))[:3] == (run_id, 1, "changed my mind")
        with service.client() as client:
            assert (client.get_run(run_id).status, client.get_run(run_id).error) == ("cancelled", "changed my mind")


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_timeout_cancels_its_attempt_and_not_the_next(service: Service, transport: str) -> None:
    retry = {"max_attempts": 1, "initial_delay": "0s"}
    define(service, "flow", {"id": "s", "task": f"{transport}.async", "timeout": "2s", "retry": retry})
    async with working(service, transport) as heard:
        run_id = begin(service, "flow")
        assert [await next_of(heard.begun), await next_of(heard.begun)] == [(run_id, 1), (run_id, 2)]
        assert (await next_of(heard.cancelled))[:3] == (run_id, 1, "step timeout exceeded (2s)")
        events = await asyncio.to_thread(ended, service, run_id)
        assert ("workflow.completed", {"output": "the second attempt"}) == events[-1]
        assert heard.cancelled.empty()


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_failing_element_cancels_the_others_of_its_map(service: Service, transport: str) -> None:
    define(service, "flow", {"id": "m", "type": "map", "task": f"{transport}.async", "on_failure": {"task": "mend"}})
    async with working(service, transport) as heard:
        begin(service, "flow", [1, 2, "fail"])
        told = {(await next_of(heard.cancelled))[:3] for _ in range(2)}
        assert heard.begun.qsize() == 3
    reasons = {reason for _, _, reason in told}
    # a start over the bridge is written up to 20 ms late, here after the map has failed
    assert reasons <= {"the map has failed: element 2 failed: NonRetriable", "the step was cancelled"}


async def test_signs_of_life_of_a_cancelled_run_are_409_and_its_answer_is_not(service: Service) -> None:
    define(service, "flow", {"id": "s", "task": "curl"})
    async with httpx2.AsyncClient(base_url=service.url, headers=HEADERS) as http:
        run_id = begin(service, "flow")
        poll = {"task_types": ["curl"], "max_tasks": 1, "timeout_ms": 10_000}
        [task] = (await http.post("/v1/tasks/poll", json=poll)).json()
        resolve = f"/v1/tasks/{task['task_id']}/resolve"
        assert (await http.post(resolve, json={"action": "heartbeat"})).status_code == 200
        with service.client() as client:
            client.cancel(run_id, "enough")
        refused = await refusal(http, resolve, {"action": "heartbeat"})
        assert refused.endswith("was given up: enough")
        line, progress = [{"text": "late"}], {"done": 1}
        said = {"checkpoint": 1, "log": line, "stream": "late", "progress": progress}
        for action, data in said.items():
            assert refused == await refusal(http, resolve, {"action": action, "data": data})
        assert (await http.post(resolve, json={"action": "complete", "output": 1})).status_code == 200
        assert (await http.post(resolve, json={"action": "heartbeat"})).status_code == 404
        with service.client() as client:
            assert client.get_run(run_id).status == "cancelled"


@pytest.mark.parametrize("kind", ["async", "blocking", "saving"])
async def test_a_worker_that_has_lost_its_stream_learns_it_from_a_refusal(
    service: Service, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Of a heartbeat, or of the function's own checkpoint."""
    beats = 3600.0 if kind == "saving" else 0.1
    monkeypatch.setattr(bridge_intake, "KEEP_ALIVE_S", beats)
    define(service, "flow", {"id": "s", "task": f"bridge.{kind}"})
    async with (
        relay(service.http_address[1], "POST /v1/workers/connect") as way,
        working(service, "bridge", way.url) as heard,
    ):
        run_id = begin(service, "flow")
        assert await next_of(heard.begun) == (run_id, 1)
        way.lose()
        await until_true(lambda: way.refused > 0)
        with service.client() as client:
            client.cancel(run_id, "enough")
        *told, reason, _ = await next_of(heard.cancelled)
        assert ([run_id, 1], True) == (told, reason.endswith("was given up: enough"))
        other = begin(service, "flow")
        assert await next_of(heard.begun) == (other, 1), "the worker goes on"
        with service.client() as client:
            client.cancel(other)
        assert (await next_of(heard.cancelled))[0] == other
    types = [kind for kind, _ in await asyncio.to_thread(ended, service, run_id)]
    assert ("workflow.cancelled" in types, "step.completed" in types) == (True, False)
    with service.client() as client:
        assert client.get_run(run_id).status == "cancelled"


async def test_a_late_answer_of_one_attempt_is_not_taken_for_the_next(service: Service) -> None:
    retry = {"max_attempts": 1, "initial_delay": "0s"}
    define(service, "flow", {"id": "s", "task": "curl", "timeout": "3s", "retry": retry})
    async with httpx2.AsyncClient(base_url=service.url, headers=HEADERS, timeout=30) as http:
        run_id = begin(service, "flow")
        poll = {"task_types": ["curl"], "max_tasks": 1, "timeout_ms": 20_000}
        [first] = (await http.post("/v1/tasks/poll", json=poll)).json()
        [second] = (await http.post("/v1/tasks/poll", json=poll)).json()
        assert ((first["attempt"], second["attempt"]), first["task_id"]) == ((1, 2), second["task_id"])
        resolve = f"/v1/tasks/{first['task_id']}/resolve"
        late = {"action": "fail", "error": "cancelled", "attempt": 1}
        assert (await http.post(resolve, json=late)).status_code == 404
        assert (await http.post(resolve, json={**late, "attempt": 2, "iteration": 1})).status_code == 404
        done = await http.post(resolve, json={"action": "complete", "output": "the second"})
        assert done.status_code == 200
    events = await asyncio.to_thread(ended, service, run_id)
    assert ("workflow.completed", {"output": "the second"}) == events[-1]


async def refusal(http: httpx2.AsyncClient, path: str, body: dict[str, Any]) -> str:
    """What the service says once it refuses: the state that it asks may be a second old."""
    async with asyncio.timeout(20):
        while (answer := await http.post(path, json=body)).status_code == 200:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert answer.status_code == 409
    return answer.text.strip()


async def test_connect_streams_of_other_workers_hear_nothing(service: Service) -> None:
    define(service, "flow", {"id": "s", "task": "bridge.async"})
    lines: list[bytes] = []
    connected = threading.Event()

    def listen() -> None:
        body = {"worker_id": "another", "task_types": ["bridge.async"]}
        with httpx2.Client(base_url=service.url, headers=HEADERS, timeout=3) as http:
            try:
                with http.stream("POST", "/v1/workers/connect", json=body) as answer:
                    for chunk in answer.iter_raw():
                        lines.append(chunk)
                        connected.set()
            except httpx2.ReadTimeout:
                pass

    async with working(service, "bridge") as heard:
        listening = asyncio.create_task(asyncio.to_thread(listen))
        await asyncio.to_thread(connected.wait, 10)
        run_id = begin(service, "flow")
        await next_of(heard.begun)
        with service.client() as client:
            client.cancel(run_id)
        await next_of(heard.cancelled)
        await listening
    assert b"cancel" not in b"".join(lines)
