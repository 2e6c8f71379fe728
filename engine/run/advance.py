"""The one function that changes a run: `advance(workflow, run, record) -> (run, commands)`.

Pure, total and idempotent. Duplicates, late arrivals and events that do not apply are normal input: no guard accepts
them, and the run is returned unchanged, without commands. `fold` is the same function with the commands dropped. This
file has the one `match` over all events, and what happens to a run as a whole; the kind of a step (kinds/) decides what
happens to the step, by the functions in steps.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from msgspec import UnsetType
from msgspec.structs import replace

from penstock.engine.definition.durations import text
from penstock.engine.expressions.places import WHEN
from penstock.engine.run.commands import Command, WithdrawTimer
from penstock.engine.run.control.overriding import override
from penstock.engine.run.control.pausing import fold_paused, pause, unpause_children
from penstock.engine.run.control.taking_over import take_over, take_plan, taken_over
from penstock.engine.run.event_payloads import NULL, Cancellation, PauseScope, Started
from penstock.engine.run.events import (
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRejected,
    ApprovalRequested,
    ChildEnded,
    EventReceived,
    LimitGranted,
    LimitRefused,
    PlannerExpanded,
    Record,
    SignalReceived,
    StepCompleted,
    StepContinue,
    StepFailed,
    StepOverridden,
    StepPaused,
    StepSkipped,
    StepStarted,
    StepTakenOver,
    TimerFired,
    WorkflowCancelled,
    WorkflowCompensating,
    WorkflowCompleted,
    WorkflowFailed,
    WorkflowPaused,
    WorkflowRemoved,
    WorkflowResumed,
    WorkflowScheduled,
    WorkflowStarted,
    WorkflowUnpaused,
)
from penstock.engine.run.execution.cancelling import begun_in_vain
from penstock.engine.run.execution.compensation import announced, compensate, fail, has_work, is_end, waited_out
from penstock.engine.run.execution.deliveries import ANSWERS, both, in_time, short_step, start_in
from penstock.engine.run.execution.ending import end
from penstock.engine.run.execution.failure_runs import failure_run
from penstock.engine.run.execution.steps import (
    all_done,
    is_ready,
    skipped,
)
from penstock.engine.run.expansion import expanded
from penstock.engine.run.payloads import inline_or_ref, payload_of
from penstock.engine.run.slots.holding import with_slots
from penstock.engine.run.slots.starting import completed_later, resume_or_wait, start
from penstock.engine.run.state import Run, RunStatus, StepState, StepStatus
from penstock.engine.run.timers import fired_timer, workflow_timer_name
from penstock.engine.run.workflow import Advance, StepEvent, StepPlan, Workflow
from penstock.engine.times import utc

WITH_SLOTS = frozenset({LimitGranted, LimitRefused, PlannerExpanded})  # also where the definition has no limits
CANCELLABLE = frozenset({RunStatus.RUNNING, RunStatus.SCHEDULED, RunStatus.PENDING})


def advance(workflow: Workflow, run: Run | None, record: Record) -> tuple[Run | None, list[Command]]:
    """Fold one record into the run, and return the new state and the commands that follow.

    `run` is None before the first event of the run.
    """
    written = record.event.timestamp
    instant = utc(written, record.at)  # depends on the record only, so that each fold gives the same
    if instant is not written:
        record = Record(record.seq, record.at, replace(record.event, timestamp=instant))
    event = record.event
    if run is None:
        match event:
            case WorkflowScheduled():
                return _scheduled(workflow, event, record), []
            case WorkflowStarted():
                new = _new(workflow, event, record)
                return with_slots(workflow, new, record, start) if workflow.slots_used else start(workflow, new, record)
            case _:
                return None, []
    if record.seq <= run.seq:
        return run, []
    if type(event) in ANSWERS and event.started_at is not None:  # type: ignore[union-attr]
        short = short_step(workflow, run, record, event) if type(event) is StepCompleted else None
        return short or _begun_and_answered(workflow, run, record)
    return _of_known(workflow, run, record)


def _begun_and_answered(workflow: Workflow, run: Run, record: Record) -> Advance:
    """An answer that says itself when the worker began is folded as the start, and the answer behind it."""
    start = start_in(record)
    begun, commands = _of_known(workflow, run, start)
    if begun is run:  # of an execution that is over, or was begun before: nothing is to be said to its worker
        return _of_known(workflow, run, record)
    answer = in_time(expanded(workflow, begun), run, start, record)
    after, following = _of_known(workflow, begun, answer)
    return after, both(commands, following)


def _of_known(workflow: Workflow, run: Run, record: Record) -> Advance:
    if run.fragments:
        workflow = expanded(workflow, run)
    if workflow.slots_used or type(record.event) in WITH_SLOTS:
        return with_slots(workflow, run, record, _paused_or_not)
    return _paused_or_not(workflow, run, record)


def _paused_or_not(workflow: Workflow, run: Run, record: Record) -> Advance:
    if run.pause is not None:
        return fold_paused(workflow, run, record, _folded)
    return _folded(workflow, run, record)


def _folded(workflow: Workflow, run: Run, record: Record) -> Advance:
    event = record.event
    match event:
        case StepStarted() | StepCompleted() if run.status is RunStatus.RUNNING:  # first, as most events are
            return _step_event(workflow, run, record, event)
        case WorkflowCompleted() if run.status is RunStatus.RUNNING and all_done(workflow, run):
            return end(workflow, run, record, RunStatus.COMPLETED, None)
        case WorkflowStarted() if run.status is RunStatus.SCHEDULED:
            return start(workflow, run, record)
        case WorkflowCancelled() if run.status in CANCELLABLE:
            return _cancel(workflow, run, record, event.payload)
        case WorkflowPaused() if run.pause is None and not run.ended:
            return pause(workflow, run, record, event)
        case WorkflowUnpaused(payload=PauseScope(children=True)) if run.status is RunStatus.RUNNING:
            return unpause_children(workflow, run, record)
        case _ if run.status is RunStatus.COMPENSATING:
            return _while_compensating(workflow, run, record)
        case WorkflowResumed() if run.status is RunStatus.FAILED and run.compensation is None and not run.removed:
            return resume_or_wait(workflow, run, record, event.payload)
        case _ if run.status is RunStatus.PENDING:
            return _while_pending(workflow, run, record)
        case _ if run.status is not RunStatus.RUNNING:
            return _after_the_end(workflow, run, record)
        case StepTakenOver():
            return take_over(workflow, run, record, event)
        case StepOverridden():
            return override(workflow, run, record, event)
        case PlannerExpanded() if run.taking is not None:
            return take_plan(workflow, run, record, event), []
        case (
            StepStarted() | StepPaused() | StepCompleted() | StepFailed() | StepContinue() | StepSkipped()
            | ApprovalRequested() | ApprovalGranted() | ApprovalRejected() | ApprovalExpired() | ChildEnded()
            | EventReceived()
            | PlannerExpanded()
        ):  # fmt: skip
            return _step_event(workflow, run, record, event)
        case TimerFired():
            return _timer_fired(workflow, run, record, event)
        case WorkflowFailed() if event.payload.resumes == run.resumes:
            failure = event.payload
            if has_work(workflow, run):
                return compensate(workflow, run, record, RunStatus.FAILED, failure.error, failure.step_id)
            return _fail(workflow, run, record, failure.error)
        case (
            WorkflowScheduled() | WorkflowStarted() | WorkflowCancelled() | WorkflowCompensating() | WorkflowResumed()
            | WorkflowPaused() | WorkflowUnpaused() | WorkflowCompleted() | WorkflowFailed() | WorkflowRemoved()
            | SignalReceived() | LimitGranted() | LimitRefused()
        ):  # fmt: skip
            return run, []
        case _:
            assert_never(event)


def fold(workflow: Workflow, run: Run | None, records: Iterable[Record]) -> Run | None:
    """The state after these records. Commands are dropped."""
    for record in records:
        run, _ = advance(workflow, run, record)
    return run


def _cancel(workflow: Workflow, run: Run, record: Record, wanted: Cancellation) -> Advance:
    if wanted.compensate and run.status is RunStatus.RUNNING and has_work(workflow, run):
        return compensate(workflow, run, record, RunStatus.CANCELLED, wanted.reason)
    return end(workflow, run, record, RunStatus.CANCELLED, wanted.reason, compensate=wanted.compensate)


def _fail(workflow: Workflow, run: Run, record: Record, error: str) -> Advance:
    following = failure_run(workflow, run, record)
    run, commands = end(workflow, run, record, RunStatus.FAILED, error)
    return run, [*commands, *following]


def _while_pending(workflow: Workflow, run: Run, record: Record) -> Advance:
    """The run waits for its slots. It fails where its limits cannot be worked out."""
    match record.event:
        case WorkflowFailed(payload=failure) if failure.resumes == run.resumes:
            return _fail(workflow, run, record, failure.error)
        case StepOverridden() as event:
            return completed_later(run, record, event), []
        case StepTakenOver() as event:
            return taken_over(workflow, run, record, event), []
        case PlannerExpanded() as event:
            return take_plan(workflow, run, record, event), []
        case event:
            return run, begun_in_vain(workflow, run, event)


def _after_the_end(workflow: Workflow, run: Run, record: Record) -> Advance:
    """The run is not running: what comes now is late, or removes it."""
    event = record.event
    if isinstance(event, WorkflowRemoved) and run.ended and not run.removed:
        return replace(run, removed=True, seq=record.seq), []
    return run, begun_in_vain(workflow, run, event)


def _while_compensating(workflow: Workflow, run: Run, record: Record) -> Advance:
    """The run undoes its steps: what undoes them goes on, and steps that were running may end."""
    event = record.event
    match event:
        case WorkflowCompensating():
            return announced(run, record), []
        case WorkflowFailed() if is_end(run, event):
            return _fail(workflow, run, record, event.payload.error)
        case WorkflowCancelled() if is_end(run, event):
            return end(workflow, run, record, RunStatus.CANCELLED, event.payload.reason)
        case TimerFired():
            return _timer_fired(workflow, run, record, event)
        case (
            StepStarted() | StepPaused() | StepCompleted() | StepFailed() | StepContinue() | ChildEnded()
        ):  # fmt: skip
            step, plan = run.find(event.step_id), workflow.plan_of(event.step_id)
            if step is None or plan is None:
                return run, []
            take = plan.kind.take_late if plan.handles is None else plan.kind.take_event
            return take(workflow, run, record, event, plan)
        case _:
            return run, []


def _scheduled(workflow: Workflow, event: WorkflowScheduled, record: Record) -> Run:
    value, input_at = inline_or_ref(payload_of(event), record.seq)
    return Run(
        run_id=event.run_id,
        workflow_id=workflow.name,
        version=workflow.version,
        digest=workflow.digest,
        status=RunStatus.SCHEDULED,
        created_at=event.timestamp,
        seq=record.seq,
        input=NULL if isinstance(value, UnsetType) else value,
        steps=workflow.waiting,
        run_at=event.payload.run_at,
        labels=event.payload.labels,
        trace_parent=event.trace_parent,
        input_at=input_at,
    )


def _new(workflow: Workflow, event: WorkflowStarted, record: Record) -> Run:
    started_: Started = event.payload
    value, input_at = inline_or_ref(payload_of(event), record.seq)
    return Run(
        run_id=event.run_id,
        workflow_id=workflow.name,
        version=workflow.version,
        digest=workflow.digest,
        status=RunStatus.PENDING,
        created_at=event.timestamp,
        seq=record.seq,
        input=NULL if isinstance(value, UnsetType) else value,
        steps=workflow.waiting,
        parent=started_.parent,
        failure_of=started_.failure_of,
        rerun_of=started_.rerun_of,
        rerun_from=started_.rerun_from,
        trigger=started_.trigger,
        labels=started_.labels,
        trace_parent=event.trace_parent,
        input_at=input_at,
        under=started_.under,
    )


def _step_event(workflow: Workflow, run: Run, record: Record, event: StepEvent) -> Advance:
    step, plan = run.find(event.step_id), workflow.plan_of(event.step_id)
    if step is None or plan is None or run.taking is not None:
        return run, []
    match event:
        case StepSkipped():
            return skipped(workflow, run, record, plan) if _may_be_skipped(run, step, plan, event) else (run, [])
        case _:
            return plan.kind.take_event(workflow, run, record, event, plan)


def _may_be_skipped(run: Run, step: StepState, plan: StepPlan, event: StepSkipped) -> bool:
    """A step whose `skip_if` holds has not been ordered; one with `when` has, to be evaluated."""
    if step.status is StepStatus.PENDING:
        return is_ready(run, plan)
    evaluated = step.status is StepStatus.QUEUED and WHEN.path in plan.expressions
    return evaluated and event.attempt_number in (None, step.attempts)


def _timer_fired(workflow: Workflow, run: Run, record: Record, event: TimerFired) -> Advance:
    fired = event.payload
    if run.failing:
        return run, []
    if fired.timer == workflow_timer_name(run):
        is_due = run.status is RunStatus.RUNNING and (fired.attempt or 0) == run.resumes
        return _out_of_time(workflow, run, record) if is_due else (run, [])
    step, plan = run.find(fired.step_id or ""), workflow.plan_of(fired.step_id or "")
    if step is None or plan is None:
        return run, []
    timer = fired_timer(run, plan.id, step, fired)
    if timer is None:
        return run, []
    if run.status is RunStatus.COMPENSATING and plan.handles is None:
        return waited_out(workflow, run, record, plan, timer)
    after, commands = plan.kind.take_timer(workflow, run, record, plan, timer)
    if fired.early and step.due is not None:  # its time is still to come
        commands = [WithdrawTimer(fired.timer, step.due), *commands]
    return after, commands


def _out_of_time(workflow: Workflow, run: Run, record: Record) -> Advance:
    if run.due is None or all_done(workflow, run):  # all steps are done; workflow.completed is not in the log yet
        return run, []
    error = f"workflow timeout exceeded ({text(workflow.timeout_s or 0)})"
    return fail(workflow, replace(run, due=None, seq=record.seq), record, error)
