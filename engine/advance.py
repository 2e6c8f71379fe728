"""The one function that changes a run: `advance(workflow, run, record) -> (run, commands)`.

Pure, total and idempotent. Duplicates, late arrivals and events that do not apply are normal input: they fall through their
guard and return the run as it was, with no commands. `fold` is the same function with the commands dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias, assert_never

from msgspec import UNSET
from msgspec.structs import replace

from penstock.engine.commands import AppendEvent, Command, DeadLetterTask, DispatchTask, SetTimer, WithdrawTask, WithdrawTimer
from penstock.engine.durations import text
from penstock.engine.events import (
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRejected,
    ApprovalRequested,
    Completed,
    Failure,
    Record,
    RunFailure,
    SignalReceived,
    Started,
    StepCompleted,
    StepContinue,
    StepFailed,
    StepSkipped,
    StepStarted,
    TimerFired,
    WorkflowCancelled,
    WorkflowCompleted,
    WorkflowFailed,
    WorkflowResumed,
    WorkflowScheduled,
    WorkflowStarted,
)
from penstock.engine.inputs import run_output, skips, step_input
from penstock.engine.retry import delay_s, retry_after_s
from penstock.engine.state import STEP_DONE, STEP_ENDED, STEP_OUT, Run, RunStatus, StepState, StepStatus
from penstock.engine.workflow import StepPlan, Workflow

WORKFLOW_TIMER = "workflow"
Advance: TypeAlias = tuple[Run, list[Command]]


def advance(workflow: Workflow, run: Run | None, record: Record) -> tuple[Run | None, list[Command]]:
    """Fold one record into the run (None: nothing of it has been seen yet) and say what must be done because of it."""
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
    match event:
        case WorkflowStarted() if run.status is RunStatus.SCHEDULED:
            return _start(workflow, run, record)
        case WorkflowCancelled() if run.status in (RunStatus.RUNNING, RunStatus.SCHEDULED):
            return _end(workflow, run, record, RunStatus.CANCELLED, event.payload.reason)
        case _ if run.status is not RunStatus.RUNNING:
            return run, []
        case StepStarted() | StepCompleted() | StepFailed() | StepSkipped():
            return _step_event(workflow, run, record, event)
        case TimerFired():
            return _timer_fired(workflow, run, record, event)
        case WorkflowCompleted() if _all_done(run):
            return _end(workflow, run, record, RunStatus.COMPLETED, None)
        case WorkflowFailed():
            return _end(workflow, run, record, RunStatus.FAILED, event.payload.error)
        case (
            WorkflowScheduled() | WorkflowStarted() | WorkflowCancelled() | WorkflowResumed() | WorkflowCompleted() | SignalReceived()
            | StepContinue() | ApprovalRequested() | ApprovalGranted() | ApprovalRejected() | ApprovalExpired()
        ):  # fmt: skip
            return run, []
        case _:
            assert_never(event)


def fold(workflow: Workflow, run: Run | None, records: Iterable[Record]) -> Run | None:
    """The state after these records; what `advance` would order is dropped."""
    for record in records:
        run, _ = advance(workflow, run, record)
    return run


def still_due(run: Run, command: Command) -> bool:
    """Whether a command of an earlier record is still wanted in this later state of the run."""
    if run.ended:
        return isinstance(command, WithdrawTask | WithdrawTimer | DeadLetterTask)
    match command:
        case DispatchTask():
            step = run.steps[command.step_id]
            out = (step.status, step.attempts, step.iteration) == (StepStatus.QUEUED, command.attempt, command.iteration)
            return out and run.error is None
        case SetTimer():
            return any(timer.timer == command.timer and timer.due == command.due for timer in live_timers(run))
        case _:
            return True


def live_timers(run: Run) -> list[SetTimer]:
    """Every timer that this state waits for: none, once the run's failure is decided."""
    if run.status is not RunStatus.RUNNING or run.error is not None:
        return []
    timers = [] if run.due is None else [SetTimer(WORKFLOW_TIMER, run.due)]
    return timers + [_step_timer(step_id, step) for step_id, step in run.steps.items() if step.due is not None]


def _scheduled(workflow: Workflow, event: WorkflowScheduled, record: Record) -> Run:
    return Run(
        run_id=event.run_id,
        workflow_id=workflow.name,
        version=workflow.version,
        digest=workflow.digest,
        status=RunStatus.SCHEDULED,
        created_at=event.timestamp,
        seq=record.seq,
        input=event.payload.input.copy(),
        steps=workflow.waiting,
        run_at=event.payload.run_at,
    )


def _new(workflow: Workflow, event: WorkflowStarted, record: Record) -> Run:
    started: Started = event.payload
    return Run(
        run_id=event.run_id,
        workflow_id=workflow.name,
        version=workflow.version,
        digest=workflow.digest,
        status=RunStatus.PENDING,
        created_at=event.timestamp,
        seq=record.seq,
        input=started.input.copy(),
        steps=workflow.waiting,
        parent=started.parent,
        rerun_of=started.rerun_of,
        trigger=started.trigger,
    )


