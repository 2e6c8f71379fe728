"""A run as users see it: the fields of SPEC, Run snapshot and PROTOCOL, Status, without those that only the engine
needs."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UNSET, Raw

from penstock.client.views import RunView, StepView
from penstock.engine.run.state import Run, StepState


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
        {step_id: _step(state, outputs) for step_id, state in run.steps.items()},
        value,
        run.error,
        run.started_at,
        run.finished_at,
        run.run_at,
        run.parent,
        run.rerun_of,
        run.trigger,
        UNSET if kept is None or value is not UNSET else kept.size,
    )


def _step(step: StepState, outputs: Mapping[int, Raw]) -> StepView:
    kept = step.output_at
    output = step.output if kept is None else outputs.get(kept.seq, UNSET)
    return StepView(
        step.status,
        step.begun,
        output,
        step.error,
        step.iteration,
        step.started_at,
        step.finished_at,
        step.worker_id,
        UNSET if kept is None or output is not UNSET else kept.size,
        step.traceback,
    )
