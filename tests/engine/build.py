"""A tiny language for telling a run's story: definitions from dicts, events from a few words, records with rising
sequences.

`Play` holds one run: every method tells it one event and returns what the engine ordered because of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import orjson
from msgspec import UNSET, Raw, UnsetType

from penstock.engine.fragments import expansion
from penstock.engine.run.advance import advance
from penstock.engine.run.commands import AppendEvent, BeginStep, Command, DispatchTask, ExpandPlan, StartChild
from penstock.engine.run.compiling import compile_workflow
from penstock.engine.run.event_payloads import (
    ApprovalRequest,
    Cancellation,
    Decision,
    Failure,
    ParentRef,
    PauseRef,
    PauseScope,
    Resumed,
    RunFailure,
    Scheduled,
    Started,
    TimerRef,
)
from penstock.engine.run.events import (
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRejected,
    ApprovalRequested,
    Event,
    Record,
    StepCompleted,
    StepContinue,
    StepFailed,
    StepPaused,
    StepStarted,
    TimerFired,
    WorkflowCancelled,
    WorkflowFailed,
    WorkflowPaused,
    WorkflowResumed,
    WorkflowScheduled,
    WorkflowStarted,
    WorkflowUnpaused,
    event_type,
)
from penstock.engine.run.execution.beginning import begin_step
from penstock.engine.run.execution.children import child_started
from penstock.engine.run.execution.fragments import is_planned
from penstock.engine.run.execution.inputs import output_of
from penstock.engine.run.expansion import expanded
from penstock.engine.run.payloads import Value
from penstock.engine.run.state import Run, StepState
from penstock.engine.run.workflow import Workflow
from penstock.engine.times import rfc3339
from penstock.engine.validation import parse
from penstock.testing.memory.payloads import payloads, whole

RUN_ID = "0198c0de" * 4
DIGEST = "d19e57" * 5
EPOCH = 1_000_000.0

C = TypeVar("C")


def step(step_id: str, *depends_on: str, **fields: object) -> dict[str, object]:
    """A step of the definition; its task type is its id in capitals unless `task` says otherwise."""
    return {"id": step_id, "task": step_id.upper(), "depends_on": list(depends_on), **fields}


def loop(step_id: str, *depends_on: str, config: Mapping[str, object], **fields: object) -> dict[str, object]:
    return step(step_id, *depends_on, type="agent_loop", config=config, **fields)


def approval(step_id: str, *depends_on: str, **fields: object) -> dict[str, object]:
    return {"id": step_id, "type": "approval", "depends_on": list(depends_on), **fields}


def skip_if(step_id: str, field: str, op: str, value: object) -> dict[str, object]:
    return {"step_id": step_id, "field": field, "op": op, "value": value}


def workflow(*steps: Mapping[str, object], **fields: object) -> Workflow:
    return compile_workflow(parse({"name": "w", "steps": list(steps), **fields}), DIGEST)


def raw(value: object) -> Raw:
    return Raw(json.dumps(value, separators=(",", ":")).encode())  # integers of any size, too


def value(found: Raw | UnsetType) -> object:
    """What a payload says; what is not there is no JSON value, so it stays UNSET."""
    return UNSET if isinstance(found, UnsetType) else orjson.loads(bytes(found))


def only(kind: type[C], commands: Iterable[Command]) -> list[C]:
    return [command for command in commands if isinstance(command, kind)]


def dispatched(commands: Iterable[Command]) -> list[tuple[str, int]]:
    """Step and attempt of every task ordered."""
    return [(command.step_id, command.attempt) for command in only(DispatchTask, commands)]


def dispatched_iterations(commands: Iterable[Command]) -> list[tuple[str, int, int]]:
    """Step, iteration and attempt of every task ordered."""
    return [(command.step_id, command.iteration, command.attempt) for command in only(DispatchTask, commands)]


def inputs(commands: Iterable[Command]) -> dict[str, object]:
    return {command.step_id: value(command.input) for command in only(DispatchTask, commands)}


def appended(commands: Iterable[Command]) -> list[str]:
    """The types of the events ordered."""
    return [event_type(command.event) for command in only(AppendEvent, commands)]


class Play:
    """One run of `workflow`. `now` is the broker's clock; `after` moves it on before the event is stored."""

    def __init__(self, workflow: Workflow, *, run_id: str = RUN_ID, history_age_s_max: float | None = None) -> None:
        self.workflow, self.run_id, self._age_s_max = workflow, run_id, history_age_s_max
        self.now = EPOCH
        self.parent: ParentRef | None = None
        self.log: list[Record] = []
        self._run: Run | None = None
        self._due: list[Event] = []

    @property
    def run(self) -> Run:
        assert self._run is not None, "nothing has been started"
        return self._run

    def step(self, step_id: str) -> StepState:
        return self.run.step(step_id)

    def statuses(self) -> dict[str, str]:
        return {step_id: step.status.value for step_id, step in self.run.steps.items()}

    def tell(self, event: Event, *, after: float = 0.0) -> list[Command]:
        self.now += after
        record = Record(len(self.log) + 1, self.now, event)
        self.log.append(record)
        self._run, commands = advance(self.workflow, self._run, record)
        self._due += [command.event for command in only(AppendEvent, commands)]
        return commands

    def carry_out(self, commands: Iterable[Command]) -> list[Command]:
        """Evaluate what begins steps, and append the events that follow, until nothing is left of it; returns every
        other command."""
        left: list[Command] = []
        ahead = list(commands)
        while ahead:
            match ahead.pop(0):
                case BeginStep() as command:
                    ahead = [*self._begun(command), *ahead]
                case ExpandPlan() as command:
                    ahead = [*self._expand(command), *ahead]
                case AppendEvent(event=event) if event.run_id == self.run_id:
                    ahead = [*self.tell(event), *ahead]
                case StartChild() as command:
                    left.append(command)
                    ahead = [*self.tell(child_started(self.run, command)), *ahead]
                case command:
                    left.append(command)
        return left

    def _expand(self, command: ExpandPlan) -> Sequence[Command]:
        if not is_planned(self.run, command):
            return []
        plan = self.whole(output_of(self.run, command.step_id))
        return self.tell(expansion(expanded(self.workflow, self.run), self.run, command, plan))

    def _begun(self, command: BeginStep) -> Sequence[Command]:
        workflow = expanded(self.workflow, self.run)
        plan = workflow.plan_of(command.step_id)
        assert plan is not None
        known = payloads(workflow, self.run, plan, self._at)
        return begin_step(workflow, self.run, command, known, history_age_s_max=self._age_s_max)

    def whole(self, found: Value) -> Raw:
        """The payload, from the log where the state does not have it."""
        return whole(found, self._at)

    def _at(self, seq: int) -> Event:
        return self.log[seq - 1].event

    def settle(self) -> list[Command]:
        """Append what the engine ordered to be appended, until nothing is left of it."""
        commands: list[Command] = []
        while self._due:
            commands += self.tell(self._due.pop(0))
        return commands

    def schedule(self, given: object = None, *, run_at: str = "2030-01-01T00:00:00Z") -> list[Command]:
        payload = Scheduled(*self._definition(), run_at=run_at, input=raw(given))
        return self.tell(WorkflowScheduled(run_id=self.run_id, timestamp=self._stamp(), payload=payload))

    def start(self, given: object = None, *, after: float = 0.0) -> list[Command]:
        payload = Started(*self._definition(), input=raw(given), parent=self.parent)
        return self.tell(
            WorkflowStarted(run_id=self.run_id, timestamp=self._stamp(after), payload=payload), after=after
        )

    def cancel(self, reason: str | None = None, *, compensate: bool = False) -> list[Command]:
        payload = Cancellation(reason, compensate)
        return self.tell(WorkflowCancelled(run_id=self.run_id, timestamp=self._stamp(), payload=payload))

    def pause_run(self, *, children: bool = False, after: float = 0.0) -> list[Command]:
        payload = PauseScope(children)
        return self.tell(
            WorkflowPaused(run_id=self.run_id, timestamp=self._stamp(after), payload=payload, v=2), after=after
        )

    def unpause_run(self, *, children: bool = False, after: float = 0.0) -> list[Command]:
        payload = PauseScope(children)
        return self.tell(
            WorkflowUnpaused(run_id=self.run_id, timestamp=self._stamp(after), payload=payload, v=2), after=after
        )

    def resume(self, *, after: float = 0.0, dead_letters: int = 0) -> list[Command]:
        payload = Resumed(dead_letters=dead_letters)
        return self.tell(
            WorkflowResumed(run_id=self.run_id, timestamp=self._stamp(after), payload=payload), after=after
        )

    def refuse(self, error: str = "too large", resumes: int = 0) -> list[Command]:
        """The shell says that the broker has refused what the run needs."""
        payload = RunFailure(error=error, resumes=resumes)
        return self.tell(WorkflowFailed(run_id=self.run_id, timestamp=self._stamp(), payload=payload))

    def begin(
        self,
        step_id: str,
        attempt: int | None = 1,
        *,
        iteration: int | None = None,
        worker: str | None = "one",
        delivery: int = 1,
        after: float = 0.0,
    ) -> list[Command]:
        """A worker says `step.started`."""
        answer = self._answer(step_id, attempt, iteration, after)
        return self.tell(StepStarted(**answer, worker_id=worker, delivery=delivery), after=after)

    def pause(self, step_id: str, attempt: int | None = 1, *, after: float = 0.0) -> list[Command]:
        """A worker says `step.paused`, of the first delivery."""
        answer = self._answer(step_id, attempt, None, after)
        return self.tell(StepPaused(**answer, payload=PauseRef(4000)), after=after)

    def complete(
        self,
        step_id: str,
        output: object = None,
        attempt: int | None = 1,
        *,
        iteration: int | None = None,
        worker: str | None = None,
        after: float = 0.0,
    ) -> list[Command]:
        payload = raw(output)
        return self.tell(
            StepCompleted(**self._answer(step_id, attempt, iteration, after), worker_id=worker, payload=payload),
            after=after,
        )

    def fail(
        self,
        step_id: str,
        attempt: int | None = 1,
        *,
        iteration: int | None = None,
        error: str = "boom",
        kind: str = "retriable",
        ms: int = 0,
        after: float = 0.0,
    ) -> list[Command]:
        failure = Failure(error=error, failure_type=kind, retry_after_ms=ms)
        return self.tell(StepFailed(**self._answer(step_id, attempt, iteration, after), payload=failure), after=after)

    def go_on(
        self,
        step_id: str,
        handed_on: object = None,
        attempt: int | None = 1,
        *,
        iteration: int | None = None,
        after: float = 0.0,
    ) -> list[Command]:
        """A worker says `step.continue`."""
        return self.tell(
            StepContinue(**self._answer(step_id, attempt, iteration, after), payload=raw(handed_on)), after=after
        )

    def ask(self, step_id: str, token: str = "secret", attempt: int | None = 1, *, after: float = 0.0) -> list[Command]:
        """The shell has made the token: `approval.requested`."""
        request = ApprovalRequest(token=token, expires_at="2030-01-01T00:00:00Z")
        return self.tell(ApprovalRequested(**self._answer(step_id, attempt, None, after), payload=request), after=after)

    def grant(
        self, step_id: str, attempt: int | None = 1, *, comment: str | None = None, by: str | None = None
    ) -> list[Command]:
        return self.tell(ApprovalGranted(**self._answer(step_id, attempt, None), payload=Decision(comment, by)))

    def reject(
        self, step_id: str, attempt: int | None = 1, *, comment: str | None = None, by: str | None = None
    ) -> list[Command]:
        return self.tell(ApprovalRejected(**self._answer(step_id, attempt, None), payload=Decision(comment, by)))

    def expire(self, step_id: str, attempt: int | None = 1) -> list[Command]:
        return self.tell(ApprovalExpired(**self._answer(step_id, attempt, None)))

    def fire(
        self, timer: str, step_id: str | None = None, attempt: int | None = None, *, after: float = 0.0
    ) -> list[Command]:
        ref = TimerRef(timer=timer, step_id=step_id, attempt=attempt)
        return self.tell(TimerFired(run_id=self.run_id, timestamp=self._stamp(after), payload=ref), after=after)

    def _answer(self, step_id: str, attempt: int | None, iteration: int | None, after: float = 0.0) -> dict[str, Any]:
        """The fields that all events of a step have."""
        return {
            "run_id": self.run_id,
            "timestamp": self._stamp(after),
            "step_id": step_id,
            "attempt_number": attempt,
            "iteration": iteration,
        }

    def _definition(self) -> tuple[str, str, str]:
        return self.workflow.name, self.workflow.version, self.workflow.digest

    def _stamp(self, after: float = 0.0) -> str:
        return rfc3339(self.now + after)


def started(definition: Workflow, given: object = None) -> Play:
    """A play whose run has just started."""
    play = Play(definition)
    play.start(given)
    return play
