"""Checkpoints and signals, from async functions and from threads."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import UNSET

from penstock.broker import record_keys
from penstock.broker.store import Store
from penstock.config.limits import PAYLOAD_BYTES_MAX
from penstock.engine.run.events import SignalReceived, StepCompleted, StepFailed
from penstock.worker import BlockingContext, Context, Worker
from tests.worker.task_queue import answer, dispatch, new_run_id, outcome, output_of, reported


async def test_checkpoint_is_there_for_the_next_attempt(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    async def resumable(value: None, ctx: Context) -> Any:
        found = await ctx.load_checkpoint()
        await ctx.checkpoint({"page": ctx.attempt})
        return found

    run_id = await dispatch(store, task, attempt=1)
    async with worker.running():
        first = await answer(store, run_id)
        await dispatch(store, task, attempt=2, run_id=run_id)
        second = (await reported(store, run_id, lambda e: isinstance(e, StepCompleted) and e.attempt_number == 2))[-1]
    assert isinstance(first, StepCompleted)
    assert first.payload is UNSET
    assert isinstance(second, StepCompleted)
    assert output_of(second) == {"page": 1}
    entry = await store.checkpoints.get(f"{run_id}.s")
    assert entry is not None
    assert entry.value == b'{"page":2}'


async def test_thread_has_the_same_context(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    def blocking(value: None, ctx: BlockingContext) -> Any:
        before = ctx.load_checkpoint()
        ctx.checkpoint([1, 2])
        ctx.send_signal(ctx.run_id, "self", {"a": 1})
        return {
            "before": before,
            "after": ctx.load_checkpoint(),
            "signal": ctx.wait_signal("self", 5),
            "of": ctx.task_id,
        }

    event = await outcome(store, worker, task)
    assert output_of(event) == {"before": None, "after": [1, 2], "signal": {"a": 1}, "of": f"{event.run_id}.s"}


async def test_checkpoint_over_its_limit_is_refused_and_not_stored(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    async def large(value: None, ctx: Context) -> None:
        await ctx.checkpoint("x" * PAYLOAD_BYTES_MAX)

    event = await outcome(store, worker, task)
    assert isinstance(event, StepFailed)
    assert event.payload.error.startswith("TooLarge: the checkpoint has 1048578 bytes")
    assert await store.checkpoints.get(f"{event.run_id}.s") is None


@pytest.mark.parametrize(
    ("stored", "seen"), [(b'{"ok":true}', {"ok": True}), (b"\xff raw", {"bytes": 5}), (b"", {"bytes": 0})]
)
async def test_signal_wakes_a_waiting_function(
    store: Store, worker: Worker, task: str, stored: bytes, seen: Any
) -> None:
    waits = asyncio.Event()

    @worker.task(task)
    async def waiting(value: None, ctx: Context) -> Any:
        waits.set()
        found = await ctx.wait_signal("go")
        return {"bytes": len(found)} if isinstance(found, bytes) else found

    run_id = await dispatch(store, task)
    async with worker.running():
        await waits.wait()
        await store.signals.put(record_keys.signal_key(run_id, "go"), stored)
        assert output_of(await answer(store, run_id)) == seen


async def test_signal_that_came_before_counts_and_stays(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    async def twice(value: None, ctx: Context) -> Any:
        return [await ctx.wait_signal("go", 5), await ctx.wait_signal("go", 5)]

    run_id = new_run_id()
    await store.signals.put(record_keys.signal_key(run_id, "go"), b"7")
    assert output_of(await outcome(store, worker, task, run_id=run_id)) == [7, 7]


async def test_signal_that_does_not_come_is_a_timeout(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    async def waiting(value: None, ctx: Context) -> Any:
        try:
            return await ctx.wait_signal("never", 0.01)
        except TimeoutError:
            return "gave up"

    assert output_of(await outcome(store, worker, task)) == "gave up"


async def test_every_signal_sent_is_stored_and_written_to_the_history_of_its_run(
    store: Store, worker: Worker, task: str
) -> None:
    target = new_run_id()

    @worker.task(task)
    async def sending(value: None, ctx: Context) -> None:
        await ctx.send_signal(target, "one", {"n": 1})
        await ctx.send_signal(target, "two", b"raw")

    assert isinstance(await outcome(store, worker, task), StepCompleted)
    entries = await store.signals.get_many([record_keys.signal_key(target, name) for name in ("one", "two")])
    assert [entry.value for entry in entries.values()] == [b'{"n":1}', b"raw"]
    told = await reported(store, target, lambda e: isinstance(e, SignalReceived) and e.payload.name == "two")
    assert [(e.payload.name, e.payload.size) for e in told if isinstance(e, SignalReceived)] == [("one", 7), ("two", 3)]


@pytest.mark.parametrize(("run_id", "name"), [("not-a-run", "go"), ("0" * 32, "a b"), ("0" * 32, "")])
async def test_signal_to_nowhere_is_refused(store: Store, worker: Worker, task: str, run_id: str, name: str) -> None:
    @worker.task(task)
    async def sending(value: None, ctx: Context) -> None:
        await ctx.send_signal(run_id, name, 1)

    event = await outcome(store, worker, task)
    assert isinstance(event, StepFailed)
    assert event.payload.error.startswith("Invalid: ")
