"""Both transports give a worker the same tasks: as many as it has room for, of its types, its group and its runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from msgspec import Raw

from penstock.broker import names
from penstock.broker.store import Store
from penstock.config.limits import MIB
from penstock.engine.run.commands import DispatchTask
from penstock.engine.run.events import StepCompleted
from penstock.worker import Context, Worker
from penstock.worker.transports import bridge_intake, direct_intake
from tests.http.bridge import frames, requests_waiting
from tests.support.waiting import until, until_true
from tests.worker.conftest import NewWorker
from tests.worker.task_queue import (
    answer,
    dispatch,
    new_run_id,
    output_of,
    taking,
    waiting,
)


async def test_worker_holds_no_more_than_max_tasks(store: Store, new_worker: NewWorker, task: str) -> None:
    worker, gate, running = new_worker(max_tasks=3), asyncio.Event(), []

    @worker.task(task)
    async def held() -> None:
        running.append(1)
        await gate.wait()

    for _ in range(5):
        await dispatch(store, task)
    async with worker.running():
        await until_true(lambda: len(running) == 3)
        async with taking(store, task) as others:
            assert await asyncio.wait_for(others.get(), 5)  # what the worker does not hold is there for others
        assert 3 == len(running)
        assert 5 == await waiting(store, task)
        gate.set()


async def test_worker_holds_few_large_tasks(
    store: Store, new_worker: NewWorker, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has asked for when it has enough, 8 MiB at the most, it takes. Then it asks for no more, of no type."""
    for transport in (bridge_intake, direct_intake):
        monkeypatch.setattr(transport, "TASKS_BYTES_MAX", 2 * MIB)
    worker, gate, running = new_worker(max_tasks=100), asyncio.Event(), []
    worker.task(f"{task}-other")(lambda: None)

    async def asks_no_more() -> bool:
        return await requests_waiting(store, f"{task}-other") == 0

    @worker.task(task)
    async def held(value: str) -> int:
        running.append(1)
        await gate.wait()
        return len(value)

    run_ids = [await dispatch(store, task, "x" * (MIB - 2)) for _ in range(24)]
    async with worker.running():
        await until_true(lambda: len(running) >= 2)
        await until(asks_no_more)
        assert 2 <= len(running) <= 2 + 9
        gate.set()
        for run_id in run_ids:
            assert MIB - 2 == output_of(await answer(store, run_id))


async def test_the_largest_task_is_carried_out(
    store: Store, worker: Worker, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for transport in (bridge_intake, direct_intake):
        monkeypatch.setattr(transport, "TASKS_BYTES_MAX", MIB)
    size = store.publisher.body_bytes_max - 1000  # with what stands around it
    worker.task(task)(len)
    run_ids = [await dispatch(store, task, "x" * size) for _ in range(3)]
    async with worker.running():
        for run_id in run_ids:
            assert size == output_of(await answer(store, run_id))


async def test_several_types_share_the_room(store: Store, new_worker: NewWorker, task: str) -> None:
    worker, done = new_worker(max_tasks=4), Counter[str]()
    for number in range(3):

        @worker.task(f"{task}-{number}")
        async def work(value: str) -> None:
            done[value] += 1

    run_ids = [await dispatch(store, f"{task}-{number % 3}", str(number % 3)) for number in range(30)]
    async with worker.running():
        for run_id in run_ids:
            assert isinstance(await answer(store, run_id), StepCompleted)
    assert {"0": 10, "1": 10, "2": 10} == done


async def test_group_takes_only_its_own_tasks(store: Store, new_worker: NewWorker, task: str) -> None:
    worker = new_worker(group="gpu")
    worker.task(task)(lambda: None)
    other = await dispatch(store, task)
    own = await dispatch(store, task, group="gpu")
    async with worker.running():
        assert isinstance(await answer(store, own), StepCompleted)
    assert [] == await store.history.read(other)
    assert 1 == await waiting(store, task)


async def test_task_bound_to_a_worker_comes_to_it_alone(store: Store, new_worker: NewWorker, task: str) -> None:
    chosen, other, ran = new_worker(worker_id=f"w1-{task}"), new_worker(worker_id=f"w2-{task}"), []

    def register(worker: Worker) -> None:
        @worker.task(task)
        async def work(value: int) -> int:
            ran.append(worker.worker_id)
            return value

    register(chosen)
    register(other)
    run_ids = [new_run_id() for _ in range(5)]
    for run_id in run_ids:
        await store.tasks.send(
            run_id, "flow", DispatchTask("s", task, 1, 0, Raw(b"1"), {}, None, worker=chosen.worker_id)
        )
    async with frames(store, names.STICKY) as seen, other.running(), chosen.running():
        for run_id in run_ids:
            assert chosen.worker_id == (await answer(store, run_id)).worker_id
        await until_true(lambda: len(seen) == 5)
    assert ([b"+ACK"] * 5, [chosen.worker_id] * 5) == (seen, ran)


async def test_full_worker_takes_its_own_tasks_when_it_has_room(store: Store, new_worker: NewWorker, task: str) -> None:
    worker, gate, begun = new_worker(max_tasks=1, worker_id=f"w-{task}"), asyncio.Event(), asyncio.Event()

    @worker.task(task)
    async def work(value: Any, ctx: Context) -> int:
        begun.set()
        if value == "long":
            await gate.wait()
        return ctx.deliveries

    async with worker.running():
        await dispatch(store, task, "long")
        await begun.wait()
        run_id = new_run_id()
        await store.tasks.send(
            run_id, "flow", DispatchTask("s", task, 1, 0, Raw(b"1"), {}, None, worker=worker.worker_id)
        )
        gate.set()
        assert isinstance(await answer(store, run_id), StepCompleted)
