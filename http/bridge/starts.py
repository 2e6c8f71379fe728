"""Tasks that were assigned a moment ago: most are answered at once, and then need neither a lease nor a step.started.

A lease serves other processes, and a step.started shows what takes its time. Both are held back: an answer within that
time says itself when the execution began. If this process dies meanwhile, the task is delivered again after its ack
wait; its worker's answer then finds no lease. If it dies later and before it has reported the start, the start is
reported when the task is delivered again, or by the process that gets the next request for the task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing, suppress

from penstock.broker.records.leases import Lease
from penstock.broker.streams.history import History
from penstock.broker.worker_protocol import reports
from penstock.config.logging import get_logger
from penstock.config.process.crash_points import reached
from penstock.engine.errors import NeedsUpgrade
from penstock.engine.run.events import Malformed, StepStarted, decode
from penstock.engine.times import rfc3339
from penstock.http.bridge.leases import HeldLeases

HELD_BACK_S = 0.025

log = get_logger()


class Starts:
    """Owned by the bridge. The lease of a new task has the time of the assignment as its `seen_at`."""

    def __init__(self, history: History, held: HeldLeases) -> None:
        self._history, self._held = history, held
        self._new: dict[str, Lease] = {}
        self._loop = asyncio.get_running_loop()

    def later(self, leases: Sequence[Lease]) -> None:
        """These tasks are being assigned: report their starts and store their leases in HELD_BACK_S, or before the next
        request for the task, unless it is their answer."""
        new = [(lease.task_id, lease) for lease in leases]
        for task_id, lease in new:
            self.report(task_id)
            self._new[task_id] = lease
            reached("bridge.assigned")
        self._loop.call_later(HELD_BACK_S, self._report_all_of, new)

    def is_new(self, task_id: str) -> bool:
        """Whether the start of this task is held back here."""
        return task_id in self._new

    def new(self, task_id: str) -> Lease | None:
        """The lease of such a task; None: it is no such task."""
        return self._new.get(task_id)

    def discard(self, task_id: str) -> None:
        """Report and store nothing: the task is answered, or was not assigned after all."""
        self._new.pop(task_id, None)

    def report(self, task_id: str) -> None:
        """Report the start now, unless it is reported: events that are sent after this are stored after it. The lease
        is on its way as well."""
        if lease := self._new.pop(task_id, None):
            self.report_now(lease)

    def report_now(self, lease: Lease) -> None:
        """Store the lease and report the start of a task whose start is not reported."""
        self._held.begin(lease)
        reached("bridge.leased")
        self._history.send(_started(lease)).add_done_callback(_log_failure)
        reached("bridge.begun")

    def _report_all_of(self, new: Sequence[tuple[str, Lease]]) -> None:
        for task_id, lease in new:
            if self._new.get(task_id) is lease:
                self.report(task_id)

    async def report_for_former_holder(self, lease: Lease) -> None:
        """Report the start for a process that assigned the task and died before it reported the start. Raises
        Unavailable.

        The lease's `seen_at` is then the time of the assignment: later heartbeats would have been sent after the
        report.
        """
        if not await self._is_reported(lease):
            await self._history.append(_started(lease))

    async def _is_reported(self, lease: Lease) -> bool:
        execution = (lease.step_id, lease.attempt, lease.iteration, lease.deliveries)
        async with aclosing(self._history.pages(lease.run_id)) as pages:
            async for page in pages:
                if any(_begun(stored.data) == execution for stored in page):
                    return True
        return False

    def report_all(self) -> None:
        self._report_all_of(list(self._new.items()))


def _started(lease: Lease) -> StepStarted:
    return reports.started(lease, lease.worker_id or None, rfc3339(lease.seen_at), delivery=lease.deliveries)


def _begun(body: bytes) -> tuple[str, int, int, int] | None:
    """Step, attempt, iteration and delivery that a stored step.started is about."""
    with suppress(Malformed, NeedsUpgrade):
        if b"step.started" in body and isinstance(event := decode(body), StepStarted):
            return event.step_id, event.attempt_number or 1, event.iteration or 0, event.delivery
    return None


def _log_failure(sent: asyncio.Future[bytes]) -> None:
    if not sent.cancelled() and (error := sent.exception()):
        log.error("step_started_not_stored", error=str(error))
