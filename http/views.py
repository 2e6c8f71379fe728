"""A run as users see it: the fields of SPEC, Run snapshot and PROTOCOL, Status; none that only the engine needs."""

from __future__ import annotations

from msgspec import UNSET, Raw, Struct, UnsetType

from penstock.engine.events import TriggerRef
from penstock.engine.state import Run, StepState


class StepView(Struct, frozen=True, omit_defaults=True):
    status: str
    attempts: int
    output: Raw | UnsetType = UNSET
    error: str | None = None
    iteration: int = 0
    started_at: str | None = None
    finished_at: str | None = None
    worker_id: str | None = None


class RunView(Struct, frozen=True, omit_defaults=True):
    """Defaults are left out of the answer; the input is always there, null when the run has none."""

    run_id: str
    workflow_id: str
    version: str
    status: str
    created_at: str
    input: Raw
    steps: dict[str, StepView]
    error: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    run_at: str | None = None
    parent: str | None = None
    rerun_of: str | None = None
    trigger: TriggerRef | None = None


def view(run: Run) -> RunView:
    """A view of the run, all its steps included; payloads are not copied."""
    return RunView(
        run.run_id,
        run.workflow_id,
        run.version,
        run.status,
        run.created_at,
        run.input,
        {step_id: _step(state) for step_id, state in run.steps.items()},
        run.error,
        run.started_at,
        run.finished_at,
        run.run_at,
        run.parent,
        run.rerun_of,
        run.trigger,
    )


def _step(step: StepState) -> StepView:
    return StepView(
        step.status,
        step.attempts,
        step.output,
        step.error,
        step.iteration,
        step.started_at,
        step.finished_at,
        step.worker_id,
    )
