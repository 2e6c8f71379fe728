"""The one function that changes a run: `advance(workflow, run, record) -> (run, commands)`.

Pure, total and idempotent. Duplicates, late arrivals and events that do not apply are normal input: no guard accepts
them, and the run is returned unchanged, without commands. `fold` is the same function with the commands dropped. This
file has the one `match` over all events, and what happens to a run as a whole; the kind of a step (kinds/) decides what
happens to the step, by the functions in steps.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

from msgspec import UnsetType
from msgspec.structs import replace

from penstock.engine.definition.durations import text
from penstock.engine.expressions.places import WHEN
from penstock.engine.run.commands import (
    AppendEvent,
    AwaitEvent,
    BeginStep,
    BindWorker,
    CancelChild,
    Command,
    CompleteRun,
    DeadLetterTask,
    DispatchTask,
    ExpandPlan,
    OpenApproval,
    RemoveDeadLetters,
    RequestApproval,
    SetTimer,
    StartChild,
    StartFailureRun,
    StopWaiting,
    WithdrawSticky,
    WithdrawTask,
    WithdrawTimer,
)
from penstock.engine.run.events import (
    NULL,
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRejected,
    ApprovalRequested,
    Cancellation,
    ChildEnded,
    EventReceived,
    PlannerExpanded,
    Record,
    SignalReceived,
    Started,
    StepCompleted,
    StepContinue,
    StepFailed,
    StepPaused,
    StepSkipped,
    StepStarted,
    TimerFired,
    WorkflowCancelled,
    WorkflowCompensating,
    WorkflowCompleted,
    WorkflowFailed,
    WorkflowResumed,
    WorkflowScheduled,
    WorkflowStarted,
)
from penstock.engine.run.execution.beginning import is_due
from penstock.engine.run.execution.compensation import announced, compensate, fail, has_work, is_end, waited_out
from penstock.engine.run.execution.ending import end
from penstock.engine.run.execution.failure_runs import failure_run
from penstock.engine.run.execution.fragments import is_planned
from penstock.engine.run.execution.steps import (
    all_done,
    complete_run,
    enter,
    is_ready,
    skipped,
)
from penstock.engine.run.expansion import expanded
from penstock.engine.run.items import ItemStatus
from penstock.engine.run.payloads import inline_or_ref, payload_of
from penstock.engine.run.state import STEP_DONE, STEP_OUT, Run, RunStatus, StepState, StepStatus
from penstock.engine.run.timers import WORKFLOW_TIMER, fired_timer, live_timers, workflow_timer
from penstock.engine.run.workflow import Advance, StepEvent, StepPlan, Workflow
from penstock.engine.times import utc


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
                return _start(workflow, _new(workflow, event, record), record)
            case _:
                return None, []
    if record.seq <= run.seq:
        return run, []
    if run.fragments:
        workflow = expanded(workflow, run)
    match event:
        case WorkflowStarted() if run.status is RunStatus.SCHEDULED:
            return _start(workflow, run, record)
        case WorkflowCancelled() if run.status in (RunStatus.RUNNING, RunStatus.SCHEDULED):
            return _cancel(workflow, run, record, event.payload)
        case _ if run.status is RunStatus.COMPENSATING:
            return _while_compensating(workflow, run, record)
        case WorkflowResumed() if run.status is RunStatus.FAILED and run.compensation is None:
            return _resume(workflow, run, record, event.payload.dead_letters)
        case _ if run.status is not RunStatus.RUNNING:
            return run, []
        case (
            StepStarted() | StepPaused() | StepCompleted() | StepFailed() | StepContinue() | StepSkipped()
            | ApprovalRequested() | ApprovalGranted() | ApprovalRejected() | ApprovalExpired() | ChildEnded()
            | EventReceived()
            | PlannerExpanded()
        ):  # fmt: skip
            return _step_event(workflow, run, record, event)
        case TimerFired():
            return _timer_fired(workflow, run, record, event)
        case WorkflowCompleted() if all_done(workflow, run):
            return end(workflow, run, record, RunStatus.COMPLETED, None)
        case WorkflowFailed() if event.payload.resumes == run.resumes:
            failure = event.payload
            if has_work(workflow, run):
                return compensate(workflow, run, record, RunStatus.FAILED, failure.error, failure.step_id)
            return _fail(workflow, run, record, failure.error)
        case (
            WorkflowScheduled() | WorkflowStarted() | WorkflowCancelled() | WorkflowCompensating() | WorkflowResumed()
            | WorkflowCompleted() | WorkflowFailed() | SignalReceived()
        ):  # fmt: skip
            return run, []
        case _:
            assert_never(event)


def fold(workflow: Workflow, run: Run | None, records: Iterable[Record]) -> Run | None:
    """The state after these records. Commands are dropped."""
    for record in records:
        run, _ = advance(workflow, run, record)
    return run


def still_due(run: Run, command: Command) -> bool:
    """Whether a command of an earlier record is still wanted in this later state of the run."""
    match command:
        case WithdrawTask(of_step=str() as step_id) if (
            run.status is RunStatus.COMPENSATING or run.steps[step_id].status not in STEP_OUT
        ):
            return True
        case WithdrawTask():  # else it would withdraw what a resumed run has ordered since
            return run.ended or run.failing
        case DeadLetterTask():
            step = run.step(command.step_id)
            return (step.status, step.attempts, step.iteration) == (
                StepStatus.FAILED,
                command.attempt,
                command.iteration,
            )
        case (
            WithdrawTimer() | WithdrawSticky() | RemoveDeadLetters() | CancelChild() | StopWaiting() | StartFailureRun()
        ):  # fmt: skip
            return True
        case AppendEvent(event=ChildEnded()):  # to another run
            return True
        case _ if run.ended:
            return False
        case DispatchTask():
            return _is_wanted(run, command)
        case BeginStep():
            return is_due(run, run.step(command.step_id), command)
        case ExpandPlan():
            return is_planned(run, command)
        case RequestApproval() | StartChild():
            step = run.step(command.step_id)
            return (step.status, step.attempts) == (StepStatus.QUEUED, command.attempt) and not run.failing
        case OpenApproval():
            step = run.step(command.step_id)
            return (step.status, step.attempts) == (StepStatus.RUNNING, command.attempt)
        case AwaitEvent():
            step = run.step(command.step_id)
            return (step.status, step.attempts) == (StepStatus.RUNNING, command.attempt) and not run.failing
        case SetTimer():
            return command in live_timers(run)
        case BindWorker():
            return run.bound == command.worker_id
        case AppendEvent(event=WorkflowFailed() as event):
            return event.payload.resumes == run.resumes
        case AppendEvent(event=WorkflowCompensating()):
            return run.status is RunStatus.COMPENSATING
        case AppendEvent() | CompleteRun():
            return True
        case _:
            assert_never(command)


def _is_wanted(run: Run, task: DispatchTask) -> bool:
    """Whether no worker has begun the task. A task for any worker may also replace one that the bound worker began:
    that one's own copy was withdrawn when the wait for it ended."""
    step = run.step(task.step_id)
    if run.failing or (step.attempts, step.iteration, step.sticky) != (
        task.attempt,
        task.iteration,
        task.worker,
    ):
        return False
    replaces = task.worker is None and run.bound is not None and step.worker_id == run.bound
    return step.status is StepStatus.QUEUED or (step.status is StepStatus.RUNNING and replaces)


