"""Executes one task, from its delivery to the report of its outcome."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import orjson

from penstock.broker.worker_messages import CancelledTask, TaskPayload, decode_input
from penstock.config.logging import get_logger
from penstock.engine.definition.identifiers import shown
from penstock.engine.errors import PenstockError
from penstock.engine.run.event_payloads import Failure
from penstock.worker.functions import TaskFunction
from penstock.worker.live.live_output import LiveOutput
from penstock.worker.live.outbox import Outboxes
from penstock.worker.outcomes import Outcome, Pause
from penstock.worker.tasks.blocking import BlockingContext
from penstock.worker.tasks.cancelling import RunningTask
from penstock.worker.tasks.context import Context
from penstock.worker.tasks.failures import OWN, NonRetriable, failure
from penstock.worker.tasks.results import put_aside, returned
from penstock.worker.tasks.threads import Threads
from penstock.worker.tasks.tracing import traced
from penstock.worker.transport import HeldTask

REFUSED_DELAY_S = 1.0
REASON_CHARS_MAX = 500  # of a log line

log = get_logger()


class TaskExecutor:
    """Owned by a running worker; it has no state between two tasks."""

    def __init__(self, threads: Threads, outboxes: Outboxes) -> None:
        self._threads, self._outboxes = threads, outboxes
        self._running: set[RunningTask] = set()

    def cancel(self, cancelled: CancelledTask) -> None:
        """Cancel this execution. One that has ended, or was never here, is ignored."""
        for running in [one for one in self._running if one.is_named_by(cancelled)]:
            running.cancel(cancelled.reason)

    def executing(self) -> list[TaskPayload]:
        """The tasks whose functions are running, without those that are cancelled."""
        return [running.task for running in self._running if running.reason is None]

    async def handle(self, function: TaskFunction, held: HeldTask) -> None:
        """Execute the task and report its outcome; if that fails, or this is cancelled, give it back."""
        try:
            task = await held.begin()
            if task is not None:
                running = RunningTask(task)
                outcome = await self._call(function, running, held)
                await (held.discard(running.reason) if outcome is None else held.answer(outcome))
        except PenstockError as error:
            log.error("task_not_reported", task=function.name, deliveries=held.deliveries, error=str(error))
            await held.give_back(REFUSED_DELAY_S)
        except asyncio.CancelledError:
            await held.give_back()
            raise

    async def _call(self, function: TaskFunction, running: RunningTask, held: HeldTask) -> Outcome | None:
        """The outcome of the function; None if it was cancelled, however it ended. A cancellation of this very task
        passes through; a CancelledError that the function itself raised is a failure."""
        task = running.task
        self._running.add(running)
        try:
            found: Outcome = returned(function.name, await self._output(function, running, held))
        except Pause as pause:
            found = _paused(function, task, pause)
        except asyncio.CancelledError as error:
            if running.reason is None and _is_cancelled():
                raise
            found = _failed(function, task, error, running)
        except (Exception, SystemExit) as error:  # the boundary of the user's code: whatever it raises is an answer
            found = _failed(function, task, error, running)
        finally:
            self._running.discard(running)
            running.ended()
        return found if running.reason is None else None

    async def _output(self, function: TaskFunction, running: RunningTask, held: HeldTask) -> Any:
        task = running.task
        if task.trace_parent is not None:
            function = traced(function, task)
        if function.is_async:
            running.awaits_in(asyncio.current_task())
        if not function.takes:
            return await function.call() if function.is_async else await self._threads.run(function.call)
        value = _input(task)
        if function.takes == 1:
            return await function.call(value) if function.is_async else await self._threads.run(function.call, value)
        live = LiveOutput(task, held, self._outboxes)
        try:
            output = await self._with_context(function, value, Context(task, held, live), running, held)
        except asyncio.CancelledError:
            live.close()
            raise
        except BaseException:
            await live.flush()
            raise
        await live.flush()  # what the function said is stored before its outcome is
        return output

    async def _with_context(
        self, function: TaskFunction, value: Any, context: Context, running: RunningTask, held: HeldTask
    ) -> Any:
        if function.is_async:
            running.listen(context.cancel)
            return await function.call(value, context)
        with contextlib.closing(BlockingContext(running.task, held.deliveries, context)) as blocking:
            running.listen(blocking.cancel)
            return await self._threads.run(function.call, value, blocking)


def _paused(function: TaskFunction, task: TaskPayload, pause: Pause) -> Outcome:
    try:
        return put_aside(function.name, pause)
    except NonRetriable as error:
        return _failed(function, task, error)


def _failed(
    function: TaskFunction, task: TaskPayload, error: BaseException, running: RunningTask | None = None
) -> Failure:
    """The failure to report; it is logged with its type and reason, and with frames unless it was raised on purpose.
    That of a cancelled function is not reported, and logged only if it is another error."""
    found, expected = failure(error), isinstance(error, OWN)
    if running is not None and running.reason is not None and isinstance(error, asyncio.CancelledError):
        return found
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


def _is_cancelled() -> bool:
    """Whether the task that runs this was cancelled, in contrast to a CancelledError raised by the function."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
