"""Every message id, built here and nowhere else. The broker drops a message whose id it has stored within its window.

So two messages that differ must never share one, and a message that is sent again must keep it.
"""

from __future__ import annotations

from penstock.engine.run.events import (
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRejected,
    ApprovalRequested,
    Event,
    StepCompleted,
    StepContinue,
    StepFailed,
    StepPaused,
    StepSkipped,
    StepStarted,
    WorkflowCompleted,
    WorkflowFailed,
    event_type,
)

_STEP_EVENTS = (
    StepStarted,
    StepPaused,
    StepCompleted,
    StepFailed,
    StepContinue,
    StepSkipped,
    ApprovalRequested,
    ApprovalGranted,
    ApprovalRejected,
    ApprovalExpired,
)


def of_event(event: Event) -> str:
    """`<run_id>.<type>` or `<run_id>.<step_id>.<type>`; `.<attempt>` from attempt 2 on, `.<attempt>.<iteration>` in
    later iterations.

    A run that was resumed can fail again: its number of resumptions then keeps the two ends apart. A report about a
    later delivery of a task is no repeat of one about the first delivery: `~<delivery>` from the second on.
    """
    kind = event_type(event)
    if isinstance(event, WorkflowFailed | WorkflowCompleted):
        return f"{event.run_id}.{kind}.{event.payload.resumes}" if event.payload.resumes else f"{event.run_id}.{kind}"
    if not isinstance(event, _STEP_EVENTS):
        return f"{event.run_id}.{kind}"
    parts = f"{event.run_id}.{event.step_id}.{kind}"
    if event.iteration:
        parts = f"{parts}.{event.attempt_number or 1}.{event.iteration}"
    elif event.attempt_number is not None and event.attempt_number > 1:
        parts = f"{parts}.{event.attempt_number}"
    if isinstance(event, StepStarted | StepPaused) and event.delivery != 1:
        return f"{parts}~{event.delivery}"
    return parts


def of_task(run_id: str, step_id: str, iteration: int, attempt: int) -> str:
    return f"{run_id}.{step_id}.{iteration}.{attempt}"


def of_cancellation(run_id: str, resumes: int) -> str:
    """A run that was resumed may be cancelled though a cancellation came too late before."""
    return f"{run_id}.workflow.cancelled.{resumes}" if resumes else f"{run_id}.workflow.cancelled"


def of_signal(run_id: str, name: str, revision: int) -> str:
    """`revision` is the signal's in its bucket: a second signal of a name is another one."""
    return f"{run_id}.signal.received.{name}.{revision}"


def of_approval_notice(run_id: str, step_id: str, attempt: int) -> str:
    return f"{run_id}.{step_id}.approval.notice.{attempt}"


def of_timer(run_id: str, timer: str, attempt: int | None) -> str:
    """One id for each timer and attempt, so that a timer that two processes fire is stored once.

    That of a retry is `<run_id>.<step_id>.rate_retry.<attempt>`, after a rate limit as after any other delay.
    """
    kind, _, step = timer.partition(".")
    if kind == "retry":
        return f"{run_id}.{step}.rate_retry.{attempt or 0}"
    return f"{run_id}.{timer}.timer.fired.{attempt or 0}"
