"""What follows from the end of a step is an execution of its own: `<step>.on_failure`, `<step>.compensate`."""

from __future__ import annotations

from penstock.engine.run.events import Record
from penstock.engine.run.execution.elements import with_step
from penstock.engine.run.state import Run, StepState, StepStatus
from penstock.engine.run.workflow import Advance, StepPlan, Workflow


def enter_handler(workflow: Workflow, run: Run, record: Record, plan: StepPlan) -> Advance:
    """Order what follows from the end of a step. Attempts from before a resumption are still counted."""
    before = run.steps.get(plan.id, StepState.WAITING)
    queued = StepState(
        status=StepStatus.QUEUED,
        attempts=before.attempts + 1,
        base=before.attempts,
        unbegun=before.unbegun,
        handles=plan.handles,
    )
    step, ordered = plan.kind.order(workflow, run, record, plan, queued)
    return with_step(run, record, plan.id, step), ordered