def _cancel(workflow: Workflow, run: Run, record: Record, wanted: Cancellation) -> Advance:
    if wanted.compensate and run.status is RunStatus.RUNNING and has_work(workflow, run):
        return compensate(workflow, run, record, RunStatus.CANCELLED, wanted.reason)
    return end(workflow, run, record, RunStatus.CANCELLED, wanted.reason, compensate=wanted.compensate)


def _fail(workflow: Workflow, run: Run, record: Record, error: str) -> Advance:
    following = failure_run(workflow, run, record)
    run, commands = end(workflow, run, record, RunStatus.FAILED, error)
    return run, [*commands, *following]


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
        trigger=started_.trigger,
        trace_parent=event.trace_parent,
        input_at=input_at,
    )


def _start(workflow: Workflow, run: Run, record: Record) -> Advance:
    run = replace(run, status=RunStatus.RUNNING, started_at=record.event.timestamp, seq=record.seq)
    run, timers = _timed(workflow, run, record)
    run, commands = enter(workflow, run, workflow.roots, record)
    return run, timers + commands


def _resume(workflow: Workflow, run: Run, record: Record, dead_letters: int) -> Advance:
    """A failed run continues: failed and cancelled steps begin again, with a new timeout of the run and new retries. A
    step whose handler has not completed begins again itself."""
    removals = _removals(workflow, run, dead_letters)
    steps = {
        step_id: step if step.status in STEP_DONE else _reset(step, step_id in run.fragments)
        for step_id, step in run.steps.items()
    }
    run = replace(
        run,
        status=RunStatus.RUNNING,
        steps=steps,
        error=None,
        finished_at=None,
        resumes=run.resumes + 1,
        seq=record.seq,
    )
    if all_done(workflow, run):
        return run, [complete_run(workflow, run, record)]
    run, timers = _timed(workflow, run, record)
    ready = [
        step_id
        for step_id, step in steps.items()
        if step.status is StepStatus.PENDING and is_ready(run, workflow.steps[step_id])
    ]  # no handler is pending
    run, commands = enter(workflow, run, ready, record)
    return run, removals + timers + commands


