"""Notifying a worker that the result of an execution is not wanted any more, by a message that is not stored.

A message may be lost. So a worker, or its front end, also asks for the run's state at each sign of life.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

import msgspec
from msgspec.structs import replace
from nats.aio.msg import Msg

from penstock.broker import names
from penstock.broker.nats.connection import Broker
from penstock.broker.records.pauses import Execution
from penstock.broker.store import Store
from penstock.broker.worker_messages import CancelledTask
from penstock.config.logging import get_logger
from penstock.config.process.background import start
from penstock.engine.definition.identifiers import problem_with
from penstock.engine.errors import Conflict, PenstockError
from penstock.engine.run.advance import advance
from penstock.engine.run.events import Event, Malformed, Record, WorkflowScheduled, WorkflowStarted, decode
from penstock.engine.run.execution.cancelling import WITHDRAWN, given_up, may_be_undone
from penstock.engine.run.state import Run, RunStatus, from_snapshot
from penstock.engine.run.workflow import Workflow

FRESH_S = 1.0  # a state that was read is asked again so long: a step may log thousands of lines
FINAL = frozenset({RunStatus.COMPLETED, RunStatus.CANCELLED})  # no event changes such a run
READ_MAX = 256  # states that are kept for that time

_CANCELLED = msgspec.json.Decoder(CancelledTask)

log = get_logger()


async def notify_worker(broker: Broker, worker_id: str, cancelled: CancelledTask) -> None:
    """Notify the worker, if it is there. An id that cannot be one is ignored: any program may have written it. Raises
    Unavailable."""
    if problem_with("worker id", worker_id) is None:
        await broker.publish(names.cancel_subject(worker_id), msgspec.json.encode(cancelled))


def cancellation(execution: Execution, reason: str) -> CancelledTask:
    task_id = f"{execution.run_id}.{execution.step_id}"
    return CancelledTask(task_id, execution.run_id, execution.step_id, execution.attempt, execution.iteration, reason)


@asynccontextmanager
async def cancellations(
    broker: Broker, worker_id: str, callback: Callable[[CancelledTask], None]
) -> AsyncIterator[None]:
    """Call `callback` for each execution of this worker that is cancelled, for the time of the block."""

    async def receive(msg: Msg) -> None:
        try:
            cancelled = _CANCELLED.decode(msg.data)
        except msgspec.MsgspecError as error:  # any program may publish there
            log.warning("cancel_malformed", worker_id=worker_id, error=str(error))
        else:
            callback(cancelled)

    async with broker.listening(names.cancel_subject(worker_id), receive):
        yield


class _Read(NamedTuple):
    at: float
    run: asyncio.Task[Run | None]


class WantedTasks:
    """Whether executions that workers hold are wanted, by the states of their runs. Owned by a front-end process, or by
    a worker on the broker."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read: dict[str, _Read] = {}

    async def check(self, execution: Execution) -> None:
        """Raises Conflict when the execution was given up. What cannot be read counts as wanted."""
        if why := await self.given_up(execution):
            raise Conflict(f"step {execution.step_id} of run {execution.run_id} was given up: {why}")

    async def given_up(self, execution: Execution) -> str | None:
        """Why the execution is not wanted any more; None: it is, or nobody knows."""
        run = await self._run(execution.run_id)
        if run is None:
            return None
        why = given_up(run, execution.step_id, execution.attempt, execution.iteration)
        return None if why is WITHDRAWN and await self._may_be_undone(run, execution.step_id) else why

    async def _may_be_undone(self, run: Run, step_id: str) -> bool:
        try:
            workflow = await self._store.definitions.load(run.workflow_id, run.digest)
        except PenstockError:
            return True
        return may_be_undone(workflow, run, step_id)

    async def _run(self, run_id: str) -> Run | None:
        now = time.monotonic()
        found = self._read.get(run_id)
        if found is None or now - found.at > FRESH_S:
            self._forget(now)
            found = self._read[run_id] = _Read(now, start(self._load(run_id), name="task_wanted"))
        return await asyncio.shield(found.run)

    def _forget(self, now: float) -> None:
        """Remove old states: the first ones were read first."""
        while self._read:
            run_id, found = next(iter(self._read.items()))
            if now - found.at <= FRESH_S and len(self._read) < READ_MAX:
                return
            del self._read[run_id]

    async def _folded(self, run_id: str, run: Run | None) -> Run | None:
        """The run as its history says: a short one has no snapshot."""
        if run is not None and run.status in FINAL:
            return run
        workflow: Workflow | None = None
        for stored in await self._store.history.read(run_id, run.seq if run else 0):
            try:
                record = Record(stored.seq, stored.at, decode(stored.data))
            except Malformed:
                continue
            if workflow is None:
                workflow = await self._workflow(run, record.event)
            if workflow is not None:
                run, _ = advance(workflow, run, record)
        return run

    async def _workflow(self, run: Run | None, first: Event) -> Workflow | None:
        if run is not None:
            return await self._store.definitions.load(run.workflow_id, run.digest)
        if isinstance(first, WorkflowStarted | WorkflowScheduled):
            return await self._store.definitions.load(first.payload.workflow, first.payload.digest)
        return None

    async def _load(self, run_id: str) -> Run | None:
        try:
            last = await self._store.history.last(run_id)
            state = None if last is None else names.owner_state(last.headers)
            if state is not None:
                return replace(from_snapshot(state), status=RunStatus.COMPLETED)
            entry = await self._store.runs.get(run_id)
            return await self._folded(run_id, None if entry is None else from_snapshot(entry.value))
        except (PenstockError, msgspec.MsgspecError):
            return None