def _start(workflow: Workflow, run: Run, record: Record) -> Advance:
    due = None if workflow.timeout_s is None else record.at + workflow.timeout_s
    run = replace(run, status=RunStatus.RUNNING, started_at=record.event.timestamp or None, seq=record.seq, due=due)
    timers: list[Command] = [] if due is None else [SetTimer(WORKFLOW_TIMER, due)]
    run, commands = _enter(workflow, run, workflow.roots, record)
    return run, timers + commands


def _step_event(workflow: Workflow, run: Run, record: Record, event: StepStarted | StepCompleted | StepFailed | StepSkipped) -> Advance:
    step, plan = run.steps.get(event.step_id), workflow.steps.get(event.step_id)
    if step is None or plan is None:
        return run, []
    if isinstance(event, StepSkipped):
        applies = step.status is StepStatus.PENDING and _is_ready(run, plan)
        return _skipped(workflow, run, record, plan) if applies else (run, [])
    if not _is_current(step, event):
        return run, []
    match event:
        case StepStarted():
            return _started(run, record, event, plan) if step.status is StepStatus.QUEUED else (run, [])
        case StepCompleted():
            return _completed(workflow, run, record, event)
        case StepFailed():
            return _failed(run, record, event, plan)


def _is_current(step: StepState, event: StepStarted | StepCompleted | StepFailed) -> bool:
    """Whether the event speaks of the execution that is out now; without a number it means that one.

    While a step waits for its retry none is out: whatever comes then is late.
    """
    waits = step.status is StepStatus.QUEUED and step.due is not None
    return (
        step.status in STEP_OUT
        and not waits
        and event.attempt_number in (None, step.attempts)
        and event.iteration in (None, step.iteration)
    )


def _started(run: Run, record: Record, event: StepStarted, plan: StepPlan) -> Advance:
    due = None if plan.timeout_s is None else record.at + plan.timeout_s
    step = replace(run.steps[plan.id], status=StepStatus.RUNNING, started_at=event.timestamp or None, worker_id=event.worker_id, due=due)
    return _put(run, record, plan.id, step), ([] if due is None else [_step_timer(plan.id, step)])


def _completed(workflow: Workflow, run: Run, record: Record, event: StepCompleted) -> Advance:
    before = run.steps[event.step_id]
    step = replace(
        before,
        status=StepStatus.COMPLETED,
        output=UNSET if event.payload is UNSET else event.payload.copy(),
        error=None,
        finished_at=event.timestamp or None,
        worker_id=event.worker_id or before.worker_id,
        due=None,
    )
    run, commands = _go_on(workflow, _put(run, record, event.step_id, step), record, event.step_id)
    return run, _withdrawal(event.step_id, before) + commands


def _skipped(workflow: Workflow, run: Run, record: Record, plan: StepPlan) -> Advance:
    step = StepState(status=StepStatus.SKIPPED, finished_at=record.event.timestamp or None)
    return _go_on(workflow, _put(run, record, plan.id, step), record, plan.id)


def _failed(run: Run, record: Record, event: StepFailed, plan: StepPlan) -> Advance:
    before = run.steps[plan.id]
    failure: Failure = event.payload
    if failure.failure_type == "non_retriable" or before.attempts > plan.retry.retries or run.error is not None:
        return _failed_for_good(run, record, event, plan)
    wait_s = retry_after_s(failure) if failure.failure_type == "retry_after" else delay_s(plan.retry, run.run_id, plan.id, before.attempts)
    due = record.at + wait_s if wait_s > 0 else None
    step = replace(before, status=StepStatus.QUEUED, attempts=before.attempts + 1, error=failure.error, due=due)
    again: Command = _dispatch(run, plan, step) if due is None else _step_timer(plan.id, step)
    return _put(run, record, plan.id, step), [*_withdrawal(plan.id, before), again]


def _failed_for_good(run: Run, record: Record, event: StepFailed, plan: StepPlan) -> Advance:
    before, error = run.steps[plan.id], event.payload.error
    step = replace(before, status=StepStatus.FAILED, error=error, finished_at=event.timestamp or None, due=None)
    commands = _withdrawal(plan.id, before)
    commands.append(
        DeadLetterTask(plan.id, plan.task, before.attempts, before.iteration, step_input(run, plan), plan.metadata, error, plan.group)
    )
    failed = _put(run, record, plan.id, step)
    if run.error is not None:
        return failed, commands
    text_ = f'step "{plan.id}" failed: {error}'
    return replace(failed, error=text_), [*commands, _fail(run, record, text_, plan.id)]


