"""What waits for workers, as GET /tasks tells it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import orjson
from falcon.testing import ASGIConductor

from penstock.broker import names
from penstock.broker.nats.pull import Delivery
from penstock.broker.store import Store
from penstock.engine.times import rfc3339
from tests.support.waiting import until
from tests.worker.task_queue import dispatch


async def test_queues_show_waiting_tasks_and_their_workers(http: ASGIConductor, store: Store, task: str) -> None:
    taken: asyncio.Queue[Delivery] = asyncio.Queue()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(
            store.tasks.consume(task, taken.put_nowait, batch=1, room=lambda: 1 - taken.qsize())
        )
        for worker, types in (("w1", [task]), ("w2", [task, "other"]), ("w3", ["other"])):
            await store.workers.put(f"{task}-{worker}", orjson.dumps({"worker_id": worker, "task_types": types}))
        await store.workers.put(f"{task}-odd", b'{"task_types": 7}')
        for _ in range(3):
            await dispatch(store, task)
        delivery = await asyncio.wait_for(taken.get(), 10)
        taken.put_nowait(delivery)
        found = await until(lambda: _queue(http, task, waiting=2, in_hand=1))
        assert (2, rfc3339(delivery.at)[:19]) == (found["workers"], found["oldest_at"][:19])
        assert "worker_group" not in found


async def test_what_nobody_has_ever_asked_for_is_there_with_no_worker(
    http: ASGIConductor, store: Store, task: str
) -> None:
    for _ in range(2):
        await dispatch(store, task)
    found = await until(lambda: _queue(http, task, waiting=2, in_hand=0))
    assert 0 == found["workers"]
    assert found["oldest_at"]


async def test_an_empty_queue_has_no_oldest_task(http: ASGIConductor, store: Store, task: str) -> None:
    async with store.tasks.consume(task, lambda delivery: None, batch=1, room=lambda: 1):
        found = await until(lambda: _queue(http, task, waiting=0, in_hand=0))
    assert {"task": task, "waiting": 0, "in_hand": 0, "workers": 0} == found


def test_a_filter_says_its_type_and_group() -> None:
    assert ("a", None) == names.task_of("task.a.*")
    assert ("a.b", None) == names.task_of("task.a.b.*")
    assert ("a.b", "gpu") == names.task_of("task.a.b.=gpu.*")


async def _queue(http: ASGIConductor, task: str, **numbers: int) -> dict[str, Any] | None:
    queues: list[dict[str, Any]] = (await http.simulate_get("/tasks")).json
    return next((one for one in queues if one["task"] == task and numbers.items() <= one.items()), None)
