"""Both transports of the worker do the same: what comes of a task, and what is sent to the broker about it.

Every test runs twice: over the broker directly, and over the bridge of a front end in a process of its own.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import orjson
import pytest
from msgspec import UNSET, Raw
from structlog.testing import capture_logs

from penstock.broker import names, record_keys
from penstock.broker.store import Store
from penstock.config.limits import ERROR_BYTES_MAX, PAYLOAD_BYTES_MAX
from penstock.engine.run.events import Event, SignalReceived, StepCompleted, StepContinue, StepFailed, StepStarted
from penstock.worker import BlockingContext, Context, Continue, NonRetriable, Pause, RetryAfter, Worker
from tests.http.bridge import frames
from tests.support.waiting import until_true
from tests.support.world import chain, start
from tests.worker.task_queue import (
    acknowledged,
    answer,
    dispatch,
    new_run_id,
    output_of,
    put_raw,
    reported,
    taking,
)


async def played(
    store: Store, worker: Worker, task: str, value: Any = None, frame: bytes = b"+ACK", **more: Any
) -> list[Event]:
    """One task through the worker: its events, once it is acknowledged, and nothing else than this."""
    async with frames(store) as seen, worker.running():
        run_id = await dispatch(store, task, value, **more)
        events = await reported(store, run_id)
        await until_true(lambda: frame in seen)
    assert [frame] == [one for one in seen if one != b"+WPI"]  # a front end says at times that it has the task
    await acknowledged(store, task)
    return events


def failure(event: Event) -> tuple[str, str]:
    assert isinstance(event, StepFailed), event
    return event.payload.failure_type, event.payload.error


async def test_completed_task(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    async def double(value: int) -> int:
        return value * 2

    *starts, last = await played(store, worker, task, 21)
    assert isinstance(last, StepCompleted)
    for first in starts:  # of an execution that was not answered at once
        assert isinstance(first, StepStarted)
        assert ("s", 1, None, worker.worker_id) == (first.step_id, first.attempt_number, None, first.worker_id)
    assert 1 == len(starts) + (last.started_at is not None)
    assert ("s", 1, None, worker.worker_id, 42) == (
        last.step_id,
        last.attempt_number,
        last.iteration,
        last.worker_id,
        output_of(last),
    )


async def test_function_in_a_thread_without_output(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    def nothing() -> None:
        assert threading.current_thread() is not threading.main_thread()

    last = (await played(store, worker, task))[-1]
    assert isinstance(last, StepCompleted)
    assert last.payload is UNSET


async def test_context_says_which_execution_this_is(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    async def facts(value: None, ctx: Context) -> dict[str, Any]:
        return {
            "of": ctx.task_id,
            "n": [ctx.attempt, ctx.iteration, ctx.deliveries],
            "flow": ctx.workflow,
            "meta": dict(ctx.metadata),
        }

    last = (await played(store, worker, task, attempt=3, iteration=2, metadata={"k": "v"}))[-1]
    assert isinstance(last, StepCompleted)
    assert {"of": f"{last.run_id}.s", "n": [3, 2, 1], "flow": "flow", "meta": {"k": "v"}} == output_of(last)
    assert (3, 2) == (last.attempt_number, last.iteration)


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (ValueError("no such page"), "retriable", "ValueError: no such page"),
        (NonRetriable("the invoice is void"), "non_retriable", "the invoice is void"),
        (RetryAfter(1.5, "busy"), "retry_after", "busy"),
        (SystemExit(3), "retriable", "SystemExit: 3"),
    ],
)
async def test_failed_task(store: Store, worker: Worker, task: str, error: BaseException, kind: str, text: str) -> None:
    @worker.task(task)
    def bad() -> None:
        raise error

    last = (await played(store, worker, task))[-1]
    assert isinstance(last, StepFailed)
    assert (kind, text) == failure(last)
    assert (1500 if kind == "retry_after" else 0) == last.payload.retry_after_ms


async def test_a_failure_is_reported_with_the_last_frames_of_the_function(
    store: Store, worker: Worker, task: str
) -> None:
    def deep(level: int) -> None:
        if not level:
            raise ValueError("x" * 100_000)
        deep(level - 1)

    @worker.task(task)
    def bad() -> None:
        try:
            raise KeyError("the cause")
        except KeyError:
            deep(200)

    with capture_logs():  # which nobody has to draw
        last = (await played(store, worker, task))[-1]
    assert isinstance(last, StepFailed)
    traceback = last.payload.traceback
    assert len(traceback.encode()) <= ERROR_BYTES_MAX
    assert "in deep\n" in traceback
    assert "ValueError: xxx" in traceback
    assert "penstock/worker" not in traceback


async def test_a_failure_in_one_line_has_the_functions_own_frame_only(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    async def bad() -> None:
        raise NonRetriable("the invoice is void")

    last = (await played(store, worker, task))[-1]
    assert isinstance(last, StepFailed)
    lines = last.payload.traceback.splitlines()
    assert ("Traceback (most recent call last):", True) == (lines[0], lines[1].endswith("in bad"))
    assert (4, True) == (len(lines), lines[-1].endswith("NonRetriable: the invoice is void"))


@pytest.mark.parametrize(
    "value", [{1, 2}, "x" * PAYLOAD_BYTES_MAX, float("nan"), {"deep": [None, {"at": float("-inf")}]}]
)
async def test_output_that_cannot_be_stored_fails_for_good(store: Store, worker: Worker, task: str, value: Any) -> None:
    @worker.task(task)
    async def bad() -> Any:
        return value

    assert "non_retriable" == failure((await played(store, worker, task))[-1])[0]


async def test_largest_output_is_stored(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    async def large() -> Any:
        return "x" * (PAYLOAD_BYTES_MAX - 2)

    last = (await played(store, worker, task))[-1]
    assert isinstance(last, StepCompleted)
    assert PAYLOAD_BYTES_MAX - 2 == len(output_of(last))


async def test_continue_asks_for_the_next_iteration(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    async def draft(value: int) -> Any:
        return Continue({"draft": value + 1})

    async with frames(store) as seen, worker.running():
        run_id = await dispatch(store, task, 7, iteration=4)
        last = (await reported(store, run_id, lambda event: isinstance(event, StepContinue)))[-1]
        await acknowledged(store, task)
    assert [b"+ACK"] == seen
    assert isinstance(last, StepContinue)
    assert isinstance(last.payload, Raw)
    assert (4, worker.worker_id, {"draft": 8}) == (last.iteration, last.worker_id, orjson.loads(bytes(last.payload)))


async def test_pause_comes_again_with_its_checkpoint_and_uses_no_attempt(
    store: Store, worker: Worker, task: str
) -> None:
    @worker.task(task)
    async def waits(value: int, ctx: Context) -> Any:
        found = await ctx.load_checkpoint()
        if found is None:
            raise Pause(0.3, checkpoint={"page": value}, name="rate limit")
        return [found, ctx.attempt, ctx.deliveries]

    async with frames(store) as seen, worker.running():
        run_id = await dispatch(store, task, 5)
        event = await answer(store, run_id)
        await acknowledged(store, task)
    assert [b'-NAK {"delay": 300000000}', b"+ACK"] == seen
    assert [{"page": 5}, 1, 2] == output_of(event)
    entry = await store.checkpoints.get(record_keys.pause_key(run_id, "s"))
    assert entry is not None
    assert {"pauses": 1, "name": "rate limit"} == orjson.loads(entry.value)


async def test_task_may_pause_more_often_than_it_may_be_delivered(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    def waits(value: None, ctx: BlockingContext) -> int:
        if ctx.deliveries <= 15:
            raise Pause(0)
        return ctx.deliveries

    run_id = await dispatch(store, task)
    async with worker.running():
        assert 16 == output_of(await answer(store, run_id))


@pytest.mark.parametrize("delay_s", [-1, 3600.1, float("nan")])
def test_impossible_pause_is_refused(delay_s: float) -> None:
    with pytest.raises(ValueError, match="is not possible"):
        Pause(delay_s)


async def test_task_delivered_too_often_fails_without_running(store: Store, worker: Worker, task: str) -> None:
    ran = []

    @worker.task(task)
    async def never() -> None:
        ran.append(1)

    run_id = await dispatch(store, task)
    async with taking(store, task) as taken:
        for _ in range(10):
            await (await taken.get()).give_back()
    async with worker.running():
        event = await answer(store, run_id)
        await acknowledged(store, task)
    assert ("non_retriable", "delivered 10 times without an answer") == failure(event)
    assert not ran


async def test_checkpoint_is_there_for_the_next_attempt(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    async def resumable(value: None, ctx: Context) -> Any:
        found = await ctx.load_checkpoint()
        await ctx.checkpoint({"page": ctx.attempt})
        return [found, await ctx.load_checkpoint()]

    run_id = await dispatch(store, task, attempt=1)
    async with worker.running():
        first = await answer(store, run_id)
        await dispatch(store, task, attempt=2, run_id=run_id)
        second = (await reported(store, run_id, lambda e: isinstance(e, StepCompleted) and e.attempt_number == 2))[-1]
    assert isinstance(second, StepCompleted)
    assert [[None, {"page": 1}], [{"page": 1}, {"page": 2}]] == [output_of(first), output_of(second)]
    entry = await store.checkpoints.get(f"{run_id}.s")
    assert entry is not None
    assert b'{"page":2}' == entry.value


async def test_thread_has_the_same_context(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    def blocking(value: None, ctx: BlockingContext) -> Any:
        ctx.checkpoint([1, 2])
        ctx.send_signal(ctx.run_id, "self", {"a": 1})
        return {"after": ctx.load_checkpoint(), "signal": ctx.wait_signal("self", 5)}

    run_id = await dispatch(store, task, run_id=await start(store, chain(task)))
    async with worker.running():
        assert {"after": [1, 2], "signal": {"a": 1}} == output_of(await answer(store, run_id))


@pytest.mark.parametrize(
    ("stored", "seen"), [(b'{"ok":true}', {"ok": True}), (b"\xff raw", {"bytes": 5}), (b"", {"bytes": 0})]
)
async def test_signal_wakes_a_waiting_function(
    store: Store, worker: Worker, task: str, stored: bytes, seen: Any
) -> None:
    waits = asyncio.Event()

    @worker.task(task)
    async def until_signal(value: None, ctx: Context) -> Any:
        waits.set()
        found = await ctx.wait_signal("go")
        return {"bytes": len(found)} if isinstance(found, bytes) else found

    run_id = await dispatch(store, task)
    async with worker.running():
        await waits.wait()
        await store.signals.put(record_keys.signal_key(run_id, "go"), stored)
        assert seen == output_of(await answer(store, run_id))


async def test_signals_sent_are_stored_and_written_to_the_history_of_their_run(
    store: Store, worker: Worker, task: str
) -> None:
    target = await start(store, chain(task))

    @worker.task(task)
    async def sending(value: None, ctx: Context) -> None:
        await ctx.send_signal(target, "one", {"n": 1})
        await ctx.send_signal(target, "two", b"\xff raw")

    run_id = await dispatch(store, task)
    async with worker.running():
        assert isinstance(await answer(store, run_id), StepCompleted)
    entries = await store.signals.get_many([record_keys.signal_key(target, name) for name in ("one", "two")])
    assert [b'{"n":1}', b"\xff raw"] == [entry.value for entry in entries.values()]
    told = await reported(store, target, lambda e: isinstance(e, SignalReceived) and e.payload.name == "two")
    assert [("one", 7), ("two", 5)] == [(e.payload.name, e.payload.size) for e in told if isinstance(e, SignalReceived)]


@pytest.mark.parametrize(("run_id", "name"), [("not-a-run", "go"), ("0" * 32, "a b"), ("0" * 32, "")])
async def test_signal_to_nowhere_is_refused(store: Store, worker: Worker, task: str, run_id: str, name: str) -> None:
    @worker.task(task)
    async def sending(value: None, ctx: Context) -> None:
        await ctx.send_signal(run_id, name, 1)

    kind, text = failure((await played(store, worker, task))[-1])
    assert ("retriable", True) == (kind, text.startswith("Invalid: "))


@pytest.mark.parametrize("body", [b"{", b'{"run_id": "no run id", "step_id": "s", "task_id": "x"}'])
async def test_body_without_ids_becomes_a_dead_letter(store: Store, worker: Worker, task: str, body: bytes) -> None:
    worker.task(task)(lambda: None)
    run_id = new_run_id()
    await put_raw(store, task, run_id, body)
    async with worker.running():
        await acknowledged(store, task)
    (dead_letter,) = await store.reader.subject(names.DEAD, f"dead.{task}.{run_id}.*")
    assert body.decode() == orjson.loads(dead_letter.data)["input"]
