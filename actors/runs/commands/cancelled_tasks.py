"""Notifying workers that what they carry out is not wanted any more: at once, and at most once."""

from __future__ import annotations

import asyncio

from penstock.broker.store import Store
from penstock.broker.worker_messages import CancelledTask
from penstock.broker.worker_protocol.cancels import notify_worker
from penstock.config.logging import get_logger
from penstock.config.process.background import start
from penstock.config.process.crash_points import reached
from penstock.engine.errors import PenstockError
from penstock.engine.run.commands import CancelTask
from penstock.engine.run.events import Malformed, StepStarted, decode

READS_AT_ONCE = 16

log = get_logger()


class CancelledTasks:
    """Owned by a shard."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._gate = asyncio.Semaphore(READS_AT_ONCE)

    async def notify(self, run_id: str, command: CancelTask) -> asyncio.Future[bytes] | None:
        """Notify the worker, now or, where it must be looked up, soon: the future is done then.

        No error is raised: a worker that was not notified learns it at its next sign of life.
        """
        if command.worker_id is not None:
            await self._notify(run_id, command, command.worker_id)
            return None
        return start(self._look_up(run_id, command), name="cancel_task")

    async def _look_up(self, run_id: str, command: CancelTask) -> bytes:
        async with self._gate:
            worker_id = await self._begun_by(run_id, command.begun)
        if worker_id is not None:
            await self._notify(run_id, command, worker_id)
        return b""

    async def _begun_by(self, run_id: str, seq: int) -> str | None:
        """The worker that the event of an execution's start names."""
        try:
            stored = await self._store.history.at(run_id, seq)
            event = None if stored is None else decode(stored.data)
        except (PenstockError, Malformed) as error:
            log.warning("worker_not_notified", run_id=run_id, error=str(error))
            return None
        return event.worker_id if isinstance(event, StepStarted) else None

    async def _notify(self, run_id: str, command: CancelTask, worker_id: str) -> None:
        step_id = command.step_id
        cancelled = CancelledTask(
            f"{run_id}.{step_id}", run_id, step_id, command.attempt, command.iteration, command.reason
        )
        try:
            await notify_worker(self._store.broker, worker_id, cancelled)
        except PenstockError as error:
            log.warning("worker_not_notified", run_id=run_id, worker_id=worker_id, error=str(error))
        reached("task.cancelled")
