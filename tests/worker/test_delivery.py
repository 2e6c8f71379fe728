"""Tasks that are delivered again, that cannot be read, that take long, and that are shared."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter

import orjson
import pytest

from penstock.broker import names
from penstock.broker.store import Store
from penstock.engine.run.events import StepCompleted, StepFailed, decode
from penstock.worker import Context, Worker
from tests.worker.conftest import NewWorker
from tests.worker.task_queue import (
    acknowledged,
    answer,
    dispatch,
    durable,
    new_run_id,
    output_of,
    put_raw,
    taking,
    until,
    waiting,
)

KILLED = """
import asyncio, sys
from penstock.worker import Worker
worker = Worker(broker_url=sys.argv[1])

@worker.task(sys.argv[2])
async def stuck():
    print("begun", flush=True)
    await asyncio.Event().wait()

worker.run()
"""


async def test_task_of_a_killed_worker_is_delivered_again(
    store: Store, worker: Worker, task: str, broker_url: str
) -> None:
    await durable(store, task, ack_wait_s=1)
    run_id = await dispatch(store, task)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, broker_url, task, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    while b"begun" not in await process.stdout.readline():
        assert not process.stdout.at_eof()
    process.send_signal(signal.SIGKILL)
    await process.wait()

    @worker.task(task)
    async def again(value: None, ctx: Context) -> int:
        return ctx.deliveries

    async with worker.running():
        event = await answer(store, run_id)
    assert isinstance(event, StepCompleted)
    assert output_of(event) == 2
    assert event.worker_id == worker.worker_id


async def test_the_history_shows_which_delivery_a_step_began_with(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    async def work(value: None, ctx: Context) -> int:
        return ctx.deliveries

    first, second = await dispatch(store, task), new_run_id()
    async with worker.running():
        assert (1, False) == await _began_with(store, first)
    await dispatch(store, task, run_id=second)
    async with taking(store, task) as taken:
        await (await taken.get()).give_back()
    async with worker.running():
        delivery, told = await _began_with(store, second)
    assert (True, True) == (delivery > 1, told)


async def _began_with(store: Store, run_id: str) -> tuple[int, bool]:
    """The delivery that the answer, which says when its execution began, tells; it is the one that the function saw.
    And whether it stands in the event."""
    seen = output_of(await answer(store, run_id))
    [stored] = await store.history.read(run_id)
    answered = decode(stored.data)
    assert isinstance(answered, StepCompleted)
    assert answered.started_at is not None
    assert seen == answered.delivery
    return answered.delivery, b'"delivery"' in stored.data


async def test_task_delivered_more_than_ten_times_fails_for_good_without_running(
    store: Store, worker: Worker, task: str
) -> None:
    run_id, ran = await dispatch(store, task), []
    async with taking(store, task) as taken:
        for _ in range(10):
            await (await taken.get()).give_back()

    @worker.task(task)
    async def never() -> None:
        ran.append(1)

    async with worker.running():
        event = await answer(store, run_id)
        await acknowledged(store, task)
    assert isinstance(event, StepFailed)
    assert (event.payload.failure_type, event.payload.error) == (
        "non_retriable",
        "delivered 10 times without an answer",
    )
    assert event.attempt_number == 1
    assert not ran


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff\xfe", b"[]", b'{"run_id": "no run id", "step_id": "s", "task_id": "x"}']
)
async def test_body_without_ids_becomes_a_dead_letter(store: Store, worker: Worker, task: str, body: bytes) -> None:
    @worker.task(task)
    async def fine() -> None: ...

    run_id = new_run_id()
    await put_raw(store, task, run_id, body)
    healthy = await dispatch(store, task)
    async with worker.running():
        assert isinstance(await answer(store, healthy), StepCompleted)
        await acknowledged(store, task)
    (dead_letter,) = await store.reader.subject(names.DEAD, f"dead.{task}.{run_id}.*")
    assert orjson.loads(dead_letter.data)["input"] == body.decode("utf-8", "replace")


async def test_malformed_body_with_ids_fails_its_step(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    async def never() -> None: ...

    run_id = new_run_id()
    await put_raw(
        store, task, run_id, orjson.dumps({"run_id": run_id, "step_id": "s", "task_id": "x", "attempt": "one"})
    )
    async with worker.running():
        event = await answer(store, run_id)
        await acknowledged(store, task)
    assert isinstance(event, StepFailed)
    assert event.payload.failure_type == "non_retriable"
    assert event.attempt_number is None
    assert "attempt" in event.payload.error


async def test_long_task_is_not_delivered_again_while_it_runs(store: Store, worker: Worker, task: str) -> None:
    await durable(store, task, ack_wait_s=0.3)
    ran: list[int] = []

    @worker.task(task)
    async def long(value: None, ctx: Context) -> None:
        ran.append(ctx.deliveries)
        await asyncio.sleep(1.2)  # four times the ack wait

    run_id = await dispatch(store, task)
    async with worker.running():
        assert isinstance(await answer(store, run_id), StepCompleted)
        await acknowledged(store, task)
    assert ran == [1]


async def test_two_workers_share_one_queue(store: Store, new_worker: NewWorker, task: str) -> None:
    workers, done, all_done = [new_worker(max_tasks=2), new_worker(max_tasks=2)], Counter[str](), asyncio.Event()
    both = asyncio.Barrier(4)

    def register(worker: Worker) -> None:
        @worker.task(task)
        async def work() -> None:
            await both.wait()  # only passes when all four slots of the two workers are in use
            done[worker.worker_id] += 1
            if done.total() == 40:
                all_done.set()

    for worker in workers:
        register(worker)
    for _ in range(40):
        await dispatch(store, task)
    async with asyncio.timeout(10), workers[0].running(), workers[1].running():
        await all_done.wait()
        await acknowledged(store, task)
    assert done == {workers[0].worker_id: 20, workers[1].worker_id: 20}


async def test_worker_holds_no_more_than_max_tasks(store: Store, new_worker: NewWorker, task: str) -> None:
    worker, gate, running = new_worker(max_tasks=3), asyncio.Event(), []

    @worker.task(task)
    async def held() -> None:
        running.append(1)
        await gate.wait()

    for _ in range(5):
        await dispatch(store, task)

    async def three_run() -> bool:
        return len(running) == 3

    async with worker.running(), taking(store, task) as others:
        await until(three_run)
        assert await asyncio.wait_for(others.get(), 5)  # what the worker does not hold is there for others
        assert len(running) == 3
        assert await waiting(store, task) == 5
        gate.set()


async def test_worker_of_several_types_gives_all_its_room_to_the_one_that_has_work(
    store: Store, new_worker: NewWorker, task: str
) -> None:
    worker, all_run = new_worker(max_tasks=8), asyncio.Barrier(8)
    for number in range(5):

        @worker.task(f"{task}-{number}")
        async def together() -> None:
            await all_run.wait()

    run_ids = [await dispatch(store, f"{task}-3") for _ in range(16)]
    async with worker.running():
        for run_id in run_ids:
            assert isinstance(await answer(store, run_id), StepCompleted)


async def test_one_slot_serves_several_types(store: Store, new_worker: NewWorker, task: str) -> None:
    worker, running = new_worker(max_tasks=1), 0
    for number in range(3):

        @worker.task(f"{task}-{number}")
        async def alone() -> None:
            nonlocal running
            running += 1
            assert running == 1
            await asyncio.sleep(0)
            running -= 1

    run_ids = [await dispatch(store, f"{task}-{number % 3}") for number in range(12)]
    async with worker.running():
        for run_id in run_ids:
            assert isinstance(await answer(store, run_id), StepCompleted)


async def test_full_worker_leaves_tasks_of_its_other_types_to_others(
    store: Store, new_worker: NewWorker, task: str
) -> None:
    worker, gate, begun = new_worker(max_tasks=1), asyncio.Event(), asyncio.Event()
    quick, slow = f"{task}-quick", f"{task}-slow"

    @worker.task(slow)
    async def long() -> None:
        begun.set()
        await gate.wait()

    @worker.task(quick)
    async def short() -> None: ...

    async with worker.running():
        await dispatch(store, slow)
        await begun.wait()
        await dispatch(store, quick)  # taken by the full worker's open request, or not: another must get it
        async with taking(store, quick) as others:
            assert await asyncio.wait_for(others.get(), 5)
        gate.set()


async def test_group_takes_only_its_own_tasks(store: Store, new_worker: NewWorker, task: str) -> None:
    worker = new_worker(group="gpu")

    @worker.task(task)
    async def work() -> None: ...

    other = await dispatch(store, task)
    own = await dispatch(store, task, group="gpu")
    async with worker.running():
        assert isinstance(await answer(store, own), StepCompleted)
    assert await store.history.read(other) == []
    assert await waiting(store, task) == 1
