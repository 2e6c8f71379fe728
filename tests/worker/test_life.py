"""A worker's start, its registration, and how it stops."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson
import pytest

from penstock.broker import names, record_keys
from penstock.broker.store import Store
from penstock.engine.errors import Conflict
from penstock.engine.run.events import StepCompleted, StepStarted, decode
from penstock.worker import BlockingContext, Context, Worker
from tests.worker.conftest import NewWorker
from tests.worker.task_queue import acknowledged, answer, dispatch, durable, reported, taking

NEVER_S = 600  # an ack wait that is longer than any test: nothing comes again by it

PROGRAM = """
import asyncio, sys
from penstock.worker import Worker
worker = Worker(broker_url=sys.argv[1], worker_id=sys.argv[3])
gate = asyncio.Event()

@worker.task(sys.argv[2])
async def work(value, ctx):
    print("begun", flush=True)
    return await ctx.wait_signal("go")

worker.run()
print("ended", flush=True)
"""


@asynccontextmanager
async def _program(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    pipe, out = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", PROGRAM, *arguments, stdout=pipe, stderr=out)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def _says(process: asyncio.subprocess.Process, word: bytes) -> None:
    assert process.stdout is not None
    async with asyncio.timeout(10):
        while word not in await process.stdout.readline():
            assert not process.stdout.at_eof()


async def test_registration_describes_the_worker_and_ends_with_it(
    store: Store, new_worker: NewWorker, task: str
) -> None:
    worker = new_worker(worker_id="worker-7", max_tasks=4, metadata={"zone": "a"})
    worker.task(task)(lambda: None)
    async with worker.running():
        entry = await store.workers.get("worker-7")
        assert entry is not None
        found = orjson.loads(entry.value)
    assert found.pop("last_seen").endswith("Z")
    assert found.pop("version")
    assert found == {
        "worker_id": "worker-7",
        "task_types": [task],
        "language": "python",
        "transport": "nats",
        "max_tasks": 4,
        "metadata": {"zone": "a"},
        "hostname": socket.gethostname(),
        "pid": os.getpid(),
    }
    assert await store.workers.get("worker-7") is None


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


async def test_worker_that_stops_under_load_leaves_nothing_behind(
    store: Store, new_worker: NewWorker, task: str
) -> None:
    await durable(store, task, NEVER_S)
    first, second, ran = new_worker(max_tasks=16), new_worker(max_tasks=16), Counter[str]()

    @first.task(task)
    async def some(value: None, ctx: Context) -> None:
        ran[ctx.run_id] += 1
        if len(ran) == 50:
            first.stop()

    @second.task(task)
    async def rest(value: None, ctx: Context) -> None:
        ran[ctx.run_id] += 1

    run_ids = await asyncio.gather(*(dispatch(store, task) for _ in range(200)))
    await first.serve()
    by_first = len(ran)
    async with second.running():
        await acknowledged(store, task, within_s=60)
    last = await asyncio.gather(*map(store.history.last, run_ids))
    assert all(stored and isinstance(decode(stored.data), StepCompleted) for stored in last)
    assert by_first < 200
    assert ran == Counter(run_ids)


async def test_stop_gives_back_what_does_not_finish(store: Store, new_worker: NewWorker, task: str) -> None:
    worker, cancelled = new_worker(grace_s=0.05, max_tasks=2), []

    @worker.task(task)
    async def stuck() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(1)
            raise

    run_ids = [await dispatch(store, task) for _ in range(4)]
    async with worker.running():
        for run_id in run_ids[:2]:
            await reported(store, run_id, lambda e: isinstance(e, StepStarted))
    assert cancelled == [1, 1]
    async with taking(store, task) as taken:
        back = {(await asyncio.wait_for(taken.get(), 5)).subject[-32:]}
    assert back <= set(run_ids)


async def test_thread_that_does_not_end_is_left_behind(store: Store, new_worker: NewWorker, task: str) -> None:
    worker, over, errors = new_worker(grace_s=0.05), threading.Event(), []

    @worker.task(task)
    def stuck(value: None, ctx: BlockingContext) -> None:
        try:
            ctx.wait_signal("never")
        except BaseException as error:
            errors.append(type(error).__name__)
            raise
        finally:
            over.set()

    run_id = await dispatch(store, task)
    async with worker.running():
        await reported(store, run_id, lambda e: isinstance(e, StepStarted))
    assert await asyncio.to_thread(over.wait, 5)
    assert errors == ["CancelledError"]
    async with taking(store, task) as taken:
        assert (await asyncio.wait_for(taken.get(), 5)).deliveries == 2


async def test_worker_can_run_again(store: Store, worker: Worker, task: str) -> None:
    worker.task(task)(lambda: None)
    for _ in range(2):
        run_id = await dispatch(store, task)
        async with worker.running():
            assert isinstance(await answer(store, run_id), StepCompleted)


async def test_durable_with_another_filter_is_reported_at_the_start(store: Store, worker: Worker, task: str) -> None:
    name = names.task_consumer(task)
    config = {"durable_name": name, "ack_policy": "explicit", "filter_subject": f"task.{task}.one-run"}
    await store.broker.api(f"CONSUMER.CREATE.{names.TASKS}.{name}", {"stream_name": names.TASKS, "config": config})
    worker.task(task)(lambda: None)
    with pytest.raises(Conflict, match="serves"):
        async with worker.running():
            pass


async def test_terminated_process_finishes_its_task_and_leaves_no_trace(
    store: Store, broker_url: str, task: str
) -> None:
    run_id = await dispatch(store, task)
    async with _program(broker_url, task, f"w-{task}") as process:
        await _says(process, b"begun")
        assert await store.workers.get(f"w-{task}") is not None
        process.send_signal(signal.SIGTERM)
        await _says(process, b"worker_finishing")
        await store.signals.put(record_keys.signal_key(run_id, "go"), b'"went"')
        await _says(process, b"ended")
        assert await process.wait() == 0
    assert isinstance(await answer(store, run_id), StepCompleted)
    assert await store.workers.get(f"w-{task}") is None
    await acknowledged(store, task)


async def test_second_signal_stops_at_once_and_gives_back(store: Store, broker_url: str, task: str) -> None:
    run_id = await dispatch(store, task)
    async with _program(broker_url, task, f"w-{task}") as process:
        await _says(process, b"begun")
        process.send_signal(signal.SIGINT)
        await _says(process, b"worker_finishing")
        process.send_signal(signal.SIGINT)
        await _says(process, b"ended")
        assert await process.wait() == 0
    async with taking(store, task) as taken:
        delivery = await asyncio.wait_for(taken.get(), 5)
    assert (delivery.subject[-32:], delivery.deliveries) == (run_id, 2)


async def test_signal_before_the_broker_is_there_ends_the_process(task: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes the connection, says nothing
        url = f"nats://127.0.0.1:{silent.getsockname()[1]}"
        async with _program(url, task, f"w-{task}") as process:
            connection, _ = await asyncio.to_thread(silent.accept)
            with connection:
                process.send_signal(signal.SIGTERM)
                await _says(process, b"ended")
                assert await process.wait() == 0
