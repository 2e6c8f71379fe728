"""Until when a step sleeps."""

from __future__ import annotations

from penstock.engine.definition.durations import parse
from penstock.engine.run.events import Record
from penstock.engine.run.state import Run
from penstock.engine.times import instant
from tests.simulation.retold import templates
from tests.simulation.retold.told import Told

ROUNDED_S = 0.001  # times in events are texts with microseconds


class Sleeps:
    """Those of one run."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._until: dict[str, float] = {}

    def begun(self, step_id: str, wake_at: str) -> None:
        """Raises Broken."""
        late_s = [instant(wake_at) - end for end in self._ends(step_id)]
        if all(abs(one) > ROUNDED_S for one in late_s):
            raise self._told.broken(f"{step_id} sleeps {late_s} s too long")
        self._until[step_id] = instant(wake_at)

    def ended(self, before: Run, step_id: str, record: Record) -> None:
        """Raises Broken."""
        early_s = self._until[step_id] - record.at
        if early_s > ROUNDED_S:
            raise self._told.broken(f"{step_id} has slept {early_s:.3f} s too short")
        self._told.succeeded(step_id, before.step(step_id).attempts)

    def _ends(self, step_id: str) -> list[float]:
        """By the definition, from when the step was ordered: perhaps again, after a pause."""
        step = self._told.steps[step_id]
        config = step.config or {}
        if "until" in config:
            return [templates.time_of(config["until"])]
        lasts_s = parse(templates.evaluated(config["duration"], self._told.scope(step)))
        return [at + lasts_s for at in self._told.ordered_at[step_id]]
