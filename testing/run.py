"""`TestRun`: what a test sees of a run, and what people and other programs do to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
from msgspec import Raw, Struct

from penstock.engine.definition.identifiers import quoted
from penstock.engine.definition.signals import check_target
from penstock.engine.errors import CallFailed, Conflict, NotFound
from penstock.engine.run.event_payloads import Cancellation, Decision, ParentRef, PauseScope
from penstock.engine.run.events import (
    ApprovalGranted,
    ApprovalRejected,
    WorkflowCancelled,
    WorkflowCompleted,
    WorkflowPaused,
    WorkflowUnpaused,
)
from penstock.engine.run.execution.elements import ended_seq
from penstock.engine.run.execution.inputs import own_output, run_output
from penstock.engine.run.payloads import payload_of
from penstock.engine.run.state import Run, RunStatus, StepState, StepStatus
from penstock.testing import by_hand
from penstock.testing.history import HistoryEvent, event_of, shown
from penstock.testing.memory.engine import EngineInMemory, RunInMemory
from penstock.testing.memory.payloads import whole
from penstock.worker.tasks.payloads import as_json

if TYPE_CHECKING:
    from penstock.testing.memory.calling import Calls
    from penstock.testing.memory.performing import Performer
    from penstock.testing.memory.tasks import TasksInMemory

PAUSE_FORMAT = 2  # of `workflow.paused` and `workflow.unpaused`


class ServiceParts(NamedTuple):
    """What a run needs of the service in memory that it is in."""

    engine: EngineInMemory
    performer: Performer
    calls: Calls
    tasks: TasksInMemory


class StepOfRun(Struct, frozen=True):
    """A step of a run, or an element of a map. `attempts` counts those that were begun; `output` is decoded JSON, None
    without one."""

    id: str
    status: str
    attempts: int
    output: Any = None
    error: str | None = None
    iteration: int = 0
    started_at: str | None = None
    finished_at: str | None = None
    child_run_id: str | None = None
    worker_id: str | None = None


class TestRun:
    """One run of a service in memory, as it is now. What is done to it here happens at once, with all that follows
    without time passing."""

    __test__ = False  # pytest takes it for a class of tests

    def __init__(self, parts: ServiceParts, of: RunInMemory) -> None:
        self._parts, self._of = parts, of
        self._engine, self._calls = parts.engine, parts.calls

    def __repr__(self) -> str:
        return f"<run {self.id} of {quoted(self.workflow)}: {self.status}>"

    @property
    def id(self) -> str:
        return self._of.run_id

    @property
    def workflow(self) -> str:
        return self._run.workflow_id

    @property
    def status(self) -> str:
        """`scheduled`, `pending`, `running`, `compensating`, `completed`, `failed` or `cancelled`."""
        return self._run.status.value

    @property
    def ended(self) -> bool:
        return self._run.ended

    @property
    def paused(self) -> bool:
        return self._run.pause is not None

    @property
    def error(self) -> str | None:
        """Why it has failed, or was cancelled."""
        return self._run.error

    @property
    def labels(self) -> dict[str, str]:
        return dict(self._run.labels or {})

    @property
    def input(self) -> Any:
        run = self._run
        return _decoded(whole(run.input if run.input_at is None else run.input_at, self._of.event_at))

    @property
    def output(self) -> Any:
        """The output of a run that has completed.

        Raises CallFailed for one that failed or was cancelled, Conflict for one that goes on; both show its history.
        """
        run = self._run
        if run.status is RunStatus.COMPLETED:
            return _decoded(self._output())
        if run.ended:
            why = f": {run.error}" if run.error else ""
            raise CallFailed(f"the run has no output, it {_ENDED[run.status]}{why}\n{self.history}", run.status.value)
        raise Conflict(f"the run has no output yet, it is {run.status}{self._waits()}\n{self.history}")

    def result(self) -> Any:
        """The output, after as much time as the run needs to end. Raises as `output`, also when nothing is due any more
        but times of cron triggers, and the run has not ended."""
        while not self.ended and not self._engine.timeline.only_repeats and self._engine.advance_to_next():
            pass
        return self.output

    @property
    def steps(self) -> Mapping[str, StepOfRun]:
        """The steps by their ids, those that planners have inserted and those that handle failures included."""
        return {step_id: self.step(step_id) for step_id in self._run.steps}

    def step(self, step_id: str) -> StepOfRun:
        """A step, or an element of a map (`lines.3`). Raises NotFound."""
        found = self._run.find(step_id)
        if found is None:
            raise NotFound(f"the run has no step {quoted(step_id)}: it has {', '.join(map(quoted, self._run.steps))}")
        return StepOfRun(
            id=step_id,
            status=found.status.value,
            attempts=found.begun,
            output=self._output_of(step_id, found),
            error=found.error,
            iteration=found.iteration,
            started_at=found.started_at,
            finished_at=found.finished_at,
            child_run_id=found.child_run_id,
            worker_id=found.worker_id,
        )

    @property
    def events(self) -> list[HistoryEvent]:
        """The history, as the log has it."""
        return [event_of(record) for record in self._of.records.values()]

    @property
    def history(self) -> str:
        """The history as text, to look at."""
        return shown(self.events)

    @property
    def children(self) -> list[TestRun]:
        """The runs that its steps have started, in that order."""
        return [run for run in runs_of(self._parts) if run._is_child_of(self.id)]

    @property
    def asking(self) -> list[str]:
        """The steps that wait for somebody to approve."""
        return [step_id for step_id, step in self._run.steps.items() if _asks(step)]

    @property
    def checkpoints(self) -> dict[str, Any]:
        """What its steps have kept last, by step."""
        return {
            step_id: _loads(body) for (run_id, step_id), body in self._calls.checkpoints.items() if run_id == self.id
        }

    def said(self, step_id: str, kind: str = "log") -> list[Any]:
        """What a step has said while it ran: its `log` lines, its `chunk`s, or its `progress`."""
        return [
            _loads(body) for run_id, said_by, said, body in self._calls.said
            if (run_id, said_by, said) == (self.id, step_id, kind)
        ]  # fmt: skip

    # What is done to it.

    def signal(self, name: str, payload: Any = None) -> None:
        """Send it a signal: bytes as they are, anything else as JSON. Raises Invalid for a bad name."""
        check_target(self.id, name)
        self._calls.send_signal(self.id, name, payload if isinstance(payload, bytes) else as_json(payload))
        self._engine.settle()

    def approve(self, step_id: str | None = None, *, comment: str | None = None, by: str | None = None) -> None:
        """Approve what a step asks; without a name the one that does. Raises Conflict where none does, or several."""
        self._decide(ApprovalGranted, step_id, Decision(comment, by))

    def reject(self, step_id: str | None = None, *, comment: str | None = None, by: str | None = None) -> None:
        """Reject it. As `approve`."""
        self._decide(ApprovalRejected, step_id, Decision(comment, by))

    def cancel(self, reason: str | None = None, *, compensate: bool = False) -> None:
        """Cancel it; with `compensate` it undoes its steps first. Raises Conflict for a run that has ended."""
        self._check_open()
        event = WorkflowCancelled(run_id=self.id, timestamp=self._now, payload=Cancellation(reason, compensate))
        self._append(event)

    def pause(self, *, children: bool = False) -> None:
        """Let nothing new begin in it, with `children` in theirs. Raises Conflict for a run that has ended."""
        self._check_open()
        scope = PauseScope(children)
        self._append(WorkflowPaused(run_id=self.id, timestamp=self._now, payload=scope, v=PAUSE_FORMAT))

    def resume(self, *, children: bool = False) -> None:
        """Let it go on after `pause`. Raises Conflict for a run that has ended."""
        self._check_open()
        scope = PauseScope(children)
        self._append(WorkflowUnpaused(run_id=self.id, timestamp=self._now, payload=scope, v=PAUSE_FORMAT))

    def retry(self, step_id: str | None = None) -> None:
        """Let a failed run go on at the steps that failed. With the id of a step that waits for its next attempt, begin
        that now. Raises Conflict where the service refuses it, NotFound for another step."""
        if step_id is not None and self._run.status is not RunStatus.FAILED:
            self._append(by_hand.early_attempt(self._of, step_id, self._now))
        else:
            self._append(by_hand.resumption(self._of, self._now, self._parts.performer.last_dead_letter))

    def skip(self, step_id: str, output: Any = None) -> None:
        """Complete a step by hand, with this output; a failed run goes on. Raises NotFound, Conflict for a step that
        has completed, or whose dependencies have not."""
        letter = self._parts.performer.last_dead_letter
        for event in by_hand.completion(self._of, step_id, as_json(output), self._now, letter):
            self._engine.append(event, f"{self.id} {self._engine.seq}")
        self._engine.settle()

    @property
    def _now(self) -> str:
        return self._engine.timeline.stamp

    @property
    def _run(self) -> Run:
        return self._of.known

    def _append(self, event: Any) -> None:
        """Under an id of its own: a test may mean the same twice."""
        self._engine.append(event, f"{self.id} {self._engine.seq}")
        self._engine.settle()

    def _check_open(self) -> None:
        if self.ended:
            raise Conflict(f"the run is {self.status} already")

    def _decide(self, kind: type[ApprovalGranted | ApprovalRejected], step_id: str | None, decision: Decision) -> None:
        asking = self.asking
        wanted = step_id or (asking[0] if len(asking) == 1 else None)
        if wanted is None or wanted not in asking:
            said = f"steps that wait for an approval: {', '.join(map(quoted, asking)) or 'none'}"
            raise Conflict(f"{said}\n{self.history}" if step_id is None else f"{quoted(step_id)} does not; {said}")
        attempt = self._run.steps[wanted].attempts
        event = kind(run_id=self.id, step_id=wanted, timestamp=self._now, attempt_number=attempt, payload=decision)
        self._append(event)

    def _output(self) -> Raw:
        for record in reversed(self._of.records.values()):
            if isinstance(record.event, WorkflowCompleted) and not record.event.payload.output_bytes:
                return record.event.payload.output
        return whole(run_output(self._of.whole, self._run), self._of.event_at)

    def _output_of(self, step_id: str, step: StepState) -> Any:
        if step.status is not StepStatus.COMPLETED:
            return None
        place = self._run.element(step_id)
        if place is None:
            return _decoded(whole(own_output(step), self._of.event_at))
        found = payload_of(self._of.event_at(ended_seq(self._run, *place)))
        return _decoded(found) if isinstance(found, Raw) else None

    def _is_child_of(self, run_id: str) -> bool:
        parent = self._run.parent
        return isinstance(parent, ParentRef) and parent.run_id == run_id

    def _waits(self) -> str:
        """What it waits for, as far as that is a function that nobody has given."""
        missing = {task for _, task in self._parts.tasks.without_function(self.id)}
        return f"; no function is there for {', '.join(map(quoted, sorted(missing)))}" if missing else ""


def runs_of(parts: ServiceParts) -> list[TestRun]:
    """All runs, in the order of their starts."""
    return [TestRun(parts, of) for of in parts.engine.runs.values() if of.run is not None]


def _asks(step: StepState) -> bool:
    return step.status is StepStatus.RUNNING and step.token is not None and step.due is not None


def _decoded(value: Raw) -> Any:
    return orjson.loads(bytes(value))


def _loads(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return body


_ENDED = {RunStatus.FAILED: "has failed", RunStatus.CANCELLED: "was cancelled"}
