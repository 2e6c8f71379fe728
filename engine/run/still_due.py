"""Whether a command of an earlier record is still wanted: what an owner of a run that takes over carries out again."""

from __future__ import annotations

from typing import assert_never

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
from penstock.engine.run.events import (
    ChildEnded,
    WorkflowCompensating,
    WorkflowFailed,
)
from penstock.engine.run.execution.beginning import is_due
from penstock.engine.run.execution.fragments import is_planned
from penstock.engine.run.slots.holders import is_awaited
from penstock.engine.run.state import STEP_OUT, Run, RunStatus, StepStatus
from penstock.engine.run.timers import live_timers


def still_due(run: Run, command: Command) -> bool:
    """Whether a command of an earlier record is still wanted in this later state of the run."""
    match command:
        case WithdrawTask(of_step=str() as step_id) if (
            run.status is RunStatus.COMPENSATING or run.step(step_id).status not in STEP_OUT
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
            WithdrawTimer() | WithdrawSticky() | RemoveDeadLetters() | CancelChild() | CancelTask() | StopWaiting()
            | StartFailureRun() | ReleaseSlot()
        ):  # fmt: skip
            return True
        case WithdrawQueued():
            return run.pause is not None
        case PauseChild():
            return command.pause is (run.pause is not None)
        case AppendEvent(event=ChildEnded()):  # to another run
            return True
        case _ if run.ended:
            return False
        case DispatchTask():
            return _is_wanted(run, command)
        case BeginStep():
            return is_due(run, run.step(command.step_id), command)
        case RequestSlot():
            return is_awaited(run, command)
        case TakeOver():
            return run.taking is not None
        case ExpandPlan():
            return is_planned(run, command)
        case RequestApproval() | StartChild():
            step = run.step(command.step_id)
            return (step.status, step.attempts) == (StepStatus.QUEUED, command.attempt) and _may_begin(run)
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
        case AppendEvent() | CompleteRun() | RequestSlot():
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
    if step.status is StepStatus.QUEUED:
        return _may_begin(run)
    return step.status is StepStatus.RUNNING and (replaces or task.again > 0)


def _may_begin(run: Run) -> bool:
    """Whether executions begin now. When a paused run goes on, all that are queued are ordered again."""
    return not run.failing and run.pause is None
