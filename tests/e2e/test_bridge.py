"""The worker bridge of a whole service: runs through it, and processes that die between a poll and its answer."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import httpx2
import orjson
import pytest

from penstock.broker.store import Store, open_store
from penstock.config.settings import BrokerSettings
from penstock.worker import Context, Continue, Pause, Worker
from tests.http.bridge import TOKEN, client, leased, poll, polled, resolve
from tests.support.service import Service
from tests.support.waiting import until, until_true
from tests.support.world import chain
from tests.worker.task_queue import durable

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(
        tmp_path_factory.mktemp("bridge") / "service", shards=1, http_workers=2, bridge_token=TOKEN
    ) as started:
        yield started


@pytest.fixture
async def store(service: Service) -> AsyncIterator[Store]:
    async with open_store(BrokerSettings(url=service.broker_url), "test") as opened:
        yield opened


@pytest.fixture
async def http(service: Service) -> AsyncIterator[httpx2.AsyncClient]:
    async with client(service.url) as opened:
        yield opened


def new_worker(service: Service, transport: Any = "bridge", **options: Any) -> Worker:
    place = {"url": service.url, "bridge_token": TOKEN} if transport == "bridge" else {"broker_url": service.broker_url}
    return Worker(transport=transport, grace_s=1, **place, **options)


def completes(done: asyncio.Event) -> Callable[[Any], Awaitable[Any]]:
    """A task function that returns its input and sets `done`."""

    async def complete(value: Any) -> Any:
        done.set()
        return value

    return complete


def start(service: Service, document: dict[str, Any], value: bytes = b"null") -> str:
    with service.client() as api:
        api.register(orjson.dumps(document))
        return api.start(document["name"], value).run_id


async def ended(http: httpx2.AsyncClient, run_id: str) -> dict[str, Any]:
    async def find() -> dict[str, Any] | None:
        try:
            answer = await http.get(f"/runs/{run_id}", params={"wait_ms": 1000})
        except httpx2.TransportError:
            return None
        found: dict[str, Any] = answer.json() if answer.status_code == 200 else {"status": "running"}
        return found if found["status"] in ("completed", "failed", "cancelled") else None

    found = await until(find, 60)
    assert found is not None
    return found


async def test_runs_through_the_bridge(service: Service, http: httpx2.AsyncClient) -> None:
    worker = new_worker(service)

    @worker.task("bridge.echo")
    async def echo(value: int) -> int:
        return value + 1

    run_ids = [start(service, chain("bridge"), b"%d" % number) for number in range(20)]
    async with worker.running():
        runs = [await ended(http, run_id) for run_id in run_ids]
    assert {"completed"} == {run["status"] for run in runs}
    assert [number + 3 for number in range(20)] == [run["steps"]["s2"]["output"] for run in runs]
    assert {worker.worker_id} == {step["worker_id"] for run in runs for step in run["steps"].values()}


@pytest.mark.parametrize("transport", ["nats", "bridge"])
async def test_loop_goes_on_until_its_function_has_an_output(
    service: Service, http: httpx2.AsyncClient, transport: str
) -> None:
    worker = new_worker(service, transport)

    @worker.task("loop.draft")
    async def draft(value: int, ctx: Context) -> Any:
        assert ctx.iteration == value
        if value == 1 and ctx.deliveries == 1:
            raise Pause(0.05, checkpoint={"seen": value})
        if value == 2:
            assert await ctx.load_checkpoint() == {"seen": 1}
        return Continue(value + 1) if value < 3 else {"drafts": value}

    document = {
        "name": "loop",
        "steps": [{"id": "a", "task": "loop.draft", "type": "agent_loop", "config": {"max_iterations": 10}}],
    }
    async with worker.running():
        run = await ended(http, start(service, document, b"0"))
    assert ("completed", {"drafts": 3}, 3) == (
        run["status"],
        run["steps"]["a"]["output"],
        run["steps"]["a"]["iteration"],
    )


@pytest.mark.parametrize("sticky", ["soft", "hard"])
@pytest.mark.parametrize("transport", ["nats", "bridge"])
async def test_sticky_run_stays_with_its_first_worker(
    service: Service, http: httpx2.AsyncClient, transport: str, sticky: str
) -> None:
    document = {**chain("sticky", 6), "sticky": sticky}
    async with AsyncExitStack() as stack:
        for number in range(3):
            worker = new_worker(service, transport, worker_id=f"w-{number}", max_tasks=2)
            worker.task("sticky.echo")(lambda value: value)
            await stack.enter_async_context(worker.running())
        run_ids = [start(service, document) for _ in range(10)]
        runs = [await ended(http, run_id) for run_id in run_ids]
    for run in runs:
        assert "completed" == run["status"]
        assert 1 == len({step["worker_id"] for step in run["steps"].values()}), run["steps"]


@pytest.mark.parametrize("transport", ["nats", "bridge"])
async def test_soft_run_leaves_a_worker_that_is_gone_and_a_hard_one_waits(
    service: Service, http: httpx2.AsyncClient, transport: str
) -> None:
    names = {kind: f"{kind}-{transport}" for kind in ("soft", "hard")}
    run_ids = {}
    for kind, name in names.items():
        first, done = new_worker(service, transport, worker_id=f"{name}-first"), asyncio.Event()
        first.task(f"{name}.echo")(completes(done))
        document = {**chain(name, 2), "sticky": kind}
        document["steps"][1]["task"] = f"{name}.other"
        async with first.running():
            run_ids[kind] = start(service, document)
            await done.wait()
    other = new_worker(service, transport, worker_id="other")
    for name in names.values():
        other.task(f"{name}.other")(lambda value: value)
    async with other.running():
        soft = await ended(http, run_ids["soft"])
        assert ("completed", "other") == (soft["status"], soft["steps"]["s1"]["worker_id"])
        hard = (await http.get(f"/runs/{run_ids['hard']}")).json()
        assert ("running", "queued") == (hard["status"], hard["steps"]["s1"]["status"])
    back = new_worker(service, transport, worker_id=f"{names['hard']}-first")
    back.task(f"{names['hard']}.other")(lambda value: value)
    async with back.running():
        hard = await ended(http, run_ids["hard"])
    assert ("completed", back.worker_id) == (hard["status"], hard["steps"]["s1"]["worker_id"])


async def test_front_end_killed_between_poll_and_answer(
    service: Service, store: Store, http: httpx2.AsyncClient
) -> None:
    run_id = start(service, chain("killed", 1), b"7")
    task = await polled(http, "killed.echo", worker_id="w-1")
    await leased(store, task)  # within 25 ms, for a task that may be answered at once
    former = service.http_worker_pids()
    for pid in former:
        os.kill(pid, signal.SIGKILL)
    await until_true(lambda: len(set(service.http_worker_pids()) - set(former)) == 2)
    answer = await answered(http, task, "complete", output=8)
    assert 200 == answer.status_code
    run = await ended(http, run_id)
    assert ("completed", 8, 1, "w-1") == (
        run["status"],
        *(run["steps"]["s0"][key] for key in ("output", "attempts", "worker_id")),
    )


async def test_task_of_a_killed_front_end_comes_again(service: Service, store: Store, http: httpx2.AsyncClient) -> None:
    await durable(store, "again.echo", ack_wait_s=2)
    run_id = start(service, chain("again", 1), b"7")
    first = await polled(http, "again.echo", worker_id="slow")
    for pid in service.http_worker_pids():
        os.kill(pid, signal.SIGKILL)

    async def again() -> list[dict[str, Any]]:
        try:
            return await poll(http, "again.echo", worker_id="quick")
        except httpx2.TransportError:
            return []

    (second,) = await until(again)
    assert (first["task_id"], 2) == (second["task_id"], second["deliveries"])
    assert 200 == (await resolve(http, first, "complete", output="late")).status_code  # the first answer wins
    assert 404 == (await resolve(http, second, "complete", output="newer")).status_code
    assert "late" == (await ended(http, run_id))["steps"]["s0"]["output"]


async def test_worker_goes_on_after_the_whole_service_was_killed(service: Service, http: httpx2.AsyncClient) -> None:
    worker, begun, gate = new_worker(service), asyncio.Event(), asyncio.Event()

    @worker.task("restart.echo")
    async def echo(value: Any, ctx: Context) -> Any:
        begun.set()
        await gate.wait()
        await ctx.checkpoint(1)
        return value

    run_id = start(service, chain("restart"), b"7")
    serving = asyncio.create_task(worker.serve())
    await begun.wait()
    await asyncio.to_thread(service.kill_all)
    await asyncio.to_thread(service.start)
    gate.set()
    run = await ended(http, run_id)
    worker.stop()
    await serving
    assert ("completed", 7) == (run["status"], run["steps"]["s2"]["output"])


HOLDING = """
import asyncio
from penstock.worker import Worker

