"""Carries out the commands that `advance` orders, in memory. What each of them does is what the service's engine does
for it; here nothing gets lost, unless a test says so."""

from __future__ import annotations

from typing import assert_never

from msgspec import Raw, Struct
from msgspec.structs import replace

from penstock.broker import message_ids
from penstock.engine.errors import ExpressionFailed, Invalid, NotFound, TooLarge
from penstock.engine.fragments import expansion
from penstock.engine.run.commands import (
    AppendEvent,
    AwaitEvent,
    BeginStep,
    BindWorker,
    CancelChild,
    CancelTask,
    Command,
    CompleteRun,
    DeadLetterTask,
    DispatchTask,
    ExpandPlan,
    OpenApproval,
    PauseChild,
    ReleaseSlot,
    RemoveDeadLetters,
    RequestApproval,
    RequestSlot,
    SetTimer,
    StartChild,
    StartFailureRun,
    StopWaiting,
    TakeOver,
    WithdrawQueued,
    WithdrawSticky,
    WithdrawTask,
    WithdrawTimer,
)
from penstock.engine.run.event_payloads import ApprovalRequest, RunFailure, TimerRef
from penstock.engine.run.events import ApprovalRequested, TimerFired, WorkflowFailed, event_type
from penstock.engine.run.execution.beginning import begin_step, given_input
from penstock.engine.run.execution.children import (
    check_start,
    child_cancelled,
    child_paused,
    child_refused,
    child_run_id,
    child_start,
    child_started,
)
from penstock.engine.run.execution.failure_runs import failure_run_start, failure_start
from penstock.engine.run.execution.fragments import is_planned
from penstock.engine.run.execution.inputs import output_of
from penstock.engine.times import rfc3339
from penstock.testing.memory.engine import EngineInMemory, RunInMemory
from penstock.testing.memory.limits import LimitsInMemory
from penstock.testing.memory.payloads import payloads, whole
from penstock.testing.memory.tasks import TasksInMemory
from penstock.testing.memory.timeline import DueAction
from penstock.testing.memory.waits import WaitsInMemory


class FailedTask(Struct, frozen=True):
    """A dead letter: a task that failed for good. `input` is JSON, `seq` counts dead letters."""

    seq: int
    run_id: str
    step_id: str
    task: str
    attempt: int
    error: str
    input: Raw


