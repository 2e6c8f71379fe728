"""The timers that a state waits for, and how they change with it.

A step has up to three: its deadline or the time of its retry (`due`), the last moment of its loop (`until`), and the
end of the wait for the worker it is bound to (`fallback`). A timer's name says which, for which iteration, and after
how many pauses, so that no two are mixed up.
"""

from __future__ import annotations

from penstock.engine.run.commands import Command, SetTimer, WithdrawTimer
from penstock.engine.run.state import Run, RunStatus, StepState, StepStatus

WORKFLOW_TIMER = "workflow"


def live_timers(run: Run) -> list[SetTimer]:
    """Every timer that this state waits for: none, once the run's failure is decided."""
    if run.status is not RunStatus.RUNNING or run.error is not None:
        return []
    timers = [] if run.due is None else [workflow_timer(run, run.due)]
    for step_id, step in run.steps.items():
        timers += step_timers(run, step_id, step)
    return timers


def workflow_timer(run: Run, due: float) -> SetTimer:
    return SetTimer(WORKFLOW_TIMER, due, attempt=run.resumes or None)


def step_timers(run: Run, step_id: str, step: StepState) -> list[SetTimer]:
    """The step's timers in this state."""
    timers = []
    if step.due is not None:
        timers.append(SetTimer(_due_name(step_id, step), step.due, step_id, step.attempts))
    if step.until is not None:
        timers.append(SetTimer(f"loop.{step_id}", step.until, step_id, run.resumes))
    if step.fallback is not None:
        timers.append(SetTimer(_name("sticky", step_id, step), step.fallback, step_id, step.attempts))
    return timers


def lost_timer(step_id: str, step: StepState) -> str:
    """What is said to have fired when the worker that a running step is bound to does not hold its task any more. It is
    never set."""
    return _name("lost", step_id, step)


def retimed(run: Run, step_id: str, before: StepState, after: StepState) -> list[Command]:
    """What leads from the timers of one state of a step to those of the next."""
    if not _timed(before):
        return [*step_timers(run, step_id, after)] if _timed(after) else []
    if not _timed(after):
        return [WithdrawTimer(timer.timer, timer.due) for timer in step_timers(run, step_id, before)]
    old = {timer.timer: timer for timer in step_timers(run, step_id, before)}
    new = {timer.timer: timer for timer in step_timers(run, step_id, after)}
    withdrawn = [WithdrawTimer(timer.timer, timer.due) for timer in old.values() if timer.timer not in new]
    return [*withdrawn, *(timer for timer in new.values() if old.get(timer.timer) != timer)]


def _timed(step: StepState) -> bool:
    return step.due is not None or step.until is not None or step.fallback is not None


def _due_name(step_id: str, step: StepState) -> str:
    """After a pause the timeout is another timer: one from before it that fires all the same, and its id, mean nothing
    any more."""
    name = _name(_due_kind(step), step_id, step)
    return f"{name}+{step.pauses}" if step.pauses else name


def _due_kind(step: StepState) -> str:
    """A queued step waits for its retry, one that a person must decide for its expiry, a running one for its
    timeout."""
    if step.status is StepStatus.QUEUED:
        return "retry"
    return "timeout" if step.token is None else "approval"


def _name(kind: str, step_id: str, step: StepState) -> str:
    return f"{kind}.{step_id}~{step.iteration}" if step.iteration else f"{kind}.{step_id}"
