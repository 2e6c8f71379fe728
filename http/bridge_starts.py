"""That a polled task was begun: told a moment later, so that an answer which comes soon leaves together with it.

The engine then handles both in one turn, as it does for workers on the broker. A process that dies meanwhile tells nothing: its
task is delivered again and told then, and an answer needs no beginning.
"""

from __future__ import annotations

import asyncio

from penstock.broker.history import History
from penstock.config.crash_points import reached
from penstock.config.logging import get_logger
from penstock.engine.events import StepStarted

HELD_BACK_S = 0.02

log = get_logger()


class Starts:
    """Owned by the bridge."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._waiting: dict[str, tuple[StepStarted, asyncio.TimerHandle]] = {}

    def later(self, task_id: str, event: StepStarted) -> None:
        """Tell it soon, at the latest with the next word about the task."""
        self.now(task_id)
        handle = asyncio.get_running_loop().call_later(HELD_BACK_S, self.now, task_id)
        self._waiting[task_id] = event, handle

    def now(self, task_id: str) -> None:
        """Tell it, if it has not been told yet: what is sent after this is stored after it."""
        if waiting := self._waiting.pop(task_id, None):
            event, handle = waiting
            handle.cancel()
            self._history.send(event).add_done_callback(_log_failure)
            reached("bridge.begun")

    def never(self, task_id: str) -> None:
        """The task has not been handed out after all."""
        if waiting := self._waiting.pop(task_id, None):
            waiting[1].cancel()

    def all_now(self) -> None:
        for task_id in list(self._waiting):
            self.now(task_id)


def _log_failure(sent: asyncio.Future[bytes]) -> None:
    if not sent.cancelled() and (error := sent.exception()):
        log.error("step_started_not_stored", error=str(error))
