"""Approvals: steps that a person decides, by a token that is valid for one decision.

The log determines which decision is first. A decision is appended only if the step was undecided at the end of the
history, so the first decision that applies is the only one.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from msgspec import Struct, structs
from msgspec.structs import replace

from penstock.config.limits import APPROVAL_TIMEOUT_DEFAULT_S
from penstock.engine.definition import values
from penstock.engine.definition.definitions import Step
from penstock.engine.definition.durations import seconds, text
from penstock.engine.definition.forms import Form, nested, read_object
from penstock.engine.definition.report import Report
from penstock.engine.definition.step_fields import STEP, step_type
from penstock.engine.expressions.places import WHEN, Place
from penstock.engine.run.commands import AppendEvent, Command, OpenApproval, RequestApproval
from penstock.engine.run.event_payloads import Decision, TimerRef
from penstock.engine.run.events import (
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRejected,
    ApprovalRequested,
    Record,
    StepFailed,
)
from penstock.engine.run.execution.dispatch import begin_step
from penstock.engine.run.execution.elements import with_step
from penstock.engine.run.execution.steps import completed, fail_for_good, failed
from penstock.engine.run.kinds.base import BaseKind
from penstock.engine.run.payloads import payload_of
from penstock.engine.run.state import Run, StepState, StepStatus
from penstock.engine.run.timers import TimerKind, retimed, timer_name
from penstock.engine.run.workflow import Advance, Evaluated, Ordered, StepEvent, StepPlan, Workflow

EXPIRED = "approval expired after"

# No worker executes an approval, so fields for workers are refused.
FOR_WORKERS = frozenset({"retry", "retries", "worker_group", "with"})

CONFIG = Form(
    component="ApprovalConfig",
    fields={
        "timeout": values.approval_timeout.annotated(description="24h without one, 168h at most."),
        "subject": values.subject.annotated(description="Where the request for an approval is published."),
        "description": values.text,
        "metadata": values.strings,
    },
)


class Approval(Struct, frozen=True):
    """What a person is asked, and for how long."""

    timeout_s: float
    subject: str | None
    description: str | None
    metadata: dict[str, str] | None


def approval_of(plan: StepPlan) -> Approval | None:
    """The approval that the step asks for; None for another kind of step."""
    return plan.config if isinstance(plan.config, Approval) else None


def token_hash(token: str) -> str:
    """SHA-256 of a token as hex. Only this is stored."""
    return sha256(token.encode()).hexdigest()


def has_expired(step: StepState) -> bool:
    """Whether a failed step failed because nobody decided in time."""
    return step.error is not None and step.error.startswith(EXPIRED)


def _read_config(path: str, value: object, report: Report) -> object:
    read = read_object(CONFIG, f"{path}: ", value, report)
    return {key: field for key, field in read.items() if (key, field) != ("metadata", {})}


_CONFIG = structs.replace(nested(CONFIG), read=_read_config)


class ApprovalStep(BaseKind):
    """A step that waits for `approval.granted` or `approval.rejected`. It has no task."""

    name = "approval"
    places: tuple[Place, ...] = (WHEN,)
    form = Form(
        component="ApprovalStep",
        fields={
            **{key: field for key, field in STEP.fields.items() if key not in FOR_WORKERS},
            "type": step_type("approval"),
            "timeout": values.approval_timeout,
            "config": _CONFIG,
        },
        required=("id", "type"),
        elsewhere=FOR_WORKERS | {"loop"},
        schema={"description": "A person's decision; no worker takes part."},
    )

    def compile(self, step: Step, plan: StepPlan) -> StepPlan:
        config = step.config or {}
        timeout_s = seconds(config.get("timeout") or step.timeout) or APPROVAL_TIMEOUT_DEFAULT_S
        asked = Approval(timeout_s, config.get("subject"), config.get("description"), config.get("metadata"))
        return replace(plan, task=self.name, timeout_s=None, config=asked)

    def order(self, workflow: Workflow, run: Run, record: Record, plan: StepPlan, step: StepState) -> Ordered:
        return step, [begin_step(record, plan, step) if plan.evaluates else _request(plan, step, record.at)]

    def begin(self, workflow: Workflow, run: Run, plan: StepPlan, at: float, values: Evaluated) -> Sequence[Command]:
        return [_request(plan, run.step(plan.id), at)]

    def take_event(self, workflow: Workflow, run: Run, record: Record, event: StepEvent, plan: StepPlan) -> Advance:
        """Only the first decision of the current request applies."""
        step = run.step(plan.id)
        if run.failing or event.attempt_number not in (None, step.attempts):
            return run, []
        match event:
            case ApprovalRequested() if step.status is StepStatus.QUEUED:
                return _requested(run, record, event, plan)
            case ApprovalGranted() if step.status is StepStatus.RUNNING:
                return completed(workflow, run, record, plan, payload_of(event))
            case ApprovalRejected() if step.status is StepStatus.RUNNING:
                return fail_for_good(workflow, run, record, plan, _rejection(event.payload))
            case StepFailed() if step.status is StepStatus.QUEUED and plan.evaluates:
                return failed(workflow, run, record, event, plan)
            case ApprovalExpired() if step.status is StepStatus.RUNNING:
                return fail_for_good(workflow, run, record, plan, f"{EXPIRED} {text(_asked(plan).timeout_s)}")
            case _:
                return run, []

    def take_timer(self, workflow: Workflow, run: Run, record: Record, plan: StepPlan, timer: TimerKind) -> Advance:
        return _expire(run, record, plan) if timer is TimerKind.APPROVAL else (run, [])


def _request(plan: StepPlan, step: StepState, at: float) -> RequestApproval:
    asked = _asked(plan)
    expires = at + asked.timeout_s
    return RequestApproval(plan.id, step.attempts, expires, asked.subject, asked.description, asked.metadata)


def _expire(run: Run, record: Record, plan: StepPlan) -> Advance:
    """The time for a decision is over: append `approval.expired`. A decision that is stored before that event still
    applies."""
    step = run.step(plan.id)
    timer = timer_name(TimerKind.APPROVAL, plan.id, step)
    expired = ApprovalExpired(
        run_id=run.run_id,
        step_id=plan.id,
        timestamp=record.event.timestamp,
        attempt_number=step.attempts,
        payload=TimerRef(timer=timer, step_id=plan.id, attempt=step.attempts),
    )
    return with_step(run, record, plan.id, replace(step, due=None)), [AppendEvent(expired)]


def _requested(run: Run, record: Record, event: ApprovalRequested, plan: StepPlan) -> Advance:
    before = run.step(plan.id)
    step = replace(
        before,
        status=StepStatus.RUNNING,
        started_at=event.timestamp,
        token=token_hash(event.payload.token),
        due=record.at + _asked(plan).timeout_s,
    )
    opened = OpenApproval(plan.id, step.attempts, event.payload)
    return with_step(run, record, plan.id, step), [*retimed(run, plan.id, before, step), opened]


def _rejection(decision: Decision) -> str:
    by = f" by {decision.approved_by}" if decision.approved_by else ""
    return f"rejected{by}: {decision.comment}" if decision.comment else f"rejected{by}"


def _asked(plan: StepPlan) -> Approval:
    assert isinstance(plan.config, Approval)
    return plan.config
