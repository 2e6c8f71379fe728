"""A rolling restart, as an upgrade does it: each part of two hosts stops and starts under load, and nobody but its log
can tell."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import orjson
import pytest

from penstock.broker import names
from penstock.broker.store import Store, open_store
from penstock.config.settings import BrokerSettings
from penstock.engine.run.events import WorkflowCompleted, decode
from tests.e2e.parts import Parts, all_completed
from tests.http.bridge import TOKEN, client
from tests.support.server import Server, server
from tests.support.service import PENSTOCK
from tests.support.waiting import until_true
from tests.worker.task_queue import durable

pytestmark = pytest.mark.timeout(180)

DIRECT, BRIDGE = "upgrade.direct", "upgrade.bridge"
DEFINITION = {
    "name": "upgrade",
    "timeout": "1h",
    "steps": [
        {"id": "a", "task": DIRECT, "timeout": "10m"},
        {"id": "b", "task": BRIDGE, "depends_on": ["a"], "timeout": "10m"},
    ],
}
ACK_WAIT_S = 2.0  # after which a task comes again whose worker never heard of it
BULK = 5
MORE = 30  # runs that end between two restarts
PAUSE_S = 0.05  # of each client between two requests: the load is to be modest


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Server]:
    with server(tmp_path) as one:
        await until_true(lambda: one.listens)
        yield one


@pytest.fixture
async def store(broker: Server) -> AsyncIterator[Store]:
    async with open_store(BrokerSettings(url=broker.url), "test") as opened:
        yield opened


@pytest.fixture
async def hosts(broker: Server, tmp_path: Path) -> AsyncIterator[list[Parts]]:
    """Two of them, each with an engine and a front end."""
    environ = {"SERVICE_BROKER_URL": broker.url, "SERVICE_BRIDGE_TOKEN": TOKEN}
    found = [Parts(made(tmp_path / name), environ) for name in ("one", "two")]
    try:
        for one in found:
            one.start("engine", [PENSTOCK, "engine"])
            one.start("api", [PENSTOCK, "api"])
        for one in found:
            await asyncio.to_thread(one.await_ready)
        yield found
    finally:
        for one in found:
            await asyncio.to_thread(one.stop)


def made(directory: Path) -> Path:
    directory.mkdir()
    return directory


class Clients:
    """Everybody who uses the service: each request goes to one of the front ends, and once more to the other if that
    fails.

    `failed` are requests that failed at both, `retried` counts those that failed at one.
    """

    def __init__(self, fronts: list[httpx2.AsyncClient]) -> None:
        self._fronts, self._turn = fronts, count()
        self.failed: list[str] = []
        self.retried: Counter[str] = Counter()
        self.started: dict[str, int] = {}
        self.ended: set[str] = set()
        self._numbers = count()

    async def ask(self, method: str, path: str, **more: Any) -> Any:
        """The answer's JSON, None for a request that failed."""
        first, problems = next(self._turn), []
        for turn in (first, first + 1):
            try:
                answer = await self._fronts[turn % 2].request(method, path, **more)
            except httpx2.TransportError as error:
                problems.append(repr(error))
                continue
            if answer.is_success:
                self.retried.update(problems)
                return answer.json()
            problems.append(f"{answer.status_code} {answer.text}")
        self.failed.append(f"{method} {path}: {problems}")
        return None

    async def start_one(self) -> None:
        number = next(self._numbers)
        begun = await self.ask(
            "POST", "/runs", json={"workflow": "upgrade", "input": number}, headers={"Idempotency-Key": uuid4().hex}
        )
        if begun is not None:
            self.started[begun["run_id"]] = number
            await self.ask("GET", f"/runs/{begun['run_id']}")
            await self.ask("POST", f"/runs/{begun['run_id']}/signal/hello", content=b"there")

    async def start_many(self) -> None:
        numbers = [next(self._numbers) for _ in range(BULK)]
        begun = await self.ask("POST", "/runs/bulk", json={"workflow_id": "upgrade", "inputs": numbers})
        if begun is not None:
            self.started.update(zip(begun["run_ids"], numbers, strict=True))
        await self.ask("GET", "/runs", params={"limit": "20"})

    async def wait_for_one(self) -> None:
        for run_id in [run_id for run_id in self.started if run_id not in self.ended][:1]:
            run = await self.ask("GET", f"/runs/{run_id}", params={"wait_ms": "2000"})
            if run is not None and run["status"] == "completed":
                self.ended.add(run_id)

    async def work(self) -> None:
        """As a worker over the bridge: it gives every task's input back."""
        tasks = await self.ask(
            "POST", "/v1/tasks/poll", json={"task_types": [BRIDGE], "max_tasks": 5, "timeout_ms": 2000}
        )
        for task in tasks or ():
            await self.ask(
                "POST", f"/v1/tasks/{task['task_id']}/resolve", json={"action": "complete", "output": task["input"]}
            )

    @asynccontextmanager
    async def busy(self, *actions: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
        """With these, each again and again for the time of the block; at its end, they finish what they do."""
        over = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for action in actions:
                group.create_task(_again_and_again(action, over))
            try:
                yield
            finally:
                over.set()

    async def more_end(self) -> None:
        """Return when some more runs have ended."""
        before = len(self.ended)
        await until_true(lambda: len(self.ended) >= before + MORE or bool(self.failed), 60)


async def _again_and_again(action: Callable[[], Awaitable[None]], over: asyncio.Event) -> None:
    while not over.is_set():
        await action()
        await asyncio.sleep(PAUSE_S)


async def test_a_rolling_restart_under_load_loses_nothing_and_fails_no_request_that_is_tried_twice(
    store: Store, hosts: list[Parts]
) -> None:
    await durable(store, BRIDGE, ACK_WAIT_S)
    async with AsyncExitStack() as stack:
        fronts = [await stack.enter_async_context(client(host.url)) for host in hosts]
        clients = Clients(fronts)
        await clients.ask("POST", "/workflows", content=orjson.dumps(DEFINITION))
        hosts[0].worker(DIRECT)
        async with clients.busy(clients.work, clients.work):
            async with clients.busy(clients.start_one, clients.start_many, clients.wait_for_one, clients.wait_for_one):
                await clients.more_end()
                for name in ("engine", "api"):
                    for host in hosts:
                        await asyncio.to_thread(host.restart, name, [PENSTOCK, name])
                        await clients.more_end()
            assert [] == clients.failed
            runs = {run.run_id: run for run in await all_completed(store, list(clients.started))}
        assert [] == clients.failed
    assert {run_id: b"%d" % number for run_id, number in clients.started.items()} == {
        run_id: bytes(run.steps["b"].output or b"") for run_id, run in runs.items()
    }
    for run_id in runs:
        events = [decode(stored.data) for stored in await store.history.read(run_id)]
        assert 1 == sum(isinstance(event, WorkflowCompleted) for event in events)
    assert [] == await store.reader.subject(names.DEAD, ">")
