"""What a task function can read and request beyond its input."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

import orjson

from penstock.broker.worker_messages import TaskPayload
from penstock.config.limits import PAYLOAD_BYTES_MAX
from penstock.engine.definition.signals import check_size, check_target
from penstock.engine.errors import Conflict, TooLarge
from penstock.worker.live.step_log import StepLog
from penstock.worker.tasks.cancelling import TaskCancelled
from penstock.worker.tasks.payloads import as_json
from penstock.worker.transport import StepStore


class TaskFacts:
    """The execution of the step: `attempt` counts from 1, `iteration` from 0; `deliveries` counts how often the broker
    has delivered this attempt; `metadata` is the step's own, `workflow` the workflow's name. `item` is the number of a
    map's element, from 0; None of any other step. `previous_error` says why a planner's attempt before this one has
    failed. `trace_parent` (W3C Trace Context) names the span of this execution, where the service exports telemetry;
    with OpenTelemetry installed, the current span is one below it. `cancel_reason` says why the execution was
    cancelled; None: it was not."""

    cancel_reason: str | None = None

    def __init__(self, task: TaskPayload, deliveries: int) -> None:
        self.run_id: str = task.run_id
        self.step_id: str = task.step_id
        self.task_id: str = task.task_id
        self.attempt: int = task.attempt
        self.iteration: int = task.iteration
        self.item: int | None = task.item
        self.previous_error: str | None = task.previous_error
        self.trace_parent: str | None = task.trace_parent
        self.deliveries: int = deliveries
        self.workflow: str = task.workflow_name
        self.metadata: Mapping[str, str] = task.metadata

    def cancel(self, reason: str) -> None:
        """Called by the worker."""
        self.cancel_reason = reason

    def raise_if_cancelled(self) -> None:
        """Raise TaskCancelled if the result of this execution is not wanted any more."""
        if self.cancel_reason is not None:
            raise TaskCancelled(self.cancel_reason)


class SaidOutput(Protocol):
    """Takes what a function says while it runs (live/live_output.py, and the test kit)."""

    @property
    def log(self) -> StepLog: ...

    def stream(self, body: bytes) -> None: ...

    def progress(self, done: float, total: float | None, text: str) -> None: ...


class Context(TaskFacts):
    """Belongs to one execution of an async task function. While the service is unavailable, its methods wait.

    When the execution is cancelled, the function gets a CancelledError where it awaits. From then on `checkpoint` and
    `wait_signal` raise TaskCancelled, which is one, too.
    """

    _cancelled: asyncio.Event | None = None

    def __init__(self, task: TaskPayload, held: StepStore, live: SaidOutput) -> None:
        super().__init__(task, held.deliveries)
        self._held, self._live = held, live

    @property
    def log(self) -> StepLog:
        """The log of this execution: `ctx.log("charged", amount=12)`, `ctx.log.warning(…)`; also a handler of `logging`
        and a processor of structlog. It never waits: lines that find no room are dropped and counted."""
        return self._live.log

    def stream(self, chunk: Any) -> None:
        """Show `chunk` (JSON, at most 64 KiB), such as a token, to who follows the step. It never waits, as `log`.

        Raises TooLarge, and TypeError for what is no JSON.
        """
        self._live.stream(as_json(chunk))

    def progress(self, done: float, total: float | None = None, text: str = "") -> None:
        """Show that `done` of `total` is done; without `total` it is not known how much there is. It never waits.
        Raises Invalid for what is no number from 0 on."""
        self._live.progress(done, total, text)

    @property
    def cancelled(self) -> asyncio.Event:
        """Set when the execution is cancelled: for what the function has shielded from cancellation."""
        if self._cancelled is None:
            self._cancelled = asyncio.Event()
            if self.cancel_reason is not None:
                self._cancelled.set()
        return self._cancelled

    def cancel(self, reason: str) -> None:
        """Called by the worker."""
        super().cancel(reason)
        if self._cancelled is not None:
            self._cancelled.set()

    async def checkpoint(self, value: Any) -> None:
        """Store `value` (JSON, at most 1 MiB) for later attempts and iterations of this step, until the run ends.
        Raises TooLarge, and TypeError for a value that is not JSON."""
        body = as_json(value)
        if len(body) > PAYLOAD_BYTES_MAX:
            raise TooLarge(f"the checkpoint has {len(body)} bytes, {PAYLOAD_BYTES_MAX} is the most")
        self.raise_if_cancelled()
        try:
            await self._held.checkpoint(body)
        except Conflict:
            self.raise_if_cancelled()  # by the service's answer
            raise

    async def load_checkpoint(self) -> Any:
        """The latest checkpoint of this step, None without one; bytes if it is not JSON."""
        body = await self._held.load_checkpoint()
        return None if body is None else _decoded(body)

    async def wait_signal(self, name: str, timeout_s: float | None = None) -> Any:
        """The payload of the run's signal `name`: decoded JSON, or bytes if it is not JSON.

        A signal is stored: an earlier one counts, and waiting for it again returns it again. Raises TimeoutError,
        Invalid.
        """
        check_target(self.run_id, name)
        self.raise_if_cancelled()
        async with asyncio.timeout(timeout_s):
            return _decoded(await self._held.wait_signal(name))

    async def send_signal(self, run_id: str, name: str, payload: Any = None) -> None:
        """Send a signal to a run: bytes as they are, anything else as JSON, at most 1 MiB. Raises Invalid, TooLarge."""
        check_target(run_id, name)
        body = payload if isinstance(payload, bytes) else as_json(payload)
        check_size(body)
        await self._held.send_signal(run_id, name, body)


def _decoded(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return body
