"""The end of a planner's fragment: the planner is done with its last steps, and its output is theirs."""

from __future__ import annotations

from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from penstock.config.limits import OUTPUT_INLINE_BYTES_MAX
from penstock.engine.run.commands import ExpandPlan
from penstock.engine.run.events import Record
from penstock.engine.run.execution.elements import with_step
from penstock.engine.run.execution.inputs import outputs, skipped_by
from penstock.engine.run.payloads import PayloadRef, joined, size_of
from penstock.engine.run.state import STEP_DONE, Run, StepState, StepStatus
from penstock.engine.run.workflow import StepPlan, Workflow


def is_planned(run: Run, command: ExpandPlan) -> bool:
    """Whether the plan of this attempt of the planner is still to be checked."""
    step = run.step(command.step_id)
    return awaits_check(run, command.step_id, step) and step.attempts == command.attempt and not run.failing


def awaits_check(run: Run, step_id: str, step: StepState) -> bool:
    """Whether the planner's worker has returned a plan, and its steps are not part of the run yet."""
    has_plan = step.output_at is not None or not isinstance(step.output, UnsetType)
    return step.status is StepStatus.RUNNING and has_plan and step_id not in run.fragments


def has_ended(workflow: Workflow, run: Run, planner_id: str) -> bool:
    """Whether the last steps of the planner's fragment are done, and the planner is not yet."""
    if run.steps[planner_id].status is not StepStatus.RUNNING:
        return False
    return all(run.steps[step_id].status in STEP_DONE for step_id in workflow.lasts[planner_id].values())


def closed(workflow: Workflow, run: Run, record: Record, planner: StepPlan, last: Raw | UnsetType) -> Run:
    """The run with the planner completed. `last` is the output of the step that was done last."""
    step = replace(
        run.step(planner.id),
        status=StepStatus.COMPLETED,
        finished_at=record.event.timestamp,
        error=None,
        completed_seq=0 if planner.compensate is None else record.seq,
    )
    return with_step(run, record, planner.id, _with_output(workflow, run, planner, step, last))


def _with_output(workflow: Workflow, run: Run, planner: StepPlan, step: StepState, last: Raw | UnsetType) -> StepState:
    lasts = workflow.lasts[planner.id]
    if not lasts:
        return step
    found = outputs(run, tuple(lasts.values()), tuple(lasts))
    if isinstance(found, PayloadRef):
        skips = () if isinstance(last, UnsetType) else skipped_by(workflow, planner, last)
        return replace(step, output_at=found, skips=skips)
    if isinstance(found, dict) and size_of(found) <= OUTPUT_INLINE_BYTES_MAX:
        small = {name: part for name, part in found.items() if isinstance(part, Raw)}
        found = joined(small) if len(small) == len(found) else found
    if isinstance(found, Raw) and size_of(found) <= OUTPUT_INLINE_BYTES_MAX:
        return replace(step, output=found)
    return replace(step, output=UNSET, parts=dict(lasts))
