"""What a task function returns or raises, and what the history then says."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from msgspec import UNSET
from structlog.testing import capture_logs

from penstock.broker.store import Store
from penstock.config.limits import ERROR_BYTES_MAX, PAYLOAD_BYTES_MAX
from penstock.engine.run.events import StepCompleted, StepContinue, StepFailed, StepPaused, StepStarted
from penstock.worker import Context, Continue, NonRetriable, Pause, RetryAfter, Worker
from tests.worker.task_queue import acknowledged, answer, dispatch, new_run_id, outcome, output_of, put_raw, reported


def failed(event: StepCompleted | StepFailed) -> tuple[str, str]:
    assert isinstance(event, StepFailed)
    return event.payload.failure_type, event.payload.error


async def test_a_quick_function_is_completed_with_its_start_and_acknowledged(
    store: Store, worker: Worker, task: str
) -> None:
    @worker.task(task)
    async def double(value: int) -> int:
        return value * 2

    run_id = await dispatch(store, task, 21)
    async with worker.running():
        [only] = await reported(store, run_id)
        await acknowledged(store, task)
    assert isinstance(only, StepCompleted)
    assert (only.step_id, only.attempt_number, only.iteration) == ("s", 1, None)
    assert (only.worker_id, only.delivery, output_of(only)) == (worker.worker_id, 1, 42)
    assert only.started_at is not None
    assert only.started_at <= only.timestamp


@pytest.mark.parametrize("ends", ["completes", "fails", "continues"])
async def test_a_function_that_takes_its_time_is_started_first(
    store: Store, worker: Worker, task: str, ends: str
) -> None:
    begun = asyncio.Event()

    @worker.task(task)
    async def slow() -> Continue | int:
        await begun.wait()
        if ends == "fails":
            raise NonRetriable("no")
        return Continue(1) if ends == "continues" else 1

    run_id = await dispatch(store, task)
    async with worker.running():
        [first] = await reported(store, run_id, lambda event: isinstance(event, StepStarted))
        begun.set()
        _, last = await reported(store, run_id, lambda event: not isinstance(event, StepStarted))
    assert isinstance(first, StepStarted)
    assert isinstance(last, StepCompleted | StepFailed | StepContinue)
    assert (first.attempt_number, first.worker_id) == (1, worker.worker_id)
    assert (last.started_at, last.worker_id) == (None, worker.worker_id)
    assert first.timestamp <= last.timestamp


async def test_a_quick_failure_and_a_quick_continuation_have_their_starts(
    store: Store, worker: Worker, task: str
) -> None:
    @worker.task(task)
    async def ends(value: str) -> Continue:
        if value == "fails":
            raise NonRetriable("no")
        return Continue(1)

    runs = [await dispatch(store, task, value) for value in ("fails", "continues")]
    async with worker.running():
        found = [await reported(store, run_id, lambda _: True) for run_id in runs]
    [[failed_], [continued]] = found
    assert isinstance(failed_, StepFailed)
    assert isinstance(continued, StepContinue)
    assert None not in (failed_.started_at, continued.started_at)


async def test_what_is_paused_has_begun(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    async def rests() -> None:
        raise Pause(60)

    run_id = await dispatch(store, task)
    async with worker.running():
        first, last = await reported(store, run_id, lambda event: isinstance(event, StepPaused))
    assert isinstance(first, StepStarted)
    assert isinstance(last, StepPaused)
    assert first.timestamp <= last.timestamp


async def test_sync_function_runs_in_a_thread_of_its_own(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    def where(value: dict[str, int]) -> dict[str, Any]:
        return {**value, "main": threading.current_thread() is threading.main_thread()}

    assert output_of(await outcome(store, worker, task, {"a": 1})) == {"a": 1, "main": False}


async def test_function_without_arguments_and_without_output_of(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    def nothing() -> None: ...

    event = await outcome(store, worker, task)
    assert isinstance(event, StepCompleted)
    assert event.payload is UNSET


async def test_context_says_which_execution_this_is(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    async def facts(value: None, ctx: Context) -> dict[str, Any]:
        return {
            "of": ctx.task_id,
            "n": [ctx.attempt, ctx.iteration, ctx.deliveries],
            "flow": ctx.workflow,
            "meta": dict(ctx.metadata),
        }

    event = await outcome(store, worker, task, attempt=3, iteration=2, metadata={"k": "v"})
    assert output_of(event) == {"of": f"{event.run_id}.s", "n": [3, 2, 1], "flow": "flow", "meta": {"k": "v"}}
    assert (event.attempt_number, event.iteration) == (3, 2)


async def test_exception_is_retriable_with_its_type_and_text(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    async def bad() -> None:
        raise ValueError("no such page")

    assert failed(await outcome(store, worker, task)) == ("retriable", "ValueError: no such page")


async def test_exception_of_a_thread_is_reported_too(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    def bad() -> None:
        raise KeyError("x")

    assert failed(await outcome(store, worker, task)) == ("retriable", "KeyError: 'x'")


@pytest.mark.parametrize("error", [SystemExit(3), StopIteration("stop"), RecursionError("deep")])
async def test_exception_that_could_end_the_worker_is_an_answer(
    store: Store, worker: Worker, task: str, error: BaseException
) -> None:
    @worker.task(task)
    def bad() -> None:
        raise error

    kind, text = failed(await outcome(store, worker, task))
    assert kind == "retriable"
    assert str(error) in text or type(error).__name__ in text


async def test_non_retriable_failure(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    async def bad() -> None:
        raise NonRetriable("the invoice is void")

    assert failed(await outcome(store, worker, task)) == ("non_retriable", "the invoice is void")


async def test_retry_after_reports_its_delay(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    async def busy() -> None:
        raise RetryAfter(1.5, "come back later")

    event = await outcome(store, worker, task)
    assert failed(event) == ("retry_after", "come back later")
    assert isinstance(event, StepFailed)
    assert event.payload.retry_after_ms == 1500


async def test_error_text_is_cut_to_its_limit_and_made_fit_for_json(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    async def loud() -> None:
        raise ValueError("\ud800" + "é" * ERROR_BYTES_MAX)

    with capture_logs():  # a report of the tests cannot hold what UTF-8 cannot
        _, text = failed(await outcome(store, worker, task))
    assert text.startswith("ValueError: ?é")
    assert ERROR_BYTES_MAX - 2 < len(text.encode()) <= ERROR_BYTES_MAX


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({1, 2}, "cannot be written as JSON"),
        (b"raw", "cannot be written as JSON"),
        ("x" * PAYLOAD_BYTES_MAX, "is the most"),
    ],
)
async def test_output_that_cannot_be_stored_fails_for_good(
    store: Store, worker: Worker, task: str, value: Any, words: str
) -> None:
    @worker.task(task)
    async def bad() -> Any:
        return value

    kind, text = failed(await outcome(store, worker, task))
    assert kind == "non_retriable"
    assert words in text
    assert task in text


async def test_cancellation_of_the_functions_own_making_is_a_failure(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    async def odd() -> None:
        raise asyncio.CancelledError

    assert failed(await outcome(store, worker, task)) == ("retriable", "CancelledError")


async def test_input_that_python_cannot_read_fails_for_good(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    async def never(value: Any) -> None: ...

    run_id = new_run_id()
    await put_raw(store, task, run_id, b'{"task_id":"x","run_id":"%s","step_id":"s","input":1e999}' % run_id.encode())
    async with worker.running():
        kind, text = failed(await answer(store, run_id))
    assert kind == "non_retriable"
    assert text.startswith("the input cannot be read")


@pytest.mark.parametrize(
    ("result", "kind", "error_type", "reason"),
    [
        (ValueError("no such\npage"), "retriable", "ValueError", r"ValueError: no such\npage"),
        (NonRetriable("void"), "non_retriable", "NonRetriable", "void"),
        ({1, 2}, "non_retriable", "NonRetriable", "cannot be written as JSON"),
        ("x" * PAYLOAD_BYTES_MAX, "non_retriable", "NonRetriable", f"{PAYLOAD_BYTES_MAX} is the most"),
        (float("nan"), "non_retriable", "NonRetriable", "nan is no number of JSON"),
    ],
    ids=["error", "given up", "no JSON", "too large", "NaN"],
)
async def test_a_failed_task_is_a_warning_with_its_type_and_reason(
    store: Store, worker: Worker, task: str, result: Any, kind: str, error_type: str, reason: str
) -> None:
    @worker.task(task)
    async def bad() -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    with capture_logs() as lines:
        await outcome(store, worker, task)
    [line] = [line for line in lines if line["event"] == "task_failed"]
    assert ("warning", task, kind, error_type) == (
        line["log_level"],
        line["task"],
        line["failure_type"],
        line["error_type"],
    )
    assert reason in line["reason"]
