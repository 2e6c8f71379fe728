"""Starting and cancelling the children of a run.

A child begins with an event that is stored only if its history is empty. A cancellation that comes first stands there
in its place. So a child begins once, whoever repeats its start, and never after it was cancelled.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TypeAlias

from msgspec import Raw

from penstock.actors.runs.shared.lease import ShardLease
from penstock.actors.runs.shared.spans import header_of_step, span_of_run
from penstock.broker import message_ids
from penstock.broker.store import Store
from penstock.config.logging import get_logger
from penstock.config.process.background import start
from penstock.config.process.crash_points import reached
from penstock.engine.definition.definitions import WorkflowDef
from penstock.engine.definition.schema import Schemas
from penstock.engine.errors import Conflict, Invalid, NotFound, PenstockError, TooLarge
from penstock.engine.run.commands import CancelChild, PauseChild, StartChild
from penstock.engine.run.events import StepFailed, StepStarted, WorkflowStarted, event_type
from penstock.engine.run.execution.children import (
    check_start,
    child_cancelled,
    child_paused,
    child_refused,
    child_run_id,
    child_start,
    child_started,
)
from penstock.engine.run.execution.failure_runs import failure_run_start
from penstock.engine.run.state import Run

STARTS_AT_ONCE = 64

_Definition: TypeAlias = tuple[WorkflowDef, str]

log = get_logger()


class Children:
    """Owned by a shard."""

    def __init__(self, store: Store, lease: ShardLease) -> None:
        self._store, self._lease = store, lease
        self._schemas = Schemas()
        self._gate = asyncio.Semaphore(STARTS_AT_ONCE)
        self._reads: dict[tuple[object, ...], asyncio.Task[_Definition]] = {}

    async def start(self, run: Run, command: StartChild) -> bytes:
        """Start the child, and append to the run that it was started, or why it cannot be. Returns the broker's answer.

        Raises Unavailable (outcome unknown: it may be repeated).
        """
        async with self._gate:
            event = await self._begun(run, command)
            self._lease.check()
            return await self._store.history.send(event)

    async def _begun(self, run: Run, command: StartChild) -> StepStarted | StepFailed:
        history, child = self._store.history, child_run_id(run.run_id, command.step_id, command.attempt)
        try:
            started = await self._start_of(run, command)
        except (Invalid, NotFound, TooLarge) as error:
            if not await history.first_seq(child):  # else an earlier try has started it
                return child_refused(run, command, str(error))
            return child_started(run, command)
        self._lease.check()
        with suppress(Conflict):
            await history.append(started, expect_seq=0)
        reached("child.started")
        return child_started(run, command)

    async def _start_of(self, run: Run, command: StartChild) -> WorkflowStarted:
        """Raises Invalid, NotFound or TooLarge for a child that cannot start."""
        check_start(run, command)
        definition, digest = await self._definition(run, command)
        otlp = self._store.telemetry.otlp
        trace = None if otlp is None else header_of_step(otlp, run, command.step_id, command.attempt)
        schema = self._schemas.of(definition, digest)
        return child_start(run, command, definition, digest, schema, time.time(), trace)

    async def start_after_failure(
        self, run: Run, workflow: str, resumes: int, value: Raw, labels: dict[str, str] | None
    ) -> None:
        """Start the run that follows from the failure of this one. Where it cannot start, that is logged: the run that
        has failed has ended, and says why itself.

        Raises Unavailable (outcome unknown: it may be repeated).
        """
        try:
            definition, digest = await self._store.definitions.latest(workflow)
            otlp = self._store.telemetry.otlp
            trace = None if otlp is None else span_of_run(otlp, run).text
            schema = self._schemas.of(definition, digest)
            event = failure_run_start(run, resumes, definition, digest, schema, value, labels, time.time(), trace)
            self._lease.check()
            with suppress(Conflict):
                await self._store.history.append(event, expect_seq=0)
            reached("failure_run.started")
        except (Invalid, NotFound, TooLarge) as error:
            log.error("failure_run_refused", run_id=run.run_id, workflow=workflow, error=str(error))

    async def _definition(self, run: Run, command: StartChild) -> _Definition:
        """The definition as it is now. Children that the same state of the run has ordered share a read."""
        key = run.run_id, run.seq, command.workflow, command.version
        reading = self._reads.get(key)
        if reading is None:
            reading = self._reads[key] = start(self._read(command), name="child_definition", expected=PenstockError)
            reading.add_done_callback(lambda _: self._reads.pop(key))
        return await asyncio.shield(reading)

    async def _read(self, command: StartChild) -> _Definition:
        definitions = self._store.definitions
        if command.version is None:
            return await definitions.latest(command.workflow)
        return await definitions.version(command.workflow, command.version)

    def cancel(self, run: Run, command: CancelChild) -> asyncio.Future[bytes]:
        """Cancel the child, whether it has started or not. One that has ended ignores it."""
        event = child_cancelled(run, command, time.time())
        return self._store.history.send(event, message_ids.of_parents_cancellation(event.run_id))

    def pause(self, run: Run, command: PauseChild) -> asyncio.Future[bytes]:
        """Pause the child and its children, or let them go on. One that has ended, or is paused already, ignores it."""
        event = child_paused(run, command, time.time())
        message_id = message_ids.of_parents_pause(event.run_id, event_type(event), command.seq)
        return self._store.history.send(event, message_id)
