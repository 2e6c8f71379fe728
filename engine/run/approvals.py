"""Approvals: steps that a person decides, by a token that is good for one decision.

The log decides who was first: a decision is appended by whoever saw the step undecided at the history's very end, so
the first one that applies is the only one.
"""

from __future__ import annotations

from hashlib import sha256

from msgspec.structs import replace

from penstock.engine.definition.durations import text
from penstock.engine.run.commands import AppendEvent, OpenApproval
from penstock.engine.run.events import (
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRejected,
    ApprovalRequested,
    Decision,
    Record,
    TimerRef,
)
from penstock.engine.run.payloads import given
from penstock.engine.run.state import Run, StepState, StepStatus
from penstock.engine.run.steps import Advance, completed, fail_for_good, put
from penstock.engine.run.timers import retimed
from penstock.engine.run.workflow import StepPlan, Workflow

ApprovalEvent = ApprovalRequested | ApprovalGranted | ApprovalRejected | ApprovalExpired

EXPIRED = "approval expired after"


def token_hash(token: str) -> str:
    """What is kept of a token: its SHA-256 as hex."""
    return sha256(token.encode()).hexdigest()


def has_expired(step: StepState) -> bool:
    """Whether a step that failed did so because nobody decided in time."""
    return step.error is not None and step.error.startswith(EXPIRED)


def approval_event(workflow: Workflow, run: Run, record: Record, event: ApprovalEvent, plan: StepPlan) -> Advance:
    """Fold one event of an approval in; only the first decision of the current request applies."""
    step = run.steps[plan.id]
    if plan.approval is None or run.error is not None or event.attempt_number not in (None, step.attempts):
        return run, []
    match event:
        case ApprovalRequested() if step.status is StepStatus.QUEUED:
            return _requested(run, record, event, plan)
        case ApprovalGranted() if step.status is StepStatus.RUNNING:
            return completed(workflow, run, record, plan, given(event))
        case ApprovalRejected() if step.status is StepStatus.RUNNING:
            return fail_for_good(run, record, plan, _rejection(event.payload))
        case ApprovalExpired() if step.status is StepStatus.RUNNING:
            return fail_for_good(run, record, plan, f"{EXPIRED} {text(plan.approval.timeout_s)}")
        case _:
            return run, []


def expire(run: Run, record: Record, plan: StepPlan, step: StepState, timer: str) -> Advance:
    """Its time is over. A decision that gets into the log before the event that says so is still good."""
    expired = ApprovalExpired(
        run_id=run.run_id,
        step_id=plan.id,
        timestamp=record.event.timestamp,
        attempt_number=step.attempts,
        payload=TimerRef(timer=timer, step_id=plan.id, attempt=step.attempts),
    )
    return put(run, record, plan.id, replace(step, due=None)), [AppendEvent(expired)]


def _requested(run: Run, record: Record, event: ApprovalRequested, plan: StepPlan) -> Advance:
    assert plan.approval is not None
    before = run.steps[plan.id]
    step = replace(
        before,
        status=StepStatus.RUNNING,
        started_at=event.timestamp,
        token=token_hash(event.payload.token),
        due=record.at + plan.approval.timeout_s,
    )
    opened = OpenApproval(plan.id, step.attempts, event.payload)
    return put(run, record, plan.id, step), [*retimed(run, plan.id, before, step), opened]


def _rejection(decision: Decision) -> str:
    by = f" by {decision.approved_by}" if decision.approved_by else ""
    return f"rejected{by}: {decision.comment}" if decision.comment else f"rejected{by}"
