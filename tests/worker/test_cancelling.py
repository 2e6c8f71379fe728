"""Cancelled executions on the worker's side: what the function notices, and that nothing of it is reported."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any

import pytest

from penstock.broker.store import Store
from penstock.broker.worker_messages import CancelledTask
from penstock.broker.worker_protocol.cancels import notify_worker
from penstock.engine.run.events import StepCompleted, StepStarted, decode
from penstock.engine.run.state import Run, RunStatus, StepState, StepStatus, to_snapshot
from penstock.worker import BlockingContext, Context, TaskCancelled, Worker
from penstock.worker.tasks import cancelling
from penstock.worker.transports import direct
from tests.worker.conftest import NewWorker
from tests.worker.task_queue import answer, dispatch, reported


async def cancel(store: Store, worker: Worker, run_id: str, *, attempt: int = 1, iteration: int = 0) -> None:
    told = CancelledTask(f"{run_id}.s", run_id, "s", attempt, iteration, "enough")
    await notify_worker(store.broker, worker.worker_id, told)


async def begun(store: Store, run_id: str, attempt: int = 1) -> None:
    await reported(store, run_id, lambda e: isinstance(e, StepStarted) and e.attempt_number == attempt)


async def nothing_but_a_start(store: Store, worker: Worker, task: str, run_id: str) -> bool:
    """Whether a task that came later was executed, and this run has no report beside its start, if it has that: one
    that is cancelled at once has none."""
    await answer(store, await dispatch(store, task, "next"))
    found = [type(decode(one.data)) async for page in store.history.pages(run_id) for one in page]
    return found in ([], [StepStarted])


class Told:
    """What a task function has noticed of its cancellation."""

    def __init__(self) -> None:
        self.begun, self.cancelled, self.release = threading.Event(), threading.Event(), threading.Event()
        self.reason: str | None = None
        self.raised: BaseException | None = None

    async def noticed(self) -> bool:
        return await asyncio.to_thread(self.cancelled.wait, 10)


async def cancelled_once_begun(store: Store, worker: Worker, task: str, told: Told) -> None:
    """A task is cancelled, its function notices, and nothing but its start is reported."""
    run_id = await dispatch(store, task)
    async with worker.running():
        await asyncio.to_thread(told.begun.wait, 10)
        await cancel(store, worker, run_id)
        assert await told.noticed()
        assert await nothing_but_a_start(store, worker, task, run_id)


async def test_an_async_function_is_cancelled_and_its_cleanup_still_reads_and_sends(
    store: Store, new_worker: NewWorker, task: str
) -> None:
    worker, told = new_worker(max_tasks=1), Told()
    cleaned: list[Any] = []

    @worker.task(task)
    async def waits(value: Any, ctx: Context) -> str:
        if value == "next":
            return "done"
        await ctx.checkpoint(7)
        told.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.reason = ctx.cancel_reason
            assert ctx.cancelled.is_set()
            await asyncio.sleep(0)  # cleanup may await
            cleaned.append(await ctx.load_checkpoint())
            with pytest.raises(TaskCancelled):
                await ctx.checkpoint(8)
            told.cancelled.set()
            raise
        return "never"

    run_id = await dispatch(store, task)
    async with worker.running():
        await begun(store, run_id)
        await asyncio.to_thread(told.begun.wait, 10)
        await cancel(store, worker, run_id)
        assert await told.noticed()
        assert await nothing_but_a_start(store, worker, task, run_id)
    assert (told.reason, cleaned) == ("enough", [7])


async def test_a_function_that_swallows_its_cancellation_reports_nothing_all_the_same(
    store: Store, new_worker: NewWorker, task: str
) -> None:
    worker, told = new_worker(max_tasks=1), Told()

    @worker.task(task)
    async def stubborn(value: Any) -> str:
        if value != "next":
            told.begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                told.cancelled.set()
        return "nevertheless"

    await cancelled_once_begun(store, worker, task, told)


async def test_cleanup_that_does_not_end_is_cancelled_again(
    store: Store, new_worker: NewWorker, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancelling, "CLEANUP_S", 0.05)
    worker, told, times = new_worker(max_tasks=1), Told(), list[int]()

    @worker.task(task)
    async def cleans(value: Any) -> None:
        told.begun.set()
        while value != "next" and len(times) < 3:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                times.append(1)

    run_id = await dispatch(store, task)
    async with worker.running():
        await asyncio.to_thread(told.begun.wait, 10)
        await cancel(store, worker, run_id)
        assert await nothing_but_a_start(store, worker, task, run_id)
    assert len(times) == 3


@pytest.mark.parametrize("waits", ["event", "raise", "signal", "checkpoint"])
async def test_a_function_in_a_thread_notices_by_its_context(
    store: Store, new_worker: NewWorker, task: str, waits: str
) -> None:
    worker, told = new_worker(max_tasks=1), Told()

    @worker.task(task)
    def blocking(value: Any, ctx: BlockingContext) -> str:
        if value == "next":
            return "done"
        told.begun.set()
        try:
            if waits == "signal":
                ctx.wait_signal("never")
            assert ctx.cancelled.wait(10)
            if waits == "raise":
                ctx.raise_if_cancelled()
            if waits == "checkpoint":
                ctx.checkpoint(1)
        except BaseException as error:
            told.raised = error
            raise
        finally:
            told.reason = ctx.cancel_reason
            told.cancelled.set()
        return "dropped"

    await cancelled_once_begun(store, worker, task, told)
    assert told.reason == "enough"
    assert isinstance(told.raised, TaskCancelled) is (waits != "event")


async def test_a_thread_that_begins_to_wait_while_it_is_cancelled_notices(
    store: Store, new_worker: NewWorker, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop waits for the signal already, and the thread has not noted that it does."""
    worker, told = new_worker(max_tasks=1), Told()
    ask = asyncio.run_coroutine_threadsafe

    @worker.task(task)
    def blocking(value: Any, ctx: BlockingContext) -> str:
        if value == "next":
            return "done"

        def slowly(question: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> Future[Any]:
            asked = ask(question, loop)
            asked.add_done_callback(lambda _: told.cancelled.set())
            told.begun.set()
            assert ctx.cancelled.wait(10)
            return asked

        with monkeypatch.context() as patched:
            patched.setattr(asyncio, "run_coroutine_threadsafe", slowly)
            with pytest.raises(TaskCancelled):
                ctx.wait_signal("never")
        return "dropped"

    await cancelled_once_begun(store, worker, task, told)


@pytest.mark.parametrize("other", [{"attempt": 1}, {"attempt": 3}, {"attempt": 2, "iteration": 1}, {"run": True}])
async def test_a_cancel_of_another_execution_leaves_this_one_alone(
    store: Store, new_worker: NewWorker, task: str, other: dict[str, Any]
) -> None:
    worker, told = new_worker(), Told()
    heard: list[str] = []

    @worker.task(task)
    async def goes_on(value: Any, ctx: Context) -> str:
        if value == "probe":
            heard.append("probe")
            await ctx.cancelled.wait()
        told.begun.set()
        await asyncio.to_thread(told.release.wait, 10)
        return "done"

    run_id = await dispatch(store, task, attempt=2)
    async with worker.running():
        await asyncio.to_thread(told.begun.wait, 10)
        named = "0" * 32 if other.pop("run", None) else run_id
        await cancel(store, worker, named, **other)
        probe = await dispatch(store, task, "probe")  # messages come in order: this one shows that the other has come
        await begun(store, probe)
        await cancel(store, worker, probe)
        told.release.set()
        assert isinstance(await answer(store, run_id), StepCompleted)
    assert heard == ["probe"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"task_id": 7}', b'{"run_id": "x"}', b"\xff"])
async def test_what_is_no_cancel_is_ignored(store: Store, worker: Worker, task: str, body: bytes) -> None:
    worker.task(task)(lambda: "done")
    async with worker.running():
        await store.broker.publish(f"worker.{worker.worker_id}.cancel", body)
        assert isinstance(await answer(store, await dispatch(store, task)), StepCompleted)


@pytest.mark.parametrize("worker_id", ["", "a b", "*", ">", "a.>", "x" * 129, "a\r\nPUB x 0"])
async def test_nobody_is_told_under_an_id_that_no_worker_can_have(store: Store, worker_id: str) -> None:
    await notify_worker(store.broker, worker_id, CancelledTask("r.s", "r"))
    await store.broker.flush()
    assert store.broker.connected


async def test_a_worker_that_missed_the_message_learns_it_at_its_next_check(
    store: Store, new_worker: NewWorker, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "CHECK_S", 0.05)
    worker, told = new_worker(max_tasks=1), Told()

    @worker.task(task)
    async def waits(value: Any, ctx: Context) -> str:
        if value == "next":
            return "done"
        told.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            told.reason = ctx.cancel_reason
            told.cancelled.set()
        return "never"

    run_id = await dispatch(store, task)
    async with worker.running():
        await begun(store, run_id)
        await store.runs.put(run_id, ended(run_id))
        assert await told.noticed()
        assert await nothing_but_a_start(store, worker, task, run_id)
    assert told.reason == "somebody's reason"


def ended(run_id: str) -> bytes:
    """The snapshot of a run that was cancelled while its step was running."""
    step = StepState(StepStatus.CANCELLED, attempts=1, started_at="2026-01-01T00:00:00Z")
    run = Run(run_id, "flow", "1", "0" * 64, RunStatus.CANCELLED, "", 3, steps={"s": step}, error="somebody's reason")
    return to_snapshot(run)
