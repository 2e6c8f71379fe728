"""Every message id is built here and nowhere else.

The broker drops a message whose id it has stored within its deduplication window. So two different messages must never
share an id, and a repeated message must have the same id.
"""

from __future__ import annotations

from penstock.engine.run.events import (
    ChildEnded,
    Event,
    EventReceived,
    LimitGranted,
    LimitRefused,
    StepEvent,
    StepPaused,
    StepStarted,
    TimerFired,
    WorkflowCancelled,
    WorkflowCompleted,
    WorkflowFailed,
    event_type,
)

_COUNT_DELIVERIES = (StepStarted, StepPaused)


def of_event(event: Event) -> str:
    """`<run_id>.<type>` or `<run_id>.<step_id>.<type>`; `.<attempt>` from attempt 2 on, `.<attempt>.<iteration>` in
    later iterations.

    A resumed run can fail again, so the number of resumptions is part of the ids of ends. The end of a run that has
    undone its steps differs from what made it begin with that. A report about a later
    delivery of a task differs from one about the first delivery: `~<delivery>` from the second on.
    """
    if isinstance(event, StepEvent) and not isinstance(event, ChildEnded):
        return _of_step(event)
    return _of_other(event)


def _of_other(event: Event) -> str:
    kind = event_type(event)
    if isinstance(event, WorkflowFailed | WorkflowCancelled) and event.payload.compensation is not None:
        return f"{event.run_id}.{kind}.compensated"
    if isinstance(event, WorkflowFailed | WorkflowCompleted):
        return f"{event.run_id}.{kind}.{event.payload.resumes}" if event.payload.resumes else f"{event.run_id}.{kind}"
    if isinstance(event, ChildEnded):
        return f"{event.run_id}.{event.step_id}.{kind}.{event.payload.run_id}"
    if isinstance(event, TimerFired):
        return of_timer(event.run_id, event.payload.timer, event.payload.attempt)
    if isinstance(event, LimitGranted | LimitRefused):
        return f"{event.payload.holder}.{event.payload.limit_id}.{kind}"
    return f"{event.run_id}.{kind}"


def _of_step(event: StepEvent) -> str:
    kind = event_type(event)
    parts = f"{event.run_id}.{event.step_id}.{kind}"
    if event.iteration:
        parts = f"{parts}.{event.attempt_number or 1}.{event.iteration}"
    elif event.attempt_number is not None and event.attempt_number > 1:
        parts = f"{parts}.{event.attempt_number}"
    if isinstance(event, EventReceived):
        return f"{parts}~{event.payload.seq}"
    if isinstance(event, _COUNT_DELIVERIES) and event.delivery != 1:
        return f"{parts}~{event.delivery}"
    return parts


def of_task(run_id: str, step_id: str, iteration: int, attempt: int, again: int = 0) -> str:
    """`+<again>` for a task that was withdrawn, and is queued again after so many pauses of its run."""
    own = f"{run_id}.{step_id}.{iteration}.{attempt}"
    return f"{own}+{again}" if again else own


def of_task_again(subject: str, seq: int, at: float) -> str:
    """Of a task that the broker does not deliver, and that is queued once more. It differs from the task's own id,
    which the broker may still know."""
    return f"{subject}.{seq}.{at}.again"


def of_checked_plan(run_id: str, step_id: str, attempt: int) -> str:
    """What the engine says of a planner's plan. Not that of a report by its worker, who may have executed the task
    twice, and have failed then: the check would be dropped as a repeat of that."""
    return f"{run_id}.{step_id}.plan.checked.{attempt}"


def of_cancellation(run_id: str, resumes: int) -> str:
    """A resumed run may be cancelled even if an earlier cancellation came too late."""
    return f"{run_id}.workflow.cancelled.{resumes}" if resumes else f"{run_id}.workflow.cancelled"


def of_parents_cancellation(child_run_id: str) -> str:
    """The cancellation of a child by its parent."""
    return f"{child_run_id}.workflow.cancelled.parent"


def of_parents_pause(child_run_id: str, kind: str, seq: int) -> str:
    """The pause of a child by event `seq` of its parent, or the end of it (`kind` is the event's)."""
    return f"{child_run_id}.{kind}.parent.{seq}"


def of_signal(run_id: str, name: str, revision: int) -> str:
    """`revision` is the signal's revision in its bucket, so a second signal of the same name has another id."""
    return f"{run_id}.signal.received.{name}.{revision}"


def of_approval_notice(run_id: str, step_id: str, attempt: int) -> str:
    return f"{run_id}.{step_id}.approval.notice.{attempt}"


def of_timer(run_id: str, timer: str, attempt: int | None) -> str:
    """One id for each timer and attempt, so that a timer that two processes fire is stored once.

    The id of a retry timer is `<run_id>.<step_id>.rate_retry.<attempt>`, after any kind of delay.
    """
    kind, _, step = timer.partition(".")
    if kind == "retry":
        return f"{run_id}.{step}.rate_retry.{attempt or 0}"
    return f"{run_id}.{timer}.timer.fired.{attempt or 0}"


def of_said(task_id: str, kind: str, name: str) -> str:
    """Of a message with lines or chunks; `name` is unique among those of the task and kind."""
    return f"{task_id}.{kind}.{name}"


def of_slot_grant(holder: str, limit_id: str, decision: int) -> str:
    """`decision` is the sequence of the decision. Another one that grants the same, as to a request that came late,
    behind its release, is no repeat: the run must give the slot back."""
    return f"{holder}.{limit_id}.limit.granted.{decision}"


def of_slot_request(holder: str, limit_id: str) -> str:
    """A holder asks each of its limits once."""
    return f"{holder}.{limit_id}.requested"
