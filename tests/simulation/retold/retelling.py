"""The story of one run: its log, told by the rules of this room, beside what the engine makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UnsetType

from penstock.broker.worker_messages import TaskPayload
from penstock.config.limits import PAYLOAD_BYTES_MAX
from penstock.engine.definition.definitions import WorkflowDef
from penstock.engine.run.event_payloads import Failure, Reply, Started, StepFacts
from penstock.engine.run.events import (
    ChildEnded,
    Event,
    EventReceived,
    PlannerExpanded,
    Record,
    StepCompleted,
    StepContinue,
    StepFailed,
    StepOverridden,
    StepSkipped,
    StepStarted,
    StepTakenOver,
    TimerFired,
    WorkflowCompleted,
    WorkflowPaused,
    WorkflowResumed,
    WorkflowStarted,
    WorkflowUnpaused,
)
from penstock.engine.run.state import RUN_OPEN, Run, RunStatus, StepState, StepStatus
from penstock.engine.times import instant
from tests.simulation.retold import templates
from tests.simulation.retold.children import Children
from tests.simulation.retold.families import Attempt, Families
from tests.simulation.retold.moves import Moves
from tests.simulation.retold.pauses import Pauses
from tests.simulation.retold.plans import Plans
from tests.simulation.retold.responses import Responses
from tests.simulation.retold.sleeps import Sleeps
from tests.simulation.retold.tasks import Tasks
from tests.simulation.retold.told import Told, begun_with, followed, json, value_of
from tests.simulation.retold.undoing import Undoing
from tests.simulation.retold.waits import Waits
from tests.simulation.streams import Message, Stream


class Retelling:
    """One run's. `take` is told of each event that has changed the run, `task` of each task of it that was queued."""

    def __init__(
        self, definition: WorkflowDef, run_id: str, families: Families, pauses: Pauses, events: Stream
    ) -> None:
        self.definition, self.run_id, self._families, self._pauses = definition, run_id, families, pauses
        self.follows = False
        self._kept: list[TimerFired] = []
        self.told = told = Told(definition, run_id)
        self._moves, self._tasks, self._children = Moves(told), Tasks(told), Children(told, families)
        self._sleeps, self._waits, self._plans = Sleeps(told), Waits(told, events), Plans(told)
        self._responses, self._undoing = Responses(told), Undoing(told)

    @property
    def answer(self) -> tuple[int, Any] | None:
        """What its caller is answered: the status and the body."""
        return self._responses.answer

    def take(self, before: Run | None, run: Run, record: Record, first: Told | None = None) -> None:
        """`first` is told of the run that this one repeats. Raises Broken."""
        self.told.first = first
        event = record.event
        self.told.run, self.told.seq = run, record.seq
        self.told.paused = self._pauses.since is not None and not isinstance(event, WorkflowUnpaused)
        if isinstance(event, WorkflowResumed):
            self._undoing.resumed()
            self.told.resumed(event.payload.holds)
            self._families.resumed(self.run_id)
        if isinstance(event, WorkflowStarted):
            self.follows = event.payload.failure_of is not None
            self._families.begun(self.run_id, event.payload, record)
        if before is not None and before.status in (*RUN_OPEN, RunStatus.PENDING):
            record = self._with_its_start(before, record)
            event = record.event
            self._hear(before, record)
            self._undoing.heard(before, run, record)
            if run.ended:
                self._finished(run, event)
            if run.status not in (before.status, RunStatus.COMPLETED):
                self._tasks.closed(before, run, event)
        if before is not None:
            self._children.let_go(before, run, event)
        for step_id, state in run.steps.items():
            old = None if before is None else before.steps.get(step_id)
            if old is not state:
                self._moves.moved(step_id, old or StepState(), state, record)
                self._undoing.moved(step_id, old or StepState(), state, record)

    def _with_its_start(self, before: Run, record: Record) -> Record:
        """The answer, once the start that it tells is heard; a timeout in its place, if it took longer than that."""
        start, event = begun_with(record), record.event
        if start is None or not isinstance(event, StepCompleted | StepFailed | StepContinue):
            return record
        self._undoing.begun(before, start)
        begins = before.step(event.step_id).status is not StepStatus.RUNNING
        timeout = self.told.timeout_of(event.step_id) if begins else None
        if timeout is None or instant(event.timestamp) - instant(start.event.timestamp) <= timeout:
            return record
        late = StepFailed(
            run_id=event.run_id,
            step_id=event.step_id,
            timestamp=event.timestamp,
            attempt_number=event.attempt_number,
            iteration=event.iteration,
            payload=Failure(f"step timeout exceeded ({timeout:g}s)"),
        )
        return Record(record.seq, record.at, late)

    def task(self, message: Message, task: TaskPayload) -> None:
        """Raises Broken for a task that nobody should have."""
        self._tasks.queued(message, task)

    def child(self, attempt: Attempt, started: Started) -> bool:
        """A child was started. Returns whether the attempt still waits for it. Raises Broken."""
        waits = self._children.started(attempt, started)
        if waits and attempt.step_id not in self.told.steps:
            self._tasks.check_room(self.told.whole(attempt.step_id), attempt.step_id)
        return waits

    def follower(self, started: Started) -> None:
        """A run was started because this one has failed. Raises Broken."""
        assert self.told.run is not None
        wanted, own = self.definition.on_failure, json(self.told.run.input)
        if wanted is None or started.workflow != wanted.workflow or self.follows:
            raise self.told.broken(f"it has failed, and started a run of {started.workflow}")
        labels = templates.evaluated(wanted.labels or None, self.told.scope_of_run())
        if (started.labels or None) != labels:
            raise self.told.broken(f"the run that follows from its failure has {started.labels}, not {labels}")
        given = json(started.input)
        about = given if isinstance(wanted.input, UnsetType) else {**given, "input": own}
        if (about["run_id"], about["input"]) != (self.run_id, own):
            raise self.told.broken(f"the run that follows from its failure was given {given}")

    def saved(self, run: Run, streams: Mapping[str, Stream]) -> None:
        """A snapshot was stored, so everything that followed from the run's end, or from its beginning to undo its
        steps, was done. Raises Broken."""
        known = self.told.run
        if known is None or run.seq != known.seq:
            return
        self._families.check_orders(self.run_id)
        if run.status in (RunStatus.RUNNING, RunStatus.COMPLETED):
            return
        self._families.check_children(self.run_id)
        self._tasks.check_withdrawn(run, streams)

    def _hear(self, before: Run, record: Record) -> None:
        match event := record.event:
            case StepStarted():
                self._begun(before, event, event.payload)
            case StepCompleted():
                self._completed(before, event)
            case StepFailed():
                self._failed(before, event)
            case StepSkipped():
                self.told.skipped.add(event.step_id)
            case StepOverridden():
                attempts = before.step(event.step_id).attempts
                self.told.completed_by_hand(event.step_id, attempts, json(event.payload.output))
            case EventReceived():
                self._waits.received(before, event)
            case ChildEnded():
                self._children.ended(before, event)
            case PlannerExpanded() if before.taking is not None:
                self._plans.taken_over(event)
            case PlannerExpanded():
                self._plans.expanded(before, event)
            case StepTakenOver():
                self._taken_over(event)
            case TimerFired() if self.told.paused:
                self._kept.append(event)
            case TimerFired():
                self._time_is_over(before, event, record)
            case WorkflowPaused():
                self._kept = self._kept if self.told.paused else []
                self._children.paused(before, event)
            case WorkflowUnpaused():
                if self._pauses.since is not None:
                    self._go_on(before, record)
                self._children.go_on(before, event)

    def _time_is_over(self, before: Run, event: TimerFired, record: Record) -> None:
        step_id = event.payload.step_id or ""
        if event.payload.timer.startswith("wait."):
            self._waits.timed_out(before, step_id)
        if event.payload.timer.startswith("sleep."):
            self._sleeps.ended(before, step_id, record)

    def _go_on(self, before: Run, record: Record) -> None:
        """A pause is over: what had its time meanwhile ends now, and what is queued is ordered."""
        for event in self._kept:
            if not self.told.has_ended(event.payload.step_id or ""):
                self._time_is_over(before, event, record)
        self._kept.clear()
        for step_id, step in before.steps.items():
            if step.status is StepStatus.QUEUED and step.due is None and step_id in self.told.ordered_at:
                self.told.ordered_at[step_id].append(record.at)

    def _taken_over(self, event: StepTakenOver) -> None:
        """What another run has done: its output is the one that this run's log tells of it, unless it was given."""
        taken = event.payload
        self.told.taken_over(event.step_id, taken, is_element=event.item is not None)
        if taken.received is not None:
            self._waits.taken_over(event.step_id, taken.received)

    def _begun(self, before: Run, event: StepStarted, facts: StepFacts | None) -> None:
        match facts:
            case StepFacts(items=int() as total):
                self.told.items[event.step_id] = total
            case StepFacts(wake_at=str() as wake_at):
                self._sleeps.begun(event.step_id, wake_at)
            case StepFacts(event=str()):
                self._waits.begun(event.step_id, facts)
            case StepFacts(child_run_id=str() as child):
                self._children.begun(before, event, child)
            case StepFacts(reply=Reply() as reply):
                self._responses.given(before, event.step_id, reply)

    def _completed(self, before: Run, event: StepCompleted) -> None:
        attempt = event.attempt_number or before.step(event.step_id).attempts
        given = b"null" if isinstance(event.payload, UnsetType) else bytes(event.payload)
        if len(given) > PAYLOAD_BYTES_MAX:
            error = f"the output has {len(given)} bytes, {PAYLOAD_BYTES_MAX} is the most"
            self.told.failed(event.step_id, attempt, error)
        elif self.told.is_planner(event.step_id):
            self._plans.returned(event.step_id, json(given))
        else:
            self.told.succeeded(event.step_id, attempt, json(given))

    def _failed(self, before: Run, event: StepFailed) -> None:
        attempt = event.attempt_number or before.step(event.step_id).attempts
        self._plans.failed(event.step_id, event.payload.error)
        stops = before.failing or (before.status is RunStatus.COMPENSATING and followed(event.step_id) == event.step_id)
        hopeless = event.payload.failure_type == "non_retriable" or stops
        self.told.tried(event.step_id, attempt, event.payload.error, hopeless=hopeless)

    def _finished(self, run: Run, event: Event) -> None:
        self._responses.closed()
        self._families.finished(run, value_of(event.payload.output) if isinstance(event, WorkflowCompleted) else None)
