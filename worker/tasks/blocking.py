"""The context of a task function that is not async: the same methods, called from its thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any

from penstock.broker.worker_messages import TaskPayload
from penstock.engine.errors import Unavailable
from penstock.worker.live.step_log import StepLog
from penstock.worker.tasks.context import Context, TaskFacts


class BlockingContext(TaskFacts):
    """Belongs to one execution of a task function in a thread. Its methods do what Context says, and return when it is
    done.

    `cancelled` is set when the execution is cancelled: a function that takes long looks at it, waits for it instead of
    sleeping (`ctx.cancelled.wait(5)`), or calls `raise_if_cancelled`. A pending `wait_signal` raises TaskCancelled
    then, and so do `checkpoint` and `wait_signal` from then on.

    `close` ends it: pending calls are cancelled, later ones raise Unavailable.
    """

    def __init__(self, task: TaskPayload, deliveries: int, context: Context) -> None:
        super().__init__(task, deliveries)
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._asked: set[Future[Any]] = set()
        self._closed = False
        self.cancelled: threading.Event = threading.Event()

    @property
    def log(self) -> StepLog:
        return self._context.log

    def stream(self, chunk: Any) -> None:
        self._context.stream(chunk)

    def progress(self, done: float, total: float | None = None, text: str = "") -> None:
        self._context.progress(done, total, text)

    def checkpoint(self, value: Any) -> None:
        self._ask(self._context.checkpoint(value))

    def load_checkpoint(self) -> Any:
        return self._ask(self._context.load_checkpoint())

    def wait_signal(self, name: str, timeout_s: float | None = None) -> Any:
        return self._ask(self._context.wait_signal(name, timeout_s))

    def send_signal(self, run_id: str, name: str, payload: Any = None) -> None:
        self._ask(self._context.send_signal(run_id, name, payload))

    def cancel(self, reason: str) -> None:
        """Called by the worker, in the loop."""
        super().cancel(reason)
        self._context.cancel(reason)
        self.cancelled.set()
        for asked in list(self._asked):
            asked.cancel()

    def close(self) -> None:
        """Called in the loop, when the function's result is not needed any more."""
        self._closed = True
        for asked in list(self._asked):
            asked.cancel()

    def _ask(self, question: Coroutine[Any, Any, Any]) -> Any:
        if self._closed:
            question.close()
            raise Unavailable("the worker has given this task back")
        was_cancelled = self.cancelled.is_set()
        asked = asyncio.run_coroutine_threadsafe(question, self._loop)
        self._asked.add(asked)
        if self._closed or self.cancelled.is_set() != was_cancelled:  # meanwhile, by the loop, which did not see it
            asked.cancel()
        try:
            return asked.result()
        except CancelledError:
            self.raise_if_cancelled()
            raise
        finally:
            self._asked.discard(asked)
