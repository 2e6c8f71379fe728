"""Executes one task, from its delivery to the report of its outcome."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import orjson

from penstock.broker.worker_messages import TaskPayload, decode_input
from penstock.config.limits import PAYLOAD_BYTES_MAX
from penstock.config.logging import get_logger
from penstock.engine.definition.identifiers import shown
from penstock.engine.errors import PenstockError
from penstock.engine.run.events import Failure
from penstock.worker.functions import TaskFunction
from penstock.worker.outcomes import Continue, Outcome, Pause, TaskCompleted, TaskContinued, TaskPaused
from penstock.worker.tasks.blocking import BlockingContext
from penstock.worker.tasks.context import Context
from penstock.worker.tasks.failures import OWN, NonRetriable, failure
from penstock.worker.tasks.payloads import NoJson, as_json
from penstock.worker.tasks.threads import Threads
from penstock.worker.transport import HeldTask

REFUSED_DELAY_S = 1.0
REASON_CHARS_MAX = 500  # of a log line

log = get_logger()


class TaskExecutor:
    """Owned by a running worker; it has no state between two tasks."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads

    async def handle(self, function: TaskFunction, held: HeldTask) -> None:
        """Execute the task and report its outcome; if that fails, or this is cancelled, give it back."""
        try:
            task = await held.begin()
            if task is not None:
                await held.answer(await self._call(function, task, held))
        except PenstockError as error:
            log.error("task_not_reported", task=function.name, deliveries=held.deliveries, error=str(error))
            await held.give_back(REFUSED_DELAY_S)
        except asyncio.CancelledError:
            await held.give_back()
            raise

    async def _call(self, function: TaskFunction, task: TaskPayload, held: HeldTask) -> Outcome:
        """The outcome of the function. Cancellation passes through; a CancelledError that the function itself raised is
        a failure."""
        try:
            return _outcome(function, await self._output(function, task, held))
        except Pause as pause:
            return _paused(function, task, pause)
        except asyncio.CancelledError as error:
            if _is_cancelled():
                raise
            return _failed(function, task, error)
        except (Exception, SystemExit) as error:  # the boundary of the user's code: whatever it raises is an answer
            return _failed(function, task, error)

    async def _output(self, function: TaskFunction, task: TaskPayload, held: HeldTask) -> Any:
        if not function.takes:
            return await function.call() if function.is_async else await self._threads.run(function.call)
        value = _input(task)
        if function.takes == 1:
            return await function.call(value) if function.is_async else await self._threads.run(function.call, value)
        context = Context(task, held)
        if function.is_async:
            return await function.call(value, context)
        with contextlib.closing(BlockingContext(task, held.deliveries, context)) as blocking:
            return await self._threads.run(function.call, value, blocking)


def _outcome(function: TaskFunction, output: Any) -> Outcome:
    if isinstance(output, Continue):
        return TaskContinued(_json(f'what "{function.name}" continues with', output.value))
    return TaskCompleted(_json(f'the output of "{function.name}"', output))


def _paused(function: TaskFunction, task: TaskPayload, pause: Pause) -> Outcome:
    try:
        return TaskPaused(pause.delay_s, _json(f'the checkpoint of "{function.name}"', pause.checkpoint), pause.name)
    except NonRetriable as error:
        return _failed(function, task, error)


def _failed(function: TaskFunction, task: TaskPayload, error: BaseException) -> Failure:
    """The failure to report; it is logged with its type and reason, and with frames unless it was raised on purpose."""
    found, expected = failure(error), isinstance(error, OWN)
    log.warning(
        "task_failed",
        task=function.name,
        run_id=task.run_id,
        step_id=task.step_id,
        attempt=task.attempt,
        failure_type=found.failure_type,
        error_type=type(error).__name__,
        reason=shown(found.error, REASON_CHARS_MAX),
        exc_info=None if expected else error,
    )
    return found


def _input(task: TaskPayload) -> Any:
    try:
        return decode_input(task)
    except orjson.JSONDecodeError as error:
        raise NonRetriable(f"the input cannot be read: {error}") from error


def _json(what: str, value: Any) -> bytes | None:
    """A value as stored JSON. Raises NonRetriable: another attempt would give the same."""
    if value is None:
        return None
    try:
        body = as_json(value)
    except NoJson as error:
        raise NonRetriable(f"{what} cannot be written as JSON: {error}") from error
    if len(body) > PAYLOAD_BYTES_MAX:
        raise NonRetriable(f"{what} has {len(body)} bytes, {PAYLOAD_BYTES_MAX} is the most")
    return body


def _is_cancelled() -> bool:
    """Whether the task that runs this was cancelled, in contrast to a CancelledError raised by the function."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
