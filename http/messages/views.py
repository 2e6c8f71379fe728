"""A run as users see it: the fields of SPEC, Run snapshot and PROTOCOL, Status, without those that only the engine
needs."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UNSET, Raw, UnsetType

from penstock.client.views import ItemCounts, ParentView, RunView, StepView, WaitView
from penstock.engine.run.events import ParentRef
from penstock.engine.run.execution.inputs import output_of
from penstock.engine.run.items import Items
from penstock.engine.run.payloads import size_of
from penstock.engine.run.state import Run, StepState, StepStatus
from penstock.engine.times import rfc3339


def view(run: Run, outputs: Mapping[int, Raw]) -> RunView:
    """A view of the run with all its steps; payloads are not copied. `outputs` are those that were read from the
    history, by sequence."""
    kept = run.input_at
    value = run.input if kept is None else outputs.get(kept.seq, UNSET)
    return RunView(
        run.run_id,
        run.workflow_id,
        run.version,
        run.status,
        run.created_at,
        {step_id: _step(run, step_id, state, outputs) for step_id, state in run.steps.items()},
        value,
        run.error,
        run.started_at,
        run.finished_at,
        run.run_at,
        ParentView(run.parent.run_id, run.parent.step_id) if isinstance(run.parent, ParentRef) else run.parent,
        run.rerun_of,
        run.trigger,
        UNSET if kept is None or value is not UNSET else kept.size,
        run.failure_of,
        run.compensation.outcome if run.compensation is not None and run.ended else None,
    )


def _step(run: Run, step_id: str, step: StepState, outputs: Mapping[int, Raw]) -> StepView:
    kept = step.output_at
    output = step.output if kept is None else outputs.get(kept.seq, UNSET)
    size = UNSET if kept is None or output is not UNSET else kept.size
    if (
        kept is None
        and output is UNSET
        and step.status is StepStatus.COMPLETED
        and (step.items is not None or step.parts)
    ):
        size = size_of(output_of(run, step_id))
    return StepView(
        step.status,
        step.begun,
        output,
        step.error,
        step.iteration,
        step.started_at,
        step.finished_at,
        step.worker_id,
        size,
        step.traceback,
        None if step.wake_at is None else rfc3339(step.wake_at),
        UNSET if step.items is None else _counts(step.items),
        step.child_run_id,
        step.handles,
        _waits_for(step),
    )


def _waits_for(step: StepState) -> WaitView | UnsetType:
    wait = step.waits_for
    if wait is None or step.status is not StepStatus.RUNNING:
        return UNSET
    return WaitView(wait.event, UNSET if wait.correlate is None else wait.correlate)


def _counts(items: Items) -> ItemCounts:
    waiting, *counts = items.counts
    queued, *others = counts
    return ItemCounts(items.total, waiting + queued, *others)
