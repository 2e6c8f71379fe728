"""Tasks that wait for one worker: it alone gets them, and they can be taken back one by one or all at once."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

import pytest
from msgspec import Raw
from uuid_utils import uuid7

from penstock.broker.nats.pull import Delivery
from penstock.broker.store import Store
from penstock.broker.streams import sticky_tasks
from penstock.broker.worker_messages import decode
from penstock.engine.run.commands import DispatchTask, WithdrawSticky


def order(task: str, worker: str | None, step_id: str = "s", attempt: int = 1) -> DispatchTask:
    return DispatchTask(step_id, task, attempt, 0, Raw(b"1"), {}, None, worker)


def back(task: str, worker: str, step_id: str = "s", attempt: int = 1) -> WithdrawSticky:
    return WithdrawSticky(step_id, task, attempt, 0, worker)


@pytest.fixture
def task() -> str:
    """A task type of the test's own."""
    return f"t{uuid7().hex}"


@pytest.fixture
def run() -> str:
    return uuid7().hex


async def received(store: Store, task: str, worker: str, count: int) -> list[tuple[str, int]]:
    """Step and attempt of the first tasks that the worker gets, in order; fails when there are more that wait."""
    queue: asyncio.Queue[Delivery] = asyncio.Queue()
    async with store.sticky_tasks.consume(task, worker, queue.put_nowait, batch=10, room=lambda: 10):
        deliveries = [await queue.get() for _ in range(count)]
        for delivery in deliveries:
            await delivery.ack()
    assert queue.empty()
    return [(payload.step_id, payload.attempt) for payload in (decode(delivery.data) for delivery in deliveries)]


async def test_each_worker_gets_its_own_tasks_also_those_that_came_before_it(store: Store, task: str, run: str) -> None:
    await store.tasks.send(run, "wf", order(task, "w1", "one"))
    await store.tasks.send(run, "wf", order(task, "w2", "two"))
    assert await received(store, task, "w2", 1) == [("two", 1)]
    assert await received(store, task, "w1", 1) == [("one", 1)]


async def test_types_that_differ_by_a_dot_and_a_dash_have_consumers_of_their_own(
    store: Store, task: str, run: str
) -> None:
    dotted, dashed = f"{task}.x", f"{task}-x"
    await store.tasks.send(run, "wf", order(dotted, "w.1", "dotted"))
    await store.tasks.send(run, "wf", order(dashed, "w.1", "dashed"))
    first: asyncio.Queue[Delivery] = asyncio.Queue()
    async with store.sticky_tasks.consume(dotted, "w.1", first.put_nowait, batch=10, room=lambda: 10):
        assert await received(store, dashed, "w.1", 1) == [("dashed", 1)]
        assert decode((await first.get()).data).step_id == "dotted"
    assert first.empty()


async def test_a_task_that_falls_back_is_taken_from_its_worker_and_goes_to_everyone(
    store: Store, task: str, run: str
) -> None:
    """Under the id that it had: the two streams do not know each other's."""
    await store.tasks.send(run, "wf", order(task, "w1"))
    await store.tasks.send(run, "wf", order(task, "w1", "other"))
    await store.tasks.withdraw_sticky(run, back(task, "w1"), lambda: None)
    await store.tasks.send(run, "wf", order(task, None))
    assert await received(store, task, "w1", 1) == [("other", 1)]
    queue: asyncio.Queue[Delivery] = asyncio.Queue()
    async with store.tasks.consume(task, queue.put_nowait, batch=1, room=lambda: 1):
        assert decode((await queue.get()).data).step_id == "s"


async def test_only_the_very_execution_is_taken_back_and_twice_is_fine(store: Store, task: str, run: str) -> None:
    await store.tasks.send(run, "wf", order(task, "w1", attempt=1))
    await store.tasks.send(run, "wf", order(task, "w1", attempt=2))
    for _ in range(2):
        await store.tasks.withdraw_sticky(run, back(task, "w1", attempt=1), lambda: None)
    assert await received(store, task, "w1", 1) == [("s", 2)]


async def test_the_end_of_a_run_takes_back_what_waits_for_its_worker_and_nothing_of_another_run(
    store: Store, task: str, run: str
) -> None:
    other = uuid7().hex
    await store.tasks.send(run, "wf", order(task, "w1", "a"))
    await store.tasks.send(run, "wf", order(task, "w1", "b"))
    await store.tasks.send(other, "wf", order(task, "w1", "c"))
    await store.tasks.withdraw(run, task, None, "w1", lambda: None)
    assert await received(store, task, "w1", 1) == [("c", 1)]


async def test_who_takes_a_type_is_what_the_broker_says_and_remembered_for_a_moment(store: Store, task: str) -> None:
    tasks = store.sticky_tasks
    assert (None, False, False) == (
        tasks.known_to_take(task, "w1"),
        await tasks.takes(task, "w1"),
        tasks.known_to_take(task, "w1"),
    )
    async with tasks.consume(task, "w1", lambda _: None, batch=1, room=lambda: 0):
        assert (False, None) == (tasks.known_to_take(task, "w1"), tasks.known_to_take(task, "w2"))
        assert [True, True, False] == await asyncio.gather(
            tasks.takes(task, "w1"), tasks.takes(task, "w1"), tasks.takes(task, "w2")
        )
        assert (True, False) == (tasks.known_to_take(task, "w1"), tasks.known_to_take(task, "w2"))
        with patch.object(sticky_tasks, "REMEMBERED_S", 0.0):
            assert (None, None) == (tasks.known_to_take(task, "w1"), tasks.known_to_take(task, "w2"))


async def test_what_waits_is_known_by_type_and_worker(store: Store, task: str, run: str) -> None:
    await store.tasks.send(run, "wf", order(f"{task}.x", "w.1"))
    assert [run] == (await store.sticky_tasks.waiting())[f"{task}.x", "w.1"]
