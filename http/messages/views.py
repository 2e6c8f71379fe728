"""A run as users see it: the fields of SPEC, Run snapshot and PROTOCOL, Status; none that only the engine needs."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UNSET, Raw, Struct, UnsetType

from penstock.engine.run.events import TriggerRef
from penstock.engine.run.state import Run, StepState


class StepView(Struct, frozen=True, omit_defaults=True):
    """`attempts` are those that were begun. `output_bytes` stands in for an output that is left out because it is
    large: it has a place of its own."""

    status: str
    attempts: int
    output: Raw | UnsetType = UNSET
    error: str | None = None
    iteration: int = 0
    started_at: str | None = None
    finished_at: str | None = None
    worker_id: str | None = None
    output_bytes: int | UnsetType = UNSET
    traceback: str | None = None


class RunView(Struct, frozen=True, omit_defaults=True):
    """Defaults are left out of the answer. The input is null when the run has none; where `input_bytes` stands in for
    it, it is left out because it is large."""

    run_id: str
    workflow_id: str
    version: str
    status: str
    created_at: str
    steps: dict[str, StepView]
    input: Raw | UnsetType = UNSET
    error: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    run_at: str | None = None
    parent: str | None = None
    rerun_of: str | None = None
    trigger: TriggerRef | None = None
    input_bytes: int | UnsetType = UNSET


def view(run: Run, outputs: Mapping[int, Raw]) -> RunView:
    """A view of the run, all its steps included; payloads are not copied. `outputs` are those that were read back, by
    sequence."""
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