worker = Worker(transport="bridge", worker_id="doomed")

@worker.task("doomed.echo")
async def hold(value):
    await asyncio.Event().wait()

worker.run()
"""


async def test_task_of_a_killed_worker_is_begun_again_within_12_s(service: Service, http: httpx2.AsyncClient) -> None:
    """Its stream and its polls may be at different processes; without a stream it would be five minutes."""
    environ = {**os.environ, "SERVICE_URL": service.url, "SERVICE_BRIDGE_TOKEN": TOKEN}
    doomed = await asyncio.create_subprocess_exec(sys.executable, "-c", HOLDING, env=environ)
    run_ids = [start(service, chain("doomed", 1), b"7") for _ in range(3)]

    async def held() -> bool:
        runs = [(await http.get(f"/runs/{run_id}")).json() for run_id in run_ids]
        return all(run["steps"]["s0"]["status"] == "running" for run in runs)

    await until(held)
    doomed.kill()
    killed_at = time.monotonic()
    await doomed.wait()
    for _ in run_ids:
        task = await polled(http, "doomed.echo", worker_id="successor", timeout_ms=30_000)
        assert 2 == task["deliveries"]
        assert 200 == (await resolve(http, task, "complete", output=8)).status_code
    assert 10 <= time.monotonic() - killed_at < 12
    assert [8] * 3 == [(await ended(http, run_id))["steps"]["s0"]["output"] for run_id in run_ids]


async def answered(http: httpx2.AsyncClient, task: dict[str, Any], action: str, **fields: Any) -> httpx2.Response:
    """The answer of a front end that may have to start first."""

    async def find() -> httpx2.Response | None:
        try:
            answer = await resolve(http, task, action, **fields)
        except httpx2.TransportError:
            return None
        return None if answer.status_code == 503 else answer

    found = await until(find)
    assert found is not None
    return found
