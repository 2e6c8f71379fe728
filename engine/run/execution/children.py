"""Runs that steps start: their ids, the events between parent and child, and what cancels a child.

The id of a child follows from its parent's, the step and the attempt. So whoever starts or cancels it again means the
same run, and no state has to keep the id.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from penstock.config.limits import PAYLOAD_BYTES_MAX, RUNS_IN_CHAIN_MAX
from penstock.engine.definition.definitions import WorkflowDef, run_limits
from penstock.engine.definition.labels import label_of, problems
from penstock.engine.definition.schema import Schema
from penstock.engine.errors import ExpressionFailed, Invalid, TooLarge
from penstock.engine.run.commands import CancelChild, PauseChild, StartChild
from penstock.engine.run.event_payloads import (
    Cancellation,
    ChildEnd,
    Failure,
    ParentRef,
    PauseScope,
    Started,
    StepFacts,
)
from penstock.engine.run.events import (
    ChildEnded,
    Record,
    StepFailed,
    StepStarted,
    WorkflowCancelled,
    WorkflowCompleted,
    WorkflowPaused,
    WorkflowStarted,
    WorkflowUnpaused,
)
from penstock.engine.run.payloads import size_of
from penstock.engine.run.state import Run, RunStatus, StepState, StepStatus
from penstock.engine.times import rfc3339

PREFIX_CHARS = 13  # the time in a run id, and its version: a child of a young run is not looked for in the store
LIMITS_FORMAT = 3  # of a start under the slots of an ancestor: older versions would ask for slots of its own
FORMAT = 2  # of a start with a parent, and of pauses: versions that read format 1 only would take them for malformed


def child_run_id(parent_run_id: str, step_id: str, attempt: int) -> str:
    """The id of the run that this attempt of a step, or of an element of a map (`m.7`), starts."""
    hashed = sha256(f"{parent_run_id}\n{step_id}\n{attempt}".encode()).hexdigest()
    return (parent_run_id[:PREFIX_CHARS] + hashed)[:32]


def labels_given(path: str, value: Raw | None) -> dict[str, str] | None:
    """The labels of a child, as the templates at `path` have given them. Raises ExpressionFailed for those that are too
    long."""
    if value is None:
        return None
    found = {key: label_of(one) for key, one in msgspec.json.decode(value, type=dict[str, Any]).items()}
    if wrong := next(problems(path, found), None):
        raise ExpressionFailed(wrong)
    return found or None


def parent_ref(run: Run, command: StartChild) -> ParentRef:
    """What the child's start says of the run, its parent."""
    return ParentRef(run.run_id, command.step_id, command.attempt, command.item, depth(run), command.detached)


def depth(run: Run) -> int:
    """How many runs there are in the chain that ends with this one."""
    return run.parent.depth + 1 if isinstance(run.parent, ParentRef) else 1


def too_deep(run: Run) -> str | None:
    """Why the run may have no child; None if it may."""
    if depth(run) < RUNS_IN_CHAIN_MAX:
        return None
    return f"this run is the last of {depth(run)} in a chain of children, and {RUNS_IN_CHAIN_MAX} is the most"


def check_start(run: Run, command: StartChild) -> None:
    """Raises Invalid or TooLarge for a child that cannot start, whatever its workflow."""
    if problem := too_deep(run):
        raise Invalid(problem)
    size = size_of(command.input)
    if size > PAYLOAD_BYTES_MAX:
        raise TooLarge(f"the input has {size} bytes, {PAYLOAD_BYTES_MAX} is the most")


def child_start(
    run: Run,
    command: StartChild,
    definition: WorkflowDef,
    digest: str,
    schema: Schema | None,
    at: float,
    trace: str | None = None,
) -> WorkflowStarted:
    """The event that begins the child; `schema` is that of its input. Raises Invalid for an input that breaks it."""
    check_input(schema, command.input)
    payload = Started(
        workflow=definition.name,
        version=definition.version,
        digest=digest,
        input=command.input,
        parent=parent_ref(run, command),
        labels=command.labels,
        under=command.under,
        waits=run_limits(definition),
    )
    return WorkflowStarted(
        run_id=child_run_id(run.run_id, command.step_id, command.attempt),
        timestamp=rfc3339(at),
        trace_parent=trace,
        payload=payload,
        v=LIMITS_FORMAT if payload.under else FORMAT,
    )


def check_input(schema: Schema | None, value: Raw) -> None:
    """Raises Invalid for an input that breaks its workflow's schema, if there is one."""
    if schema is not None and (found := schema.check(bytes(value), "input")):
        raise Invalid(*found)


def child_cancelled(run: Run, command: CancelChild, at: float) -> WorkflowCancelled:
    """The event that cancels the child, whether it has started or not."""
    reason = f'step "{command.step_id}" of its parent run {run.run_id}: {command.reason}'
    child = child_run_id(run.run_id, command.step_id, command.attempt)
    return WorkflowCancelled(run_id=child, timestamp=rfc3339(at), payload=Cancellation(reason, command.compensate))


def child_paused(run: Run, command: PauseChild, at: float) -> WorkflowPaused | WorkflowUnpaused:
    """The event that pauses the child and its children, or lets them go on."""
    kind = WorkflowPaused if command.pause else WorkflowUnpaused
    child = child_run_id(run.run_id, command.step_id, command.attempt)
    return kind(run_id=child, timestamp=rfc3339(at), payload=PauseScope(children=True), v=FORMAT)


def child_started(run: Run, command: StartChild) -> StepStarted:
    """The event that says which run the attempt has started."""
    child = child_run_id(run.run_id, command.step_id, command.attempt)
    return StepStarted(
        run_id=run.run_id,
        step_id=command.step_id,
        timestamp=rfc3339(command.at),
        attempt_number=command.attempt,
        item=command.item,
        payload=StepFacts(child_run_id=child),
    )


def child_refused(run: Run, command: StartChild, error: str) -> StepFailed:
    """The event that says why there is no child. Another attempt would be told the same."""
    return StepFailed(
        run_id=run.run_id,
        step_id=command.step_id,
        timestamp=rfc3339(command.at),
        attempt_number=command.attempt,
        item=command.item,
        payload=Failure(error=f'workflow "{command.workflow}" cannot start: {error}', failure_type="non_retriable"),
    )


def child_ended(run: Run, parent: ParentRef, record: Record, status: RunStatus, error: str | None) -> ChildEnded:
    """The event by which the parent learns how this run has ended."""
    ended = ChildEnd(run.run_id, status.value, error=error)
    match record.event:
        case WorkflowCompleted(payload=completed):
            output = UNSET if completed.output_bytes else completed.output
            ended = ChildEnd(run.run_id, status.value, output, completed.output_bytes)
    return ChildEnded(
        run_id=parent.run_id,
        step_id=parent.step_id,
        timestamp=record.event.timestamp,
        attempt_number=parent.attempt,
        item=parent.item,
        payload=ended,
    )


def cancelled_child(step_id: str, step: StepState, reason: str) -> list[CancelChild]:
    """Cancel the child of a step that is queued or running. A step that waits for its retry has none."""
    waits = step.status is StepStatus.QUEUED and step.due is not None
    return [] if waits else [CancelChild(step_id, step.attempts, reason)]
