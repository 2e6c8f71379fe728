"""What a worker's intake does when taking back its requests fails."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker.pull import Delivery, Pull
from penstock.broker.store import Store
from penstock.engine.errors import Unavailable
from penstock.worker.functions import TaskFunction
from penstock.worker.intake import open_intake
from penstock.worker.transport import Bounds
from tests.worker.desk import PATIENCE_S, dispatch


async def test_an_intake_asks_again_after_a_recall_that_failed(store: Store, task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    handled: asyncio.Queue[str] = asyncio.Queue()

    async def handle(function: TaskFunction, delivery: Delivery) -> None:
        await delivery.ack()
        handled.put_nowait(delivery.subject.rpartition(".")[2])

    async def gone(pull: Pull) -> None:
        raise Unavailable("the connection broke")

    function = TaskFunction(task, lambda: None, 0, False)
    async with open_intake(store, [function], handle, Bounds(1, None, 0.2), "w-1") as intake:
        monkeypatch.setattr(Pull, "recall", gone)
        with pytest.raises(Unavailable):
            await intake._recall(intake._sources[0])
        monkeypatch.undo()
        run_ids = [await dispatch(store, task) for _ in range(2)]  # the first is brought by what was asked for before
        async with asyncio.timeout(PATIENCE_S):
            assert run_ids == [await handled.get() for _ in run_ids]
