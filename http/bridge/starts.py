"""That a polled task was begun: told a moment later, so that an answer which comes soon leaves together with it.

The engine then handles both in one turn, as it does for workers on the broker. A process that dies meanwhile tells
nothing: then it is told when the task is delivered again, or by the process that hears of the task next.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress

from penstock.broker.records.leases import Lease
from penstock.broker.streams.history import History
from penstock.broker.worker_protocol import reports
from penstock.config.logging import get_logger
from penstock.config.process.crash_points import reached
from penstock.engine.errors import NeedsUpgrade
from penstock.engine.run.events import Malformed, StepStarted, decode
from penstock.engine.times import rfc3339

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

    async def in_place_of(self, lease: Lease) -> None:
        """Tell it for a process that handed the task out and has died since, if that had no time to. Raises
        Unavailable.

        No sign of life came after the hand-out then, so that `seen_at` still says when it was.
        """
        if not await self._was_told(lease):
            await self._history.append(
                reports.started(lease, lease.worker_id or None, rfc3339(lease.seen_at), delivery=lease.deliveries)
            )

    async def _was_told(self, lease: Lease) -> bool:
        execution = (lease.step_id, lease.attempt, lease.iteration, lease.deliveries)
        async with aclosing(self._history.pages(lease.run_id)) as pages:
            async for page in pages:
                if any(_begun(stored.data) == execution for stored in page):
                    return True
        return False

    def all_now(self) -> None:
        for task_id in list(self._waiting):
            self.now(task_id)


def _begun(body: bytes) -> tuple[str, int, int, int] | None:
    """Step, attempt, iteration and delivery of which a stored event says that it was begun."""
    with suppress(Malformed, NeedsUpgrade):
        if b"step.started" in body and isinstance(event := decode(body), StepStarted):
            return event.step_id, event.attempt_number or 1, event.iteration or 0, event.delivery
    return None


def _log_failure(sent: asyncio.Future[bytes]) -> None:
    if not sent.cancelled() and (error := sent.exception()):
        log.error("step_started_not_stored", error=str(error))
