"""The context of a task function that is not async: the same methods, called from its thread."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any

from penstock.broker.worker_messages import TaskPayload
from penstock.engine.errors import Unavailable
from penstock.worker.tasks.context import Context, TaskFacts


class BlockingContext(TaskFacts):
    """Belongs to one execution of a task function in a thread. Its methods do what Context says, and return when it is
    done.

    `close` ends it: pending calls are cancelled, later ones raise Unavailable.
    """

    def __init__(self, task: TaskPayload, deliveries: int, context: Context) -> None:
        super().__init__(task, deliveries)
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._asked: set[Future[Any]] = set()
        self._closed = False

    def checkpoint(self, value: Any) -> None:
        self._ask(self._context.checkpoint(value))

    def load_checkpoint(self) -> Any:
        return self._ask(self._context.load_checkpoint())

    def wait_signal(self, name: str, timeout_s: float | None = None) -> Any:
        return self._ask(self._context.wait_signal(name, timeout_s))

    def send_signal(self, run_id: str, name: str, payload: Any = None) -> None:
        self._ask(self._context.send_signal(run_id, name, payload))

    def close(self) -> None:
        """Called in the loop, when the function's result is not needed any more."""
        self._closed = True
        for asked in list(self._asked):
            asked.cancel()

    def _ask(self, question: Coroutine[Any, Any, Any]) -> Any:
        if self._closed:
            question.close()
            raise Unavailable("the worker has given this task back")
        asked = asyncio.run_coroutine_threadsafe(question, self._loop)
        self._asked.add(asked)
        if self._closed:  # meanwhile
            asked.cancel()
        try:
            return asked.result()
        finally:
            self._asked.discard(asked)
