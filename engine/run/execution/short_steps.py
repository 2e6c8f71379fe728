"""A short step, of which the log has one event: what a start and the answer behind it lead to, in one pass.

It is the usual case, and folded for every step of every run. Nothing is decided here: the result is that of folding
both events one after the other (`advance`), which any other case is left to.
"""

from __future__ import annotations

from msgspec import Raw, UnsetType
from msgspec.structs import replace

from penstock.config.limits import OUTPUT_INLINE_BYTES_MAX
from penstock.engine.run.events import Record, StepCompleted
from penstock.engine.run.state import Run, RunStatus, StepState, StepStatus
from penstock.engine.run.workflow import Advance, StepPlan, Workflow
from penstock.engine.times import is_utc

NORMAL = "normal"  # the kind whose steps complete with the answer of a worker
MINUTE = len("2026-11-22T06:03:")


def short_step(workflow: Workflow, run: Run, record: Record, event: StepCompleted) -> Advance | None:
    """The run after this answer, which says when the worker began, and what follows; None where it is to be folded as
    two events. The answer's timestamp is UTC."""
    if run.status is not RunStatus.RUNNING or not _is_plain(workflow, run):
        return None
    step, plan = run.steps.get(event.step_id), workflow.steps.get(event.step_id)
    if step is None or plan is None or plan.kind.name != NORMAL or not _is_awaited(step, event):
        return None
    began, output = event.started_at, event.payload
    if began is None or not _is_within(plan, began, event.timestamp) or not _is_small(output):
        return None
    done = replace(
        step,
        status=StepStatus.COMPLETED,
        output=output.copy() if isinstance(output, Raw) else output,
        error=None,
        traceback=None,
        started_at=began,
        finished_at=event.timestamp,
        worker_id=event.worker_id,
        delivery=event.delivery,
        completed_seq=0 if plan.compensate is None else record.seq,
    )
    after = replace(run, steps={**run.steps, event.step_id: done}, seq=record.seq)
    return plan.kind.done(workflow, after, record, plan, output)


def _is_plain(workflow: Workflow, run: Run) -> bool:
    """Whether nothing of what else the run does looks at its events."""
    return not (
        workflow.slots_used
        or workflow.sticky
        or run.fragments
        or run.pause is not None
        or run.taking is not None
        or run.error is not None
    )


def _is_awaited(step: StepState, event: StepCompleted) -> bool:
    """Whether the answer is that of the execution that is queued, and the step has no timer."""
    return (
        step.status is StepStatus.QUEUED
        and step.due is None
        and step.until is None
        and step.fallback is None
        and step.wake_at is None
        and step.left is None
        and event.attempt_number == step.attempts
        and (event.iteration or 0) == step.iteration
    )


def _is_within(plan: StepPlan, began: str, answered: str) -> bool:
    """Whether the step certainly ended after it began, and before its timeout: in the same minute, as nearly all do."""
    if began[:MINUTE] != answered[:MINUTE] or len(began) != len(answered) or began > answered or not is_utc(began):
        return False
    return plan.timeout_s is None or float(answered[MINUTE:-1]) - float(began[MINUTE:-1]) < plan.timeout_s


def _is_small(output: Raw | UnsetType) -> bool:
    return isinstance(output, UnsetType) or memoryview(output).nbytes <= OUTPUT_INLINE_BYTES_MAX
