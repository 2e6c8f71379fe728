"""Workers that were killed leave their own consumers behind: these go soon after their registration, tasks stay."""

from __future__ import annotations

import asyncio

import orjson
import pytest
from msgspec import Raw
from uuid_utils import uuid7

from penstock.actors.maintenance.away_workers import AWAY_S, AwayWorkers
from penstock.broker.nats.pull import Delivery
from penstock.broker.store import Store
from penstock.engine.run.commands import DispatchTask
from tests.support.waiting import until

WORKER = "w.1"


@pytest.fixture
def task() -> str:
    """A task type of the test's own."""
    return f"t{uuid7().hex}"


async def registered(store: Store, task: str, worker_id: str = WORKER) -> None:
    await store.workers.put("w-1", orjson.dumps({"worker_id": worker_id, "task_types": [task]}))


async def taken(store: Store, task: str) -> Delivery:
    """The next task of the worker, which then disappears without a word: its consumer stays."""
    queue: asyncio.Queue[Delivery] = asyncio.Queue()
    async with store.sticky_tasks.consume(task, WORKER, queue.put_nowait, batch=1, room=lambda: 1):
        return await queue.get()


async def test_the_consumers_of_a_killed_worker_go_with_its_registration_and_come_back_with_it(
    store: Store, task: str
) -> None:
    away, pair = AwayWorkers(store), (task, WORKER)
    run_id = uuid7().hex
    await store.tasks.send(run_id, "wf", DispatchTask("s", task, 1, 0, Raw(b"1"), {}, None, WORKER))
    await registered(store, task)
    await (await taken(store, task)).give_back()
    assert (0, True) == (await away.remove(0.0), pair in await store.sticky_tasks.pairs())
    await store.workers.delete("w-1")
    assert 0 == await away.remove(AWAY_S - 1), "it may only have been cut off from the broker"
    assert 1 == await until(lambda: away.remove(AWAY_S))
    assert pair not in await store.sticky_tasks.pairs()
    assert not await store.sticky_tasks.takes(task, WORKER)
    assert (0, {run_id}) == (await away.remove(AWAY_S), await store.sticky_tasks.runs())
    await registered(store, task)
    await (await taken(store, task)).ack()
    assert (0, True) == (await away.remove(2 * AWAY_S), await store.sticky_tasks.takes(task, WORKER))
    await store.workers.delete("w-1")


async def test_a_worker_that_asks_or_was_never_registered_keeps_its_consumers(store: Store, task: str) -> None:
    away, never, asks = AwayWorkers(store), f"{task}x", "w.2"
    async with store.sticky_tasks.consume(task, asks, lambda delivery: None, batch=1, room=lambda: 1):
        await registered(store, task, asks)
        async with store.sticky_tasks.consume(never, "unknown", lambda delivery: None, batch=1, room=lambda: 0):
            pass
        assert 0 == await away.remove(0.0)
        await store.workers.delete("w-1")
        assert 0 == await away.remove(2 * AWAY_S)
        assert {(task, asks), (never, "unknown")} <= set(await store.sticky_tasks.pairs())