def _removals(workflow: Workflow, run: Run, up_to: int) -> list[Command]:
    """Remove the dead letters of the failed steps. The process that resumed the run also removes them before it
    answers, but it may have died before that."""
    if up_to <= 0:
        return []
    return [RemoveDeadLetters(step_id, task, up_to) for step_id, task in _failed(workflow, run)]


def _failed(workflow: Workflow, run: Run) -> Iterator[tuple[str, str]]:
    """The steps that have failed, and the elements of maps that begin again, with their task types."""
    for step_id, step in run.steps.items():
        plan = workflow.plan_of(step_id)
        if plan is None:
            continue
        if step.status is StepStatus.FAILED:
            yield step_id, plan.task
        if step.items is not None and step.status not in STEP_DONE and plan.each is not None:
            failed = (n for n, element in step.items.numbered() if element.status == ItemStatus.FAILED)
            yield from ((f"{step_id}.{n}", plan.each.task) for n in failed)


def _timed(workflow: Workflow, run: Run, record: Record) -> Advance:
    if workflow.timeout_s is None:
        return run, []
    due = record.at + workflow.timeout_s
    return replace(run, due=due), [workflow_timer(run, due)]


def _reset(step: StepState, expanded_: bool) -> StepState:
    if expanded_:  # a planner whose plan is being carried out: it goes on with that
        return replace(step, status=StepStatus.RUNNING, finished_at=None)
    unbegun = step.unbegun + step.ended_in_queue
    if step.handles is not None:  # it begins anew when its step has failed for good again
        attempts = step.attempts
        return StepState(StepStatus.CANCELLED, attempts, base=attempts, unbegun=unbegun, handles=step.handles)
    return StepState(
        attempts=step.attempts,
        iteration=step.iteration,
        carried=step.carried,
        carried_at=step.carried_at,
        unbegun=unbegun,
        items=None if step.items is None else step.items.afresh(),
        waits_for=step.waits_for,
    )


def _step_event(workflow: Workflow, run: Run, record: Record, event: StepEvent) -> Advance:
    step, plan = run.find(event.step_id), workflow.plan_of(event.step_id)
    if step is None or plan is None:
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
    if fired.timer == WORKFLOW_TIMER:
        is_due = run.status is RunStatus.RUNNING and (fired.attempt or 0) == run.resumes
        return _out_of_time(workflow, run, record) if is_due else (run, [])
    step, plan = run.find(fired.step_id or ""), workflow.plan_of(fired.step_id or "")
    if step is None or plan is None:
        return run, []
    timer = fired_timer(run, plan.id, step, fired)
    if timer is None:
        return run, []
    if run.status is RunStatus.COMPENSATING and plan.handles is None:
        return waited_out(workflow, run, record, plan)
    return plan.kind.take_timer(workflow, run, record, plan, timer)


def _out_of_time(workflow: Workflow, run: Run, record: Record) -> Advance:
    if run.due is None or all_done(workflow, run):  # all steps are done; workflow.completed is not in the log yet
        return run, []
    error = f"workflow timeout exceeded ({text(workflow.timeout_s or 0)})"
    return fail(workflow, replace(run, due=None, seq=record.seq), record, error)
