"""Whether a run, or a step of it, has ended and says nothing more."""

from __future__ import annotations

from penstock.engine.errors import NotFound
from penstock.engine.run.items import ENDED, Element
from penstock.engine.run.state import ITEM_STEP, STEP_ENDED, Run


def check_step(run: Run, step_id: str | None) -> None:
    """Raises NotFound for a step that is not in the run, nor below one that is."""
    if step_id is None or step_id in run.steps:
        return
    parts = step_id.split(".")
    if not any(".".join(parts[:cut]) in run.steps for cut in range(1, len(parts))):
        raise NotFound(f'run {run.run_id} has no step "{step_id}"')


def status_at_end(run: Run, step_id: str | None) -> str | None:
    """The status with which the step has ended, or the run; None before that."""
    if step_id is not None:
        step, element = run.steps.get(step_id), _element(run, step_id)
        if step is not None and step.status in STEP_ENDED:
            return step.status
        if element is not None and element.status in ENDED:
            return ITEM_STEP[element.status]
    return run.status if run.ended else None


def _element(run: Run, step_id: str) -> Element | None:
    """The element of a map that has this id."""
    map_id, _, number = step_id.rpartition(".")
    step = run.steps.get(map_id)
    if step is None or step.items is None or not number.isascii() or not number.isdigit():
        return None
    return step.items.get(int(number)) if int(number) < step.items.total else None
