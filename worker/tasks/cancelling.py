"""Cancelling one execution: its function is notified, and what it returns is not reported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from penstock.broker.worker_messages import CancelledTask, TaskPayload
from penstock.config.logging import get_logger

CLEANUP_S = 10.0  # what a cancelled function has, each time, before it is cancelled again

log = get_logger()


class TaskCancelled(asyncio.CancelledError):
    """Raised in a task function whose execution was cancelled. As every CancelledError it is no Exception, so that
    `except Exception` does not stop it."""


class RunningTask:
    """One execution of a task function, from before its call until it has returned. Owned by the executor."""

    __slots__ = ("_again", "_call", "_listener", "reason", "task")

    def __init__(self, task: TaskPayload) -> None:
        self.task = task
        self.reason: str | None = None
        self._call: asyncio.Task[Any] | None = None
        self._listener: Callable[[str], None] | None = None
        self._again: asyncio.TimerHandle | None = None

    def is_named_by(self, cancelled: CancelledTask) -> bool:
        """Another attempt or iteration of the same step is another execution."""
        named = (cancelled.task_id, cancelled.attempt, cancelled.iteration)
        return named == (self.task.task_id, self.task.attempt, self.task.iteration)

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the reason when the execution is cancelled; it may be cancelled already."""
        self._listener = listener
        if self.reason is not None:
            listener(self.reason)

    def awaits_in(self, call: asyncio.Task[Any] | None) -> None:
        """The function is async, and awaited in this task: to cancel it is to cancel the task."""
        self._call = call

    def cancel(self, reason: str) -> None:
        """Notify the function. An async one is cancelled now, and again each CLEANUP_S until it has ended."""
        if self.reason is not None:
            return
        self.reason = reason
        log.info("task_cancelled", run_id=self.task.run_id, step_id=self.task.step_id, reason=reason)
        if self._listener is not None:
            self._listener(reason)
        if self._call is not None and self._call is not asyncio.current_task():  # else its context raises
            self._call.cancel()
        self._again = asyncio.get_running_loop().call_later(CLEANUP_S, self._insist)

    def ended(self) -> None:
        """The function has returned, or raised."""
        if self._again is not None:
            self._again.cancel()
        if self._call is not None:
            while self.reason is not None and self._call.cancelling():
                self._call.uncancel()
            self._call = None

    def _insist(self) -> None:
        log.warning("task_ignores_cancellation", run_id=self.task.run_id, step_id=self.task.step_id)
        if self._call is not None:
            self._call.cancel()
            self._again = asyncio.get_running_loop().call_later(CLEANUP_S, self._insist)
