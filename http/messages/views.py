"""A run as users see it: the fields of SPEC, Run snapshot and PROTOCOL, Status, without those that only the engine
needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import UNSET, Raw, UnsetType

from penstock.actors.runs.outputs import Kept
from penstock.broker.live.progress import StepProgress
from penstock.client.views import ItemCounts, ParentView, ProgressView, RunView, StepView, WaitView
from penstock.engine.run.event_payloads import ParentRef
from penstock.engine.run.execution.inputs import output_of
from penstock.engine.run.items import Items
from penstock.engine.run.payloads import size_of
from penstock.engine.run.state import Run, StepState, StepStatus
from penstock.engine.times import rfc3339

Progressing = Callable[[str, str, int], StepProgress | None]
"""The progress of a run's step in an attempt, as far as this process knows it."""


def view(
    run: Run,
    outputs: Mapping[Kept, Raw],
    progressing: Progressing = lambda *step: None,
    payload_max: int | None = None,
) -> RunView:
    """A view of the run with all its steps; payloads are not copied. `outputs` are those that were read from the
    history, by sequence. The sizes of payloads over `payload_max` bytes stand in place of them."""
    kept = run.input_at
    value, size = _shown(
        run.input if kept is None else outputs.get((run.run_id, kept.seq), UNSET),
        UNSET if kept is None else kept.size,
        payload_max,
    )
    return RunView(
        run.run_id,
        run.workflow_id,
        run.version,
        run.status,
        run.created_at,
        {
            step_id: _step(run, step_id, state, outputs, progressing, payload_max)
            for step_id, state in run.steps.items()
        },
        value,
        run.error,
        run.started_at,
        run.finished_at,
        run.run_at,
        ParentView(run.parent.run_id, run.parent.step_id) if isinstance(run.parent, ParentRef) else run.parent,
        run.rerun_of,
        run.trigger,
        size,
        run.failure_of,
        run.compensation.outcome if run.compensation is not None and run.ended else None,
        run.labels,
        run.rerun_from,
        None if run.pause is None else run.pause.at,
        run.imported is not None,
    )


def _shown(value: Raw | UnsetType, size: int | UnsetType, most: int | None) -> tuple[Raw | UnsetType, int | UnsetType]:
    """A payload of `size` bytes, if that is known, and its size: one of both."""
    if isinstance(value, UnsetType):
        return UNSET, size
    length = memoryview(value).nbytes
    return (value, UNSET) if most is None or length <= most else (UNSET, length)


def _step(
    run: Run,
    step_id: str,
    step: StepState,
    outputs: Mapping[Kept, Raw],
    progressing: Progressing,
    payload_max: int | None,
) -> StepView:
    kept = step.output_at
    output, size = _shown(
        step.output if kept is None else outputs.get((run.run_id, kept.seq), UNSET),
        UNSET if kept is None else kept.size,
        payload_max,
    )
    if (
        kept is None
        and output is UNSET
        and size is UNSET
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
        UNSET if step.items is None else item_counts(step.items),
        step.child_run_id,
        step.handles,
        _waits_for(step),
        UNSET if step.status is not StepStatus.RUNNING else _progress(progressing(run.run_id, step_id, step.attempts)),
        step.overridden,
    )


def _progress(said: StepProgress | None) -> ProgressView | UnsetType:
    return UNSET if said is None else ProgressView(said.done, said.total, said.text)


def _waits_for(step: StepState) -> WaitView | UnsetType:
    wait = step.waits_for
    if wait is None or step.status is not StepStatus.RUNNING:
        return UNSET
    return WaitView(wait.event, UNSET if wait.correlate is None else wait.correlate)


def item_counts(items: Items) -> ItemCounts:
    waiting, *counts = items.counts
    queued, *others = counts
    return ItemCounts(items.total, waiting + queued, *others)
