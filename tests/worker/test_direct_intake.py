"""What a worker's intake does when taking back its requests fails."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import Raw

from penstock.broker.nats.pull import Delivery, Pull
from penstock.broker.store import Store
from penstock.engine.errors import Unavailable
from penstock.engine.run.commands import DispatchTask
from penstock.worker.functions import TaskFunction
from penstock.worker.transport import IntakeLimits
from penstock.worker.transports.direct_intake import open_direct_intake
from tests.worker.task_queue import TIMEOUT_S, dispatch, new_run_id


async def test_an_intake_asks_again_after_a_recall_that_failed(
    store: Store, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled: asyncio.Queue[str] = asyncio.Queue()

    async def handle(function: TaskFunction, delivery: Delivery) -> None:
        await delivery.ack()
        handled.put_nowait(delivery.subject.rpartition(".")[2])

    async def gone(pull: Pull) -> None:
        raise Unavailable("the connection broke")

    function = TaskFunction(task, lambda: None, 0, False)
    async with open_direct_intake(store, [function], handle, IntakeLimits(1, None, 0.2), "w-1") as intake:
        monkeypatch.setattr(Pull, "recall", gone)
        with pytest.raises(Unavailable):
            await intake._recall(intake._sources[0])
        monkeypatch.undo()
        run_ids = [await dispatch(store, task) for _ in range(2)]  # the first is brought by what was asked for before
        async with asyncio.timeout(TIMEOUT_S):
            assert run_ids == [await handled.get() for _ in run_ids]


async def test_a_worker_that_is_behind_with_its_own_tasks_begins_few_of_everyones(store: Store, task: str) -> None:
    """Else runs that are bound to it would wait for others to begin, fall back after 5 s, and cost twice. And none of
    its types starves."""
    order: list[str] = []
    done = asyncio.Event()

    async def handle(function: TaskFunction, delivery: Delivery) -> None:
        await delivery.ack()
        order.append("own." + function.name[-1] if delivery.subject.startswith("sticky.") else "everyones")
        if len(order) == 300:
            done.set()

    functions = [TaskFunction(f"{task}.{letter}", lambda: None, 0, False) for letter in "ab"]
    for count, letter, worker in ((100, "a", None), (150, "a", "w-1"), (50, "b", "w-1")):
        for _ in range(count):
            await store.tasks.send(
                new_run_id(), "flow", DispatchTask("s", f"{task}.{letter}", 1, 0, Raw(b"1"), {}, None, worker)
            )
    async with open_direct_intake(store, functions, handle, IntakeLimits(10, None, 0.2), "w-1"):
        async with asyncio.timeout(TIMEOUT_S):
            await done.wait()
    last = {kind: len(order) - order[::-1].index(kind) for kind in ("own.a", "own.b", "everyones")}
    assert last["own.a"] < last["everyones"]
    assert last["own.b"] < last["everyones"]
    assert order[: last["own.a"]].count("everyones") < 60
