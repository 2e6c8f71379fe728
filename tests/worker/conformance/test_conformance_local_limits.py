"""Both transports keep to a worker's own limits of a task type, and leave at the broker what does not fit."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from msgspec import Raw

from penstock.broker.store import Store
from penstock.engine.run.commands import DispatchTask
from penstock.engine.run.events import StepCompleted
from penstock.worker import Worker
from penstock.worker.local_limits import TaskAllowance
from tests.support.waiting import until_true
from tests.worker.conftest import NewWorker
from tests.worker.task_queue import acknowledged, answer, dispatch, new_run_id, output_of, taking, waiting

PAGE = Path(__file__).parents[3] / "docs" / "workers.md"


async def test_no_more_than_max_concurrency_are_held_and_other_types_go_on(
    store: Store, worker: Worker, task: str
) -> None:
    gate, running = asyncio.Event(), []

    @worker.task(task, max_concurrency=2)
    async def limited() -> None:
        running.append(1)
        await gate.wait()

    @worker.task(f"{task}-free")
    async def free() -> str:
        return "done"

    run_ids = [await dispatch(store, task) for _ in range(7)]
    async with worker.running():
        await until_true(lambda: len(running) == 2)
        for _ in range(3):
            assert "done" == output_of(await answer(store, await dispatch(store, f"{task}-free")))
        async with taking(store, task) as others:
            for _ in range(5):
                taken = await asyncio.wait_for(others.get(), 5)
                await taken.ack()
                run_ids.remove(taken.subject.rpartition(".")[2])
        assert 2 == len(running)
        gate.set()
        for run_id in run_ids:
            assert isinstance(await answer(store, run_id), StepCompleted)


async def test_a_limited_type_takes_the_next_as_soon_as_one_ends(store: Store, worker: Worker, task: str) -> None:
    running, most = [0], [0]

    @worker.task(task, max_concurrency=2)
    async def limited() -> None:
        running[0] += 1
        most[0] = max(most[0], running[0])
        await asyncio.sleep(0.001)
        running[0] -= 1

    worker.task(f"{task}-free")(lambda: None)
    run_ids = [await dispatch(store, task) for _ in range(60)]
    async with worker.running():
        async with asyncio.timeout(20):
            await acknowledged(store, task, 20)
        for run_id in run_ids:
            assert isinstance(await answer(store, run_id), StepCompleted)
    assert 1 <= most[0] <= 2


async def test_no_span_sees_more_than_the_rate(
    store: Store, worker: Worker, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the times at which tasks count as begun: on a busy machine their functions are called later."""
    begin, begun, called = TaskAllowance.begin, list[float](), list[float]()

    def begin_and_note(allowance: TaskAllowance) -> None:
        begin(allowance)
        begun.append(time.monotonic())

    monkeypatch.setattr(TaskAllowance, "begin", begin_and_note)

    @worker.task(task, rate="4/400ms")
    async def limited() -> None:
        called.append(time.monotonic())

    run_ids = [await dispatch(store, task) for _ in range(14)]
    async with worker.running():
        for run_id in run_ids:
            assert isinstance(await answer(store, run_id), StepCompleted)
    spans = [later - first for first, later in zip(begun, begun[4:], strict=False)]
    assert min(spans) >= 0.39
    assert all(later >= first for first, later in zip(begun, called, strict=True))
    assert begun[-1] - begun[0] < 3


async def test_a_task_beyond_the_rate_is_left_for_other_workers(store: Store, worker: Worker, task: str) -> None:
    worker.task(task, rate="1/h")(lambda: "done")
    worker.task(f"{task}-free")(lambda: "free")
    first = await dispatch(store, task)
    async with worker.running():
        assert "done" == output_of(await answer(store, first))
        second = await dispatch(store, task)
        assert "free" == output_of(await answer(store, await dispatch(store, f"{task}-free")))
        async with taking(store, task) as others:
            taken = await asyncio.wait_for(others.get(), 5)
        assert second == taken.subject.rpartition(".")[2]
        assert (1, 1) == (taken.deliveries, await waiting(store, task))
        assert [] == await store.history.read(second)


async def test_tasks_of_bound_runs_count_for_the_same_limit(store: Store, worker: Worker, task: str) -> None:
    running, most = [0], [0]

    @worker.task(task, max_concurrency=1)
    async def limited() -> None:
        running[0] += 1
        most[0] = max(most[0], running[0])
        await asyncio.sleep(0.002)
        running[0] -= 1

    run_ids = []
    async with worker.running():
        for number in range(30):
            run_ids.append(new_run_id())
            bound = worker.worker_id if number % 2 else None
            command = DispatchTask("s", task, 1, 0, Raw(b"1"), {}, None, bound)
            await store.tasks.send(run_ids[-1], "flow", command)
        for run_id in run_ids:
            assert isinstance(await answer(store, run_id), StepCompleted)
    assert [1] == most


async def test_each_limited_type_has_its_turn_on_a_small_worker(store: Store, new_worker: NewWorker, task: str) -> None:
    worker, running, most = new_worker(max_tasks=1), [0], [0]
    for number in range(3):

        @worker.task(f"{task}-{number}", **({"max_concurrency": 1} if number else {}))
        async def work() -> None:
            running[0] += 1
            most[0] = max(most[0], running[0])
            await asyncio.sleep(0.001)
            running[0] -= 1

    run_ids = [await dispatch(store, f"{task}-{number % 3}") for number in range(12)]
    async with worker.running():
        for run_id in run_ids:
            assert isinstance(await answer(store, run_id), StepCompleted)
    assert [1] == most


async def test_a_registration_shows_the_limits(store: Store, new_worker: NewWorker, task: str) -> None:
    worker = new_worker(metadata={"zone": "a"})
    worker.task(task, rate="10/s", max_concurrency=2)(lambda: None)
    worker.task(f"{task}-free")(lambda: None)
    async with worker.running():
        entry = await store.workers.get(worker.worker_id)
        assert entry is not None
    assert orjson.loads(entry.value)["metadata"] == {"zone": "a", f"limits.{task}": "10/s, 2 at a time"}


async def test_the_example_of_the_page_carries_out_its_tasks(store: Store, new_worker: NewWorker) -> None:
    (example,) = re.findall(r"```python\n([^`]*max_concurrency[^`]*)```", PAGE.read_text())
    sent: list[Any] = []
    names: dict[str, Any] = {"worker": new_worker(), "smtp": sent.append, "ray_trace": lambda scene: f"{scene}.png"}
    exec(example, names)
    async with names["worker"].running():
        mail, picture = await dispatch(store, "send-mail", "hello"), await dispatch(store, "render", "scene")
        assert isinstance(await answer(store, mail), StepCompleted)
        assert "scene.png" == output_of(await answer(store, picture))
    assert ["hello"] == sent