class Performer:
    """Owned by a service in memory."""

    def __init__(
        self, engine: EngineInMemory, tasks: TasksInMemory, waits: WaitsInMemory, limits: LimitsInMemory
    ) -> None:
        self._engine, self._tasks, self._waits, self._limits = engine, tasks, waits, limits
        self._timers: dict[tuple[str, str], DueAction] = {}
        self._tokens = 0
        self._dead_letter_seq = 0
        self.dead_letters: list[FailedTask] = []
        self.bound: dict[str, str] = {}
        self.refused_failure_runs: list[str] = []

    @property
    def last_dead_letter(self) -> int:
        """The sequence of the newest one that there ever was."""
        return self._dead_letter_seq

    def perform(self, of: RunInMemory, command: Command) -> None:
        """Carry out a command. What can never be carried out fails the run."""
        try:
            self._perform(of, command)
        except (TooLarge, NotFound, Invalid) as error:
            run = of.known
            failure = RunFailure(error=f"the run cannot go on: {error}", resumes=run.resumes)
            self._engine.append(WorkflowFailed(run_id=run.run_id, timestamp=self._now, payload=failure))

    @property
    def _now(self) -> str:
        return self._engine.timeline.stamp

    def _perform(self, of: RunInMemory, command: Command) -> None:
        run = of.known
        match command:
            case DispatchTask():
                self._tasks.dispatch(of, replace(command, input=whole(command.input, of.event_at)))
            case BeginStep():
                self._begin(of, command)
            case AppendEvent():
                self._engine.append(command.event)
            case CompleteRun():
                output = whole(command.output, of.event_at)
                self._engine.append(replace(command.event, payload=replace(command.event.payload, output=output)))
            case SetTimer():
                self._set_timer(run.run_id, command)
            case WithdrawTimer():
                self._drop_timer(run.run_id, command.timer)
            case StartChild():
                self._start_child(of, command)
            case CancelChild():
                cancelled = child_cancelled(run, command, self._engine.timeline.now)
                self._engine.append(cancelled, message_ids.of_parents_cancellation(cancelled.run_id))
            case PauseChild():
                paused = child_paused(run, command, self._engine.timeline.now)
                message_id = message_ids.of_parents_pause(paused.run_id, event_type(paused), command.seq)
                self._engine.append(paused, message_id)
            case StartFailureRun():
                self._start_failure_run(of, command)
            case ExpandPlan():
                if is_planned(run, command):
                    plan = whole(output_of(run, command.step_id), of.event_at)
                    message_id = message_ids.of_checked_plan(run.run_id, command.step_id, command.attempt)
                    self._engine.append(expansion(of.whole, run, command, plan), message_id)
            case CancelTask():
                self._tasks.cancel(run.run_id, command)
            case WithdrawTask():
                self._tasks.withdraw(run.run_id, command)
            case WithdrawQueued():
                self._tasks.withdraw_queued(run.run_id, command)
            case WithdrawSticky():
                self._tasks.withdraw_sticky(run.run_id, command)
            case BindWorker():
                self.bound[run.run_id] = command.worker_id
            case DeadLetterTask():
                self._dead_letter(of, command)
            case RemoveDeadLetters():
                about = (run.run_id, command.step_id, command.task)
                self.dead_letters = [
                    one
                    for one in self.dead_letters
                    if (one.run_id, one.step_id, one.task) != about or one.seq > command.up_to_seq
                ]
            case RequestApproval():
                self._engine.append(self._approval(of, command))
            case OpenApproval():
                pass  # the token is in the history, where who decides reads it
            case AwaitEvent():
                self._waits.begin(of, command)
            case StopWaiting():
                self._waits.end(run.run_id, command)
            case RequestSlot():
                self._limits.request(of, command)
            case ReleaseSlot():
                self._limits.release(of, command)
            case TakeOver():
                raise AssertionError("nothing here starts a run that takes over steps")
            case _:
                assert_never(command)

    def _begin(self, of: RunInMemory, command: BeginStep) -> None:
        workflow, run = of.whole, of.known
        plan = workflow.plan_of(command.step_id)
        assert plan is not None, "the step is there"
        for following in begin_step(workflow, run, command, payloads(workflow, run, plan, of.event_at)):
            again = command.again if isinstance(following, DispatchTask) else 0
            self._perform(of, replace(following, again=again) if again else following)

    def _set_timer(self, run_id: str, command: SetTimer) -> None:
        self._drop_timer(run_id, command.timer)

        def fire() -> None:
            del self._timers[run_id, command.timer]
            ref = TimerRef(timer=command.timer, step_id=command.step_id, attempt=command.attempt)
            self._engine.append(TimerFired(run_id=run_id, timestamp=rfc3339(command.due), payload=ref))

        self._timers[run_id, command.timer] = self._engine.timeline.at(command.due, fire)

    def _drop_timer(self, run_id: str, timer: str) -> None:
        if (planned := self._timers.pop((run_id, timer), None)) is not None:
            planned.drop()

    def _start_child(self, of: RunInMemory, command: StartChild) -> None:
        run, catalog = of.known, self._engine.catalog
        child = child_run_id(run.run_id, command.step_id, command.attempt)
        if child not in self._engine.runs:  # else it was cancelled before, or has begun
            try:
                check_start(run, command)
                of_child = (
                    catalog.latest(command.workflow)
                    if command.version is None
                    else catalog.version(command.workflow, command.version)
                )
                now, schema = self._engine.timeline.now, of_child.schema
                started = child_start(run, command, of_child.definition, of_child.digest, schema, now)
            except (Invalid, NotFound, TooLarge) as error:
                self._engine.append(child_refused(run, command, str(error)))
                return
            self._engine.append(started)
        self._engine.append(child_started(run, command))

    def _start_failure_run(self, of: RunInMemory, command: StartFailureRun) -> None:
        workflow, run, now = of.whole, of.known, self._engine.timeline.now
        assert workflow.on_failure is not None
        try:
            given = whole(run.input if run.input_at is None else run.input_at, of.event_at)
            value, labels = failure_start(workflow, run, command, given)
            found = self._engine.catalog.latest(workflow.on_failure.workflow)
            started = failure_run_start(
                run, command.resumes, found.definition, found.digest, found.schema, value, labels, now
            )
            if started.run_id not in self._engine.runs:
                self._engine.append(started)
        except (ExpressionFailed, NotFound, TooLarge, Invalid) as error:
            self.refused_failure_runs.append(f"run {run.run_id}: {error}")

    def _approval(self, of: RunInMemory, command: RequestApproval) -> ApprovalRequested:
        self._tokens += 1
        request = ApprovalRequest(
            token=f"{self._tokens:064x}",
            expires_at=rfc3339(command.expires),
            subject=command.subject,
            description=command.description,
            metadata=command.metadata,
        )
        return ApprovalRequested(
            run_id=of.run_id,
            step_id=command.step_id,
            timestamp=self._now,
            attempt_number=command.attempt,
            payload=request,
        )

    def _dead_letter(self, of: RunInMemory, command: DeadLetterTask) -> None:
        error = command.error
        try:
            if command.evaluate:
                plan = of.whole.plan_of(command.step_id)
                assert plan is not None, "the step is there"
                values = payloads(of.whole, of.known, plan, of.event_at)
                value = whole(given_input(of.whole, of.known, plan, values), of.event_at)
            else:
                value = whole(command.input, of.event_at)
        except ExpressionFailed as failed:
            value, error = Raw(b"null"), f"{error} (its input is not kept here: {failed})"
        self._dead_letter_seq += 1
        self.dead_letters.append(
            FailedTask(self._dead_letter_seq, of.run_id, command.step_id, command.task, command.attempt, error, value)
        )