def _timer_fired(workflow: Workflow, run: Run, record: Record, event: TimerFired) -> Advance:
    timer, step_id = event.payload.timer, event.payload.step_id
    if run.error is not None:  # it is about to end, nothing new begins
        return run, []
    if timer == WORKFLOW_TIMER:
        return _out_of_time(workflow, run, record)
    step, plan = run.steps.get(step_id or ""), workflow.steps.get(step_id or "")
    if step is None or plan is None or step.due is None or _timer_name(plan.id, step) != timer:
        return run, []
    if event.payload.attempt not in (None, step.attempts):
        return run, []
    fired = replace(step, due=None)
    if step.status is StepStatus.QUEUED:
        return _put(run, record, plan.id, fired), [_dispatch(run, plan, fired)]
    error = f"step timeout exceeded ({text(plan.timeout_s or 0)})"
    late = StepFailed(
        run_id=run.run_id,
        step_id=plan.id,
        timestamp=event.timestamp,
        attempt_number=step.attempts,
        iteration=step.iteration or None,
        payload=Failure(error=error),
    )
    return _put(run, record, plan.id, fired), [AppendEvent(late)]


def _out_of_time(workflow: Workflow, run: Run, record: Record) -> Advance:
    if run.due is None or _all_done(run):  # done in time, though its end is not in the log yet
        return run, []
    error = f"workflow timeout exceeded ({text(workflow.timeout_s or 0)})"
    return replace(run, due=None, error=error, seq=record.seq), [_fail(run, record, error)]


def _fail(run: Run, record: Record, error: str, step_id: str | None = None) -> AppendEvent:
    return AppendEvent(
        WorkflowFailed(run_id=run.run_id, timestamp=record.event.timestamp, payload=RunFailure(error=error, step_id=step_id))
    )


def _go_on(workflow: Workflow, run: Run, record: Record, done: str) -> Advance:
    """What follows from a step that is done: its dependents, or the end of the run."""
    if run.error is not None:
        return run, []
    ready = [step_id for step_id in workflow.steps[done].dependents if _is_ready(run, workflow.steps[step_id])]
    if ready:
        return _enter(workflow, run, ready, record)
    if _all_done(run):
        output = Completed(output=run_output(workflow, run))
        return run, [AppendEvent(WorkflowCompleted(run_id=run.run_id, timestamp=record.event.timestamp, payload=output))]
    return run, []


def _is_ready(run: Run, plan: StepPlan) -> bool:
    return all(run.steps[step_id].status in STEP_DONE for step_id in plan.depends_on)


def _all_done(run: Run) -> bool:
    """Nothing is left to do: the engine has ordered the run's completion."""
    return all(step.status in STEP_DONE for step in run.steps.values())


def _enter(workflow: Workflow, run: Run, step_ids: Iterable[str], record: Record) -> Advance:
    """Queue these steps, whose dependencies are done, or have them skipped."""
    steps, commands = dict(run.steps), list[Command]()
    for step_id in step_ids:
        plan = workflow.steps[step_id]
        if skips(run, plan.skip_if):
            skipped = StepSkipped(run_id=run.run_id, step_id=step_id, timestamp=record.event.timestamp)
            commands.append(AppendEvent(skipped))
            continue
        steps[step_id] = step = StepState(status=StepStatus.QUEUED, attempts=1)
        commands.append(_dispatch(run, plan, step))
    return replace(run, steps=steps), commands


def _end(workflow: Workflow, run: Run, record: Record, status: RunStatus, error: str | None) -> Advance:
    """The run has ended: what is still open of it is cancelled and taken back."""
    finished_at = record.event.timestamp or None
    steps, commands = run.steps, list[Command]()
    if run.due is not None:
        commands.append(WithdrawTimer(WORKFLOW_TIMER, run.due))
    if status is not RunStatus.COMPLETED:
        commands += _take_back(workflow, run)
        steps = {
            step_id: step if step.status in STEP_ENDED else replace(step, status=StepStatus.CANCELLED, due=None)
            for step_id, step in run.steps.items()
        }
    return replace(run, status=status, steps=steps, error=error, finished_at=finished_at, due=None, seq=record.seq), commands


def _take_back(workflow: Workflow, run: Run) -> Iterable[Command]:
    """Withdraw what is out: every timer, and the run's tasks once per type (and group), however many steps share it."""
    out = [(workflow.steps[step_id], step) for step_id, step in run.steps.items() if step.status in STEP_OUT]
    timers = [command for plan, step in out for command in _withdrawal(plan.id, step)]
    return [*timers, *dict.fromkeys(WithdrawTask(plan.task, plan.group) for plan, _ in out)]


def _dispatch(run: Run, plan: StepPlan, step: StepState) -> DispatchTask:
    return DispatchTask(plan.id, plan.task, step.attempts, step.iteration, step_input(run, plan), plan.metadata, plan.group)


def _timer_name(step_id: str, step: StepState) -> str:
    """A queued step waits for its retry, a running one for its timeout."""
    return f"{'retry' if step.status is StepStatus.QUEUED else 'timeout'}.{step_id}"


def _step_timer(step_id: str, step: StepState) -> SetTimer:
    assert step.due is not None
    return SetTimer(_timer_name(step_id, step), step.due, step_id, step.attempts)


def _withdrawal(step_id: str, step: StepState) -> list[Command]:
    return [] if step.due is None else [WithdrawTimer(_timer_name(step_id, step), step.due)]


def _put(run: Run, record: Record, step_id: str, step: StepState) -> Run:
    return replace(run, steps={**run.steps, step_id: step}, seq=record.seq)
