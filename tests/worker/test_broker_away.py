"""The broker goes in the middle of a task, and comes back."""

from __future__ import annotations

import asyncio

from penstock.broker import record_keys
from penstock.broker.embedded.server import EmbeddedBroker
from penstock.broker.store import Store
from penstock.engine.run.events import StepCompleted
from penstock.worker import Context, Worker
from tests.worker.task_queue import acknowledged, answer, dispatch, output_of, until


async def _kill(embedded: EmbeddedBroker, store: Store) -> None:
    assert embedded.command is not None
    embedded.command.kill()
    embedded.command.join()
    await _in_state(store, connected=False)


async def _start(embedded: EmbeddedBroker, store: Store) -> None:
    embedded.start()
    await _in_state(store, connected=True)


async def _in_state(store: Store, connected: bool) -> None:
    async def holds() -> bool:
        return store.broker.connected is connected

    await until(holds)


async def test_task_goes_on_while_the_broker_is_away(
    embedded: EmbeddedBroker, store: Store, worker: Worker, task: str
) -> None:
    begun, gate, stored = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @worker.task(task)
    async def work(value: None, ctx: Context) -> int:
        begun.set()
        await gate.wait()
        await ctx.checkpoint(7)
        stored.set()
        return ctx.deliveries

    run_id = await dispatch(store, task)
    async with worker.running():
        await begun.wait()
        await _kill(embedded, store)
        gate.set()
        assert not stored.is_set()
        await _start(embedded, store)
        event = await answer(store, run_id)
        assert isinstance(event, StepCompleted)
        assert output_of(event) == 1
        entry = await store.checkpoints.get(record_keys.step_key(run_id, "s"))
        assert entry is not None
        assert entry.value == b"7"
        await acknowledged(store, task)
        later = await dispatch(store, task)
        assert isinstance(await answer(store, later), StepCompleted)


async def test_worker_that_starts_before_the_broker_waits_for_it(
    embedded: EmbeddedBroker, store: Store, worker: Worker, task: str
) -> None:
    @worker.task(task)
    async def work() -> None: ...

    run_id = await dispatch(store, task)
    await _kill(embedded, store)
    serving = asyncio.create_task(worker.serve())
    await _start(embedded, store)
    assert isinstance(await answer(store, run_id), StepCompleted)
    worker.stop()
    await serving


async def test_stop_does_not_wait_for_a_broker_that_is_away(
    embedded: EmbeddedBroker, store: Store, worker: Worker, task: str
) -> None:
    begun = asyncio.Event()

    @worker.task(task)
    async def stuck() -> None:
        begun.set()
        await asyncio.Event().wait()

    await dispatch(store, task)
    async with asyncio.timeout(8):
        async with worker.running():
            await begun.wait()
            await _kill(embedded, store)
    await _start(embedded, store)
