"""The bridge transport: tasks, reports and everything else over HTTP, for workers that cannot reach the broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TypeVar, assert_never
from uuid import uuid4

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from penstock.broker.live.progress import StepProgress
from penstock.broker.worker_messages import CancelledTask, TaskPayload, WorkerRegistration
from penstock.broker.worker_protocol.bridge_messages import (
    BridgeProgress,
    ExchangeTasks,
    PolledTask,
    ResolveTask,
    TaskAnswer,
    task_payload,
)
from penstock.broker.worker_protocol.receiving import non_retriable
from penstock.config.limits import POLL_MS_MAX
from penstock.config.logging import get_logger
from penstock.config.process.background import background
from penstock.engine.errors import Conflict, Denied, Invalid, NotFound, PenstockError, TooLarge, Unavailable
from penstock.engine.run.event_payloads import Failure
from penstock.worker.functions import TaskFunction
from penstock.worker.outcomes import Outcome, TaskCompleted, TaskContinued, TaskPaused
from penstock.worker.retrying import retry_until_available
from penstock.worker.transport import Executions, IntakeLimits
from penstock.worker.transports.bridge_client import BridgeClient, open_client, refusal_of
from penstock.worker.transports.bridge_intake import BridgeIntake, Resolve, open_bridge_intake

RECONNECT_S = 0.5
CANCELLED = "cancelled"  # the failure type of an execution that was given up

T = TypeVar("T")

log = get_logger()


class BridgeTask:
    """One polled task. Owned by its execution."""

    def __init__(
        self, client: BridgeClient, task: PolledTask, resolve: Resolve, cancel: Callable[[CancelledTask], None]
    ) -> None:
        """`resolve` sends reports, `cancel` cancels the execution."""
        self._client, self._task, self._leave, self._cancel = client, task, resolve, cancel
        self._mark = uuid4().hex  # of what this execution says
        self._checkpoint = None if isinstance(task.checkpoint, UnsetType) else bytes(task.checkpoint)

    @property
    def deliveries(self) -> int:
        return self._task.deliveries or 1

    async def begin(self) -> TaskPayload | None:
        """The service has reported the start when it assigned the task."""
        return task_payload(self._task)

    async def answer(self, outcome: Outcome) -> None:
        try:
            await self._answer(_resolution(outcome))
        except NotFound:
            log.info("report_too_late", task_id=self._task.task_id, attempt=self._task.attempt)
        except (Invalid, TooLarge) as error:  # it would be no better the next time
            await self._leave_with(_resolution(non_retriable(f"the service refused the answer: {error}")))

    async def discard(self, reason: str | None) -> None:
        """The bridge keeps a task until it is answered; the engine ignores the answer of one that was given up. It must
        not be taken for that of the next attempt, which this worker may have by now."""
        task = self._task
        given_up = ResolveTask(
            "fail",
            error=f"cancelled: {reason}",
            failure_type=CANCELLED,
            attempt=task.attempt,
            iteration=task.iteration,
        )
        with suppress(NotFound, Invalid):  # a service of an older version does not know the last two
            await self._leave_with(given_up)

    async def give_back(self, delay_s: float = 0.0) -> None:
        with suppress(PenstockError):  # then the service misses its signs of life
            await self._client.resolve(self._task.task_id, ResolveTask("pause", duration_ms=round(delay_s * 1000)))

    async def keep_alive(self) -> None:
        with suppress(PenstockError):  # the answer will show it
            await self._unless_cancelled(self._client.resolve(self._task.task_id, ResolveTask("heartbeat")))

    async def checkpoint(self, body: bytes) -> None:
        await self._unless_cancelled(self._resolve(ResolveTask("checkpoint", data=Raw(body))))
        self._checkpoint = body

    async def _unless_cancelled(self, asked: Awaitable[None]) -> None:
        """What the service refuses because the execution was given up cancels it. Raises what the request raises."""
        try:
            await asked
        except Conflict as error:
            task = self._task
            self._cancel(
                CancelledTask(task.task_id, task.run_id, task.step_id, task.attempt, task.iteration, str(error))
            )
            raise

    async def load_checkpoint(self) -> bytes | None:
        return self._checkpoint

    async def wait_signal(self, name: str) -> bytes:
        while True:
            found = await retry_until_admitted(lambda: self._client.signal(self._task.run_id, name, POLL_MS_MAX // 2))
            if found is not None:
                return found

    async def send_signal(self, run_id: str, name: str, payload: bytes) -> None:
        await retry_until_admitted(lambda: self._client.send_signal(run_id, name, payload))

    async def say_lines(self, said: Sequence[bytes], number: int) -> None:
        log = ResolveTask("log", data=Raw(b"[" + b",".join(said) + b"]"), id=self._said_id(number))
        await self._unless_cancelled(self._resolve(log))

    async def say_chunks(self, said: Sequence[bytes], dropped: int, number: int) -> None:
        """One request for all of them."""
        first = TaskAnswer("stream", dropped=dropped or None, id=self._said_id(number, 0), task_id=self._task.task_id)
        answers = [
            replace(first, data=Raw(chunk), id=self._said_id(number, at), dropped=first.dropped if at == 0 else None)
            for at, chunk in enumerate(said)
        ]

        async def exchange() -> None:
            found = await self._client.exchange(ExchangeTasks(answers or [first]))
            if refusal := next(filter(None, map(refusal_of, found.resolved)), None):
                raise refusal

        await self._unless_cancelled(retry_until_admitted(exchange))

    async def say_progress(self, said: StepProgress) -> None:
        body = msgspec.json.encode(BridgeProgress(said.done, said.total, said.text))
        progress = ResolveTask("progress", data=Raw(body))
        await self._unless_cancelled(self._client.resolve(self._task.task_id, progress))

    def _said_id(self, *numbers: int) -> str:
        return ".".join([self._mark, *map(str, numbers)])

    async def _answer(self, resolution: ResolveTask) -> None:
        try:
            await self._leave_with(resolution)
        except Invalid:
            if resolution.traceback is None:
                raise
            await self._leave_with(
                replace(resolution, traceback=None)
            )  # a service of an older version does not know that field

    async def _leave_with(self, resolution: ResolveTask) -> None:
        await retry_until_admitted(lambda: self._leave(self._task.task_id, resolution))

    async def _resolve(self, resolution: ResolveTask) -> None:
        await retry_until_admitted(lambda: self._client.resolve(self._task.task_id, resolution))


class BridgeTransport:
    """Owned by a running worker (`open_bridge`)."""

    name = "bridge"

    def __init__(self, client: BridgeClient, worker_id: str) -> None:
        self._client, self._worker_id = client, worker_id
        self._executions: Executions | None = None

    @asynccontextmanager
    async def registered(self, entry: WorkerRegistration) -> AsyncIterator[None]:
        """Registered as long as the connect stream is open; a lost one is opened again. Also raises Denied."""
        first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        async with background(self._stay_connected(entry, first), name="worker_connection"):
            await first
            yield

    def receiving(
        self, functions: Sequence[TaskFunction], executions: Executions, bounds: IntakeLimits
    ) -> AbstractAsyncContextManager[BridgeIntake]:
        self._executions = executions
        return open_bridge_intake(self._client, functions, self._held, executions.handle, bounds, self._worker_id)

    def _held(self, task: PolledTask, resolve: Resolve) -> BridgeTask:
        return BridgeTask(self._client, task, resolve, self._cancel)

    def _cancel(self, cancelled: CancelledTask) -> None:
        if self._executions is not None:  # else it holds no task yet
            self._executions.cancel(cancelled)

    async def _stay_connected(self, entry: WorkerRegistration, first: asyncio.Future[None]) -> None:
        """Connect again and again. A failure of the first connection is raised through `first`, later ones are
        logged."""
        while True:
            try:
                async with self._client.connected(entry) as signs:
                    async for cancelled in signs:
                        if not first.done():
                            first.set_result(None)
                        if cancelled is not None:
                            self._cancel(cancelled)
            except PenstockError as error:
                if not first.done():
                    first.set_exception(error)
                    return
                log.warning("bridge_disconnected", error=str(error))
            await asyncio.sleep(RECONNECT_S)


@asynccontextmanager
async def open_bridge(url: str, token: str | None, worker_id: str) -> AsyncIterator[BridgeTransport]:
    """Connections to the service for the time of the block, opened on demand. Raises Invalid for a bad address."""
    async with open_client(url, token) as client:
        yield BridgeTransport(client, worker_id)


async def retry_until_admitted(ask: Callable[[], Awaitable[T]]) -> T:
    """As `retry_until_available`, also while the service refuses the token: a running worker waits until it is
    accepted."""

    async def admitted() -> T:
        try:
            return await ask()
        except Denied as error:
            raise Unavailable(str(error)) from error

    return await retry_until_available(admitted)


def _resolution(outcome: Outcome) -> ResolveTask:
    match outcome:
        case TaskCompleted(output):
            return ResolveTask("complete", output=_raw(output))
        case TaskContinued(value):
            return ResolveTask("continue", output=_raw(value))
        case TaskPaused(delay_s, checkpoint, name):
            return ResolveTask("pause", duration_ms=round(delay_s * 1000), checkpoint=_raw(checkpoint), name=name)
        case Failure(error, failure_type, retry_after_ms, traceback):
            return ResolveTask(
                "fail",
                error=error,
                failure_type=failure_type,
                retry_after_ms=retry_after_ms,
                traceback=traceback or None,
            )
        case _:
            assert_never(outcome)


def _raw(body: bytes | None) -> Raw | UnsetType:
    return UNSET if body is None else Raw(body)
