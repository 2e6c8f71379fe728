"""What becomes of the plans of planners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from penstock.engine.definition.definitions import Step, steps_from_json
from penstock.engine.run.events import PlannerExpanded
from penstock.engine.run.state import Run
from tests.simulation import planned
from tests.simulation.retold.told import Told

REFUSED = "the plan is refused: "


class Plans:
    """Those of one run."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._returned: dict[str, Any] = {}

    def returned(self, step_id: str, plan: Any) -> None:
        """The worker of a planner has returned something, which is not part of the run yet."""
        self._returned[step_id] = plan

    def failed(self, step_id: str, error: str) -> None:
        """A step has failed, which may be a planner: by its plan, or by something else. Raises Broken."""
        plan = self._returned.pop(step_id, None)
        if error.startswith(REFUSED) is not (plan is not None and planned.is_refused(plan)):
            raise self._told.broken(f"{step_id} has failed by its plan {plan}: {error}")

    def taken_over(self, event: PlannerExpanded) -> None:
        """The plan is that of the run that is repeated. Raises Broken."""
        first, steps = self._told.first, steps_from_json(bytes(event.payload.steps))
        if first is None or first.fragments.get(event.step_id) != [f"{event.step_id}.{step.id}" for step in steps]:
            raise self._told.broken(f"{event.step_id} is taken over with another plan")
        self._insert(event.step_id, steps)

    def expanded(self, before: Run, event: PlannerExpanded) -> None:
        """The steps of a plan are part of the run from now on: they may depend on one another. Raises Broken."""
        within, plan, told = event.step_id, self._returned.pop(event.step_id), self._told
        steps = steps_from_json(bytes(event.payload.steps))
        if planned.is_refused(plan) or [step.id for step in steps] != [step["id"] for step in plan["steps"]]:
            raise told.broken(f"{within} has got the steps {[step.id for step in steps]} by the plan {plan}")
        told.over.add((within, before.step(within).attempts))
        self._insert(within, steps)

    def _insert(self, within: str, steps: Sequence[Step]) -> None:
        told = self._told
        told.fragments[within] = [f"{within}.{step.id}" for step in steps]
        for step in steps:
            needed = tuple(f"{within}.{name}" for name in step.depends_on)
            told.steps[f"{within}.{step.id}"] = replace(step, id=f"{within}.{step.id}", depends_on=needed)
