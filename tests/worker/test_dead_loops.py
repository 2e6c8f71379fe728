"""A worker one of whose loops died says so and stops: it would hold tasks that nobody keeps alive."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker.nats.pull import Delivery
from penstock.broker.store import Store
from penstock.broker.streams.tasks import Tasks
from penstock.config.process.background import FAILURES
from penstock.worker import Worker
from tests.worker.task_queue import dispatch, taking


async def test_a_worker_that_cannot_keep_its_tasks_alive_stops_and_gives_them_back(
    store: Store, worker: Worker, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def brief(self: Tasks, task: str, group: str | None = None) -> float:
        return 0.03

    async def broken(self: Delivery) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(Tasks, "ack_wait_s", brief)
    monkeypatch.setattr(Delivery, "in_progress", broken)
    monkeypatch.setattr(worker, "_bounds", worker._bounds._replace(grace_s=0.0))
    failures_before = FAILURES["worker_keep_alive"]

    @worker.task(task)
    async def stuck() -> None:
        await asyncio.Event().wait()

    await dispatch(store, task)
    async with asyncio.timeout(10):
        with pytest.raises(ZeroDivisionError, match="a bug"):
            await worker.serve()
    assert FAILURES["worker_keep_alive"] == failures_before + 1
    async with taking(store, task) as taken, asyncio.timeout(5):
        assert (await taken.get()).deliveries == 2
