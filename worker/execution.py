"""One task, from delivery to acknowledgement."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, TypeVar

import msgspec
import orjson
import structlog
from msgspec import Raw, Struct

from penstock.broker.pull import Delivery
from penstock.broker.store import Store
from penstock.broker.tasks import TaskPayload, decode, decode_input
from penstock.config.limits import DELIVERIES_MAX, PAYLOAD_BYTES_MAX
from penstock.engine.commands import DeadLetterTask
from penstock.engine.errors import PenstockError, Unavailable
from penstock.engine.events import StepCompleted, StepFailed
from penstock.engine.identifiers import is_run_id, problem_with, shown
from penstock.worker import facts
from penstock.worker.blocking import BlockingContext
from penstock.worker.context import Context
from penstock.worker.failures import NonRetriable, RetryAfter, failure, non_retriable
from penstock.worker.functions import TaskFunction
from penstock.worker.threads import Threads

REFUSED_DELAY_S = 1.0
NEVER_ANSWERED = f"delivered {DELIVERIES_MAX} times without an answer"

log = structlog.get_logger()


class _Ids(Struct, frozen=True):
    run_id: str
    step_id: str


WithIds = TypeVar("WithIds", TaskPayload, _Ids)


_IDS = msgspec.json.Decoder(_Ids)
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class Execution:
    """Owned by a running worker; it keeps nothing between two tasks."""

    def __init__(self, store: Store, worker_id: str, threads: Threads) -> None:
        self._store, self._worker_id, self._threads = store, worker_id, threads

    async def handle(self, function: TaskFunction, delivery: Delivery) -> None:
        """Answer the task and acknowledge it; when that cannot be done, or this is cancelled, give it back."""
        try:
            await self._answer(function, delivery)
            # Ack last: a crash before this line has the task delivered again, and the engine ignores a second answer.
            await delivery.ack()
        except PenstockError as error:
            log.error("task_not_answered", subject=delivery.subject, deliveries=delivery.deliveries, error=str(error))
            await _give_back(delivery, REFUSED_DELAY_S)
        except asyncio.CancelledError:
            await _give_back(delivery)
            raise

    async def _answer(self, function: TaskFunction, delivery: Delivery) -> None:
        """Return once the broker has stored what became of the task."""
        try:
            task = _task(delivery.data)
        except _UNREADABLE as error:
            await self._refuse(function, delivery, f"malformed task: {error}")
            return
        send = self._store.history.send
        if delivery.deliveries > DELIVERIES_MAX:
            await send(facts.failed(task, self._worker_id, non_retriable(NEVER_ANSWERED)))
            return
        started = send(facts.started(task, self._worker_id))
        await send(await self._call(function, task, delivery))
        await started

    async def _call(self, function: TaskFunction, task: TaskPayload, delivery: Delivery) -> StepCompleted | StepFailed:
        """What became of it, as an event. Cancellation passes through; one that the function made itself is a failure."""
        try:
            output = await self._output(function, task, delivery)
            return facts.completed(task, self._worker_id, _json(function, output))
        except asyncio.CancelledError as error:
            if _is_cancelled():
                raise
            return self._failed(task, error)
        except (Exception, SystemExit) as error:  # the boundary of the user's code: whatever it raises is an answer
            return self._failed(task, error)

    async def _output(self, function: TaskFunction, task: TaskPayload, delivery: Delivery) -> Any:
        if not function.takes:
            return await function.call() if function.is_async else await self._threads.run(function.call)
        value = _input(task)
        if function.takes == 1:
            return await function.call(value) if function.is_async else await self._threads.run(function.call, value)
        context = Context(task, delivery.deliveries, self._store)
        if function.is_async:
            return await function.call(value, context)
        with contextlib.closing(BlockingContext(task, delivery.deliveries, context)) as blocking:
            return await self._threads.run(function.call, value, blocking)

    def _failed(self, task: TaskPayload, error: BaseException) -> StepFailed:
        expected = isinstance(error, NonRetriable | RetryAfter)
        log.info("task_failed", run_id=task.run_id, step_id=task.step_id, attempt=task.attempt, exc_info=None if expected else error)
        return facts.failed(task, self._worker_id, failure(error))

    async def _refuse(self, function: TaskFunction, delivery: Delivery, error: str) -> None:
        """A body that is no task fails its step; when it does not say which one, it becomes a dead letter."""
        log.error("task_malformed", subject=delivery.subject, seq=delivery.seq, error=error)
        try:
            ids = _checked(_IDS.decode(delivery.data))
        except _UNREADABLE:
            await self._bury(function, delivery, error)
            return
        await self._store.history.send(facts.failed_unread(ids.run_id, ids.step_id, self._worker_id, non_retriable(error)))

    async def _bury(self, function: TaskFunction, delivery: Delivery, error: str) -> None:
        body = Raw(orjson.dumps(delivery.data[:PAYLOAD_BYTES_MAX].decode("utf-8", "replace")))
        letter = DeadLetterTask(f"malformed-{delivery.seq}", function.name, 1, 0, body, {}, error)
        await self._store.dead_letters.send_task(delivery.subject.rpartition(".")[2], "", letter)


def _task(body: bytes) -> TaskPayload:
    return _checked(decode(body))


def _checked(ids: WithIds) -> WithIds:
    """Ids become subjects, keys and headers: what cannot is malformed."""
    if not is_run_id(ids.run_id):
        raise msgspec.ValidationError(f"run_id {shown(ids.run_id)} is not 32 lowercase hex characters")
    if problem := problem_with("step_id", ids.step_id):
        raise msgspec.ValidationError(problem)
    return ids


def _input(task: TaskPayload) -> Any:
    try:
        return decode_input(task)
    except orjson.JSONDecodeError as error:
        raise NonRetriable(f"the input cannot be read: {error}") from error


def _json(function: TaskFunction, output: Any) -> bytes | None:
    """The output as it goes into the event. Raises NonRetriable: another attempt would return the same."""
    if output is None:
        return None
    try:
        body = orjson.dumps(output)
    except orjson.JSONEncodeError as error:
        raise NonRetriable(f'the output of "{function.name}" cannot be written as JSON: {error}') from error
    if len(body) > PAYLOAD_BYTES_MAX:
        raise NonRetriable(f'the output of "{function.name}" has {len(body)} bytes, {PAYLOAD_BYTES_MAX} is the most')
    return body


def _is_cancelled() -> bool:
    """Whether someone cancelled the task that runs this, as against a CancelledError of the function's own making."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _give_back(delivery: Delivery, delay_s: float = 0.0) -> None:
    with contextlib.suppress(Unavailable):  # then its ack wait brings it back
        await delivery.give_back(delay_s)
