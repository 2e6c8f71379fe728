"""What the engine makes of steps: when they begin, what they are skipped by, what they are done with."""

from __future__ import annotations

from msgspec import UnsetType

from penstock.engine.run.events import Record, StepTakenOver
from penstock.engine.run.state import StepState, StepStatus
from tests.simulation.retold import templates
from tests.simulation.retold.told import HANDLER, OUT, Told, begun_with, followed, json

NOTHING_YET = (StepStatus.PENDING, StepStatus.CANCELLED)


class Moves:
    """Those of the steps of one run."""

    def __init__(self, told: Told) -> None:
        self._told = told

    def moved(self, step_id: str, old: StepState, new: StepState, record: Record) -> None:
        """Raises Broken."""
        if isinstance(record.event, StepTakenOver) and record.event.step_id == step_id:
            return  # it was done in another run
        begins = new.status in OUT and old.status not in OUT
        if begins or (old.status in NOTHING_YET and new.status not in NOTHING_YET):
            self._check_ready(step_id)
            self._told.ready_at[step_id] = record.at
            self._told.ordered_at[step_id] = [] if self._told.paused else [record.at]
        if old.status is new.status or followed(step_id) != step_id:
            return
        if new.status is StepStatus.SKIPPED or old.status is StepStatus.QUEUED:
            self._check_condition(step_id, new)
        if new.status in (StepStatus.COMPLETED, StepStatus.RECOVERED):
            self._check_completed(step_id, new)
        self._check_start(step_id, old, new, record)

    def _check_ready(self, step_id: str) -> None:
        if step_id.endswith(HANDLER) and not self._told.has_failed(followed(step_id)):
            raise self._told.broken(f"{step_id} begins, and the step can still be tried")
        if followed(step_id) != step_id:
            return
        for needed in self._told.steps[step_id].depends_on:
            if not self._told.is_done(needed):
                raise self._told.broken(f"{step_id} begins before {needed} is done")

    def _check_condition(self, step_id: str, new: StepState) -> None:
        """A step begins, or is skipped, as its condition says; one that cannot be evaluated fails it."""
        step = self._told.steps[step_id]
        if step.when is None or new.status is StepStatus.CANCELLED or step_id in self._told.overridden:
            return
        wanted = templates.holds(step.when, self._told.scope(step))
        skipped = new.status is StepStatus.SKIPPED
        if wanted is None and new.status is not StepStatus.FAILED:
            raise self._told.broken(f"the condition of {step_id} fails, and it is {new.status}")
        if wanted is not None and skipped is wanted:
            raise self._told.broken(f"{step_id} is {new.status}, and its condition says {wanted}")

    def _check_start(self, step_id: str, old: StepState, new: StepState, record: Record) -> None:
        """An answer that says when its worker began is all that does so."""
        start = begun_with(record)
        if start is None or start.event.step_id != step_id or old.status is StepStatus.RUNNING:  # type: ignore[union-attr]
            return
        if new.status in (StepStatus.COMPLETED, StepStatus.FAILED) and new.started_at != start.event.timestamp:
            raise self._told.broken(f"{step_id} began at {start.event.timestamp}, not at {new.started_at}")

    def _check_completed(self, step_id: str, new: StepState) -> None:
        recovered = new.status is StepStatus.RECOVERED
        if not self._told.is_done(step_id) or recovered is not self._told.is_recovered(step_id):
            raise self._told.broken(f"{step_id} is {new.status}, and the log does not say so")
        if not isinstance(new.output, UnsetType) and (out := json(new.output)) != self._told.output(step_id):
            raise self._told.broken(f"{step_id} has the output {out}, not {self._told.output(step_id)}")
