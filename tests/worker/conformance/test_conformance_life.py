"""Workers on both transports begin and end alike: they register, and leave nothing behind when they stop."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest

from penstock.broker.store import Store
from penstock.engine.errors import Denied, Unavailable
from penstock.engine.run.events import StepCompleted
from penstock.worker import Context, Worker
from tests.http.bridge import frames
from tests.support.frontends import FrontEnd
from tests.support.waiting import until, until_true
from tests.worker.conformance.conftest import TOKEN
from tests.worker.conftest import NewWorker
from tests.worker.task_queue import (
    acknowledged,
    answer,
    dispatch,
    output_of,
    taking,
)


async def test_registration_describes_the_worker_and_ends_with_it(
    store: Store, new_worker: NewWorker, task: str
) -> None:
    worker = new_worker(worker_id=f"w-{task}", max_tasks=4, metadata={"zone": "a"}, group="gpu")
    worker.task(task)(lambda: None)
    async with worker.running():
        entry = await store.workers.get(worker.worker_id)
        assert entry is not None
        found = orjson.loads(entry.value)
    assert found.pop("last_seen").endswith("Z")
    assert found.pop("version")
    assert found.pop("transport") in ("nats", "bridge")
    expected = {
        "worker_id": worker.worker_id,
        "task_types": [task],
        "language": "python",
        "max_tasks": 4,
        "metadata": {"zone": "a"},
    }
    assert {**expected, "worker_group": "gpu", "hostname": socket.gethostname(), "pid": os.getpid()} == found

    async def gone() -> bool:
        return await store.workers.get(worker.worker_id) is None

    await until(gone)


async def test_stop_lets_what_runs_finish(store: Store, new_worker: NewWorker, task: str) -> None:
    worker, begun, gate = new_worker(grace_s=5), asyncio.Event(), asyncio.Event()

    @worker.task(task)
    async def work() -> None:
        begun.set()
        await gate.wait()

    run_id = await dispatch(store, task)
    serving = asyncio.create_task(worker.serve())
    await begun.wait()
    worker.stop()
    gate.set()
    await serving
    assert isinstance(await answer(store, run_id), StepCompleted)
    await acknowledged(store, task)


async def test_stop_gives_back_what_does_not_finish(store: Store, new_worker: NewWorker, task: str) -> None:
    worker, cancelled = new_worker(grace_s=0.05, max_tasks=2), []

    @worker.task(task)
    async def stuck() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(1)
            raise

    run_ids = [await dispatch(store, task) for _ in range(2)]
    async with frames(store) as seen:
        async with worker.running():
            await until_true(lambda: len(worker_running(worker)) == 2)
        await until_true(lambda: len(seen) >= 2)
        assert [b"-NAK", b"-NAK"] == seen
    assert [1, 1] == cancelled
    async with taking(store, task) as taken:
        again = await asyncio.wait_for(taken.get(), 5)
    assert again.subject[-32:] in run_ids
    assert 2 == again.deliveries


async def test_being_given_back_at_many_stops_is_not_held_against_a_task(
    store: Store, new_worker: NewWorker, task: str
) -> None:
    run_id = await dispatch(store, task)
    for _ in range(13):
        leaving, begun = new_worker(grace_s=0), asyncio.Event()
        leaving.task(task)(stuck_after(begun))
        async with leaving.running():
            await begun.wait()
    last = new_worker()
    last.task(task)(lambda value, ctx: ctx.deliveries)
    async with last.running():
        assert 14 <= output_of(await answer(store, run_id))


async def test_worker_that_stops_under_load_leaves_nothing_behind(
    store: Store, new_worker: NewWorker, task: str
) -> None:
    first, second, ran = new_worker(max_tasks=16), new_worker(max_tasks=16), Counter[str]()

    @first.task(task)
    async def some(value: None, ctx: Context) -> None:
        ran[ctx.run_id] += 1
        if len(ran) == 50:
            first.stop()

    @second.task(task)
    async def wait(value: None, ctx: Context) -> None:
        ran[ctx.run_id] += 1

    run_ids = await asyncio.gather(*(dispatch(store, task) for _ in range(200)))
    await first.serve()
    by_first = len(ran)
    async with asyncio.timeout(15), second.running():  # sooner than the broker's ack wait brings anything back
        for run_id in run_ids:
            assert isinstance(await answer(store, run_id), StepCompleted)
        await acknowledged(store, task)
    assert by_first < 200
    assert Counter(run_ids) == ran


async def test_worker_can_run_again(store: Store, worker: Worker, task: str) -> None:
    worker.task(task)(lambda: None)
    for _ in range(2):
        run_id = await dispatch(store, task)
        async with worker.running():
            assert isinstance(await answer(store, run_id), StepCompleted)


async def test_bridge_refuses_another_token(store: Store, end: FrontEnd, task: str) -> None:
    worker = Worker(transport="bridge", url=end.url, bridge_token="wrong")
    worker.task(task)(lambda: None)
    with pytest.raises(Denied, match="bearer token"):
        async with worker.running():
            pass


async def test_bridge_that_is_not_there_is_unavailable(task: str) -> None:
    worker = Worker(transport="bridge", url="http://127.0.0.1:9", bridge_token=TOKEN)
    worker.task(task)(lambda: None)
    with pytest.raises(Unavailable, match=r"no answer|broke"):
        async with worker.running():
            pass


async def test_bridge_is_found_by_the_environment(
    store: Store, end: FrontEnd, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_URL", end.url)
    monkeypatch.setenv("SERVICE_BRIDGE_TOKEN", TOKEN)
    worker = Worker(transport="bridge")
    worker.task(task)(lambda: "here")
    run_id = await dispatch(store, task)
    async with worker.running():
        assert "here" == output_of(await answer(store, run_id))


def stuck_after(begun: asyncio.Event) -> Callable[[], Awaitable[None]]:
    """A task function that says that it has begun, and never ends."""

    async def stuck() -> None:
        begun.set()
        await asyncio.Event().wait()

    return stuck


def worker_running(worker: Worker) -> Any:
    """What its intake runs now."""
    intake: Any = worker._intake
    return intake._running
