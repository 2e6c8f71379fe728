"""Reports step.started of polled tasks shortly after they were assigned, so that a quick result is sent together with
it.

The engine then handles both events in one turn, as it does for workers on the broker. If a process dies before it
reports a start, the start is reported when the task is delivered again, or by the process that gets the next request
for the task.
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
        """Report the start within HELD_BACK_S, or before the next event of the task."""
        self.report(task_id)
        handle = asyncio.get_running_loop().call_later(HELD_BACK_S, self.report, task_id)
        self._waiting[task_id] = event, handle

    def report(self, task_id: str) -> None:
        """Report the start now, unless it is reported: events that are sent after this are stored after it."""
        if waiting := self._waiting.pop(task_id, None):
            event, handle = waiting
            handle.cancel()
            self._history.send(event).add_done_callback(_log_failure)
            reached("bridge.begun")

    def discard(self, task_id: str) -> None:
        """Do not report it: the task was not assigned after all."""
        if waiting := self._waiting.pop(task_id, None):
            waiting[1].cancel()

    async def report_for_former_holder(self, lease: Lease) -> None:
        """Report the start for a process that assigned the task and died before it reported the start. Raises
        Unavailable.

        The lease's `seen_at` is then the time of the assignment: later heartbeats would have been sent after the
        report.
        """
        if not await self._is_reported(lease):
            await self._history.append(
                reports.started(lease, lease.worker_id or None, rfc3339(lease.seen_at), delivery=lease.deliveries)
            )

    async def _is_reported(self, lease: Lease) -> bool:
        execution = (lease.step_id, lease.attempt, lease.iteration, lease.deliveries)
        async with aclosing(self._history.pages(lease.run_id)) as pages:
            async for page in pages:
                if any(_begun(stored.data) == execution for stored in page):
                    return True
        return False

    def report_all(self) -> None:
        for task_id in list(self._waiting):
            self.report(task_id)


def _begun(body: bytes) -> tuple[str, int, int, int] | None:
    """Step, attempt, iteration and delivery that a stored step.started is about."""
    with suppress(Malformed, NeedsUpgrade):
        if b"step.started" in body and isinstance(event := decode(body), StepStarted):
            return event.step_id, event.attempt_number or 1, event.iteration or 0, event.delivery
    return None


def _log_failure(sent: asyncio.Future[bytes]) -> None:
    if not sent.cancelled() and (error := sent.exception()):
        log.error("step_started_not_stored", error=str(error))
