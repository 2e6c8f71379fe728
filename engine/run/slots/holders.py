"""Who holds a slot, or waits for one: the names by which limits know a run and its executions."""

from __future__ import annotations

from penstock.engine.limits.names import LimitKind
from penstock.engine.run.commands import RequestSlot
from penstock.engine.run.holds import SlotState
from penstock.engine.run.slots.plans import SlotsPlan
from penstock.engine.run.state import Run
from penstock.engine.run.workflow import Workflow

RUN = ""  # in `Run.slots`, in place of the id of an execution


def holder_of(run: Run, owner: str, slot: SlotState) -> str:
    """`<run_id>.<step_id>.<iteration>.<attempt>`, of the run as a whole `<run_id>.<resumes>`; then `+<pauses>` where it
    asked after pauses. One name is one acquisition and is never used twice."""
    own = f"{run.run_id}.{slot.attempt}"
    if owner != RUN:
        own = f"{run.run_id}.{owner}.{slot.iteration}.{slot.attempt}"
    return f"{own}+{slot.pauses}" if slot.pauses else own


def holds(run: Run, holder: str) -> bool:
    """Whether the run, or an execution of it, holds or awaits slots under this name."""
    return any(holder_of(run, owner, slot) == holder for owner, slot in run.slots.items())


def slots_of(workflow: Workflow, owner: str) -> SlotsPlan | None:
    """The slots that the run, a step, or an element of a map takes; None: none."""
    if owner == RUN:
        return workflow.slots
    plan = workflow.steps.get(owner)
    if plan is not None:
        return plan.slots
    map_id, _, digits = owner.rpartition(".")
    whole = workflow.steps.get(map_id)
    return None if whole is None or whole.each is None or not digits.isdecimal() else whole.each.slots


def awaits_slots(workflow: Workflow, run: Run, owner: str) -> bool:
    """Whether the run or the execution has not begun because it waits for a slot."""
    slot, wanted = run.slots.get(owner), slots_of(workflow, owner)
    return slot is not None and wanted is not None and slot.number < len(wanted.limits)


def is_awaited(run: Run, command: RequestSlot) -> bool:
    """Whether the slot that was ordered to be asked for is still waited for."""
    owner = command.step_id or RUN
    slot = run.slots.get(owner)
    is_it = slot is not None and (holder_of(run, owner, slot), slot.number) == (command.holder, command.number)
    return is_it and not run.failing and not run.ended


def held_above(run: Run) -> tuple[str, ...]:
    """The ids of the limits under whose slots a child of the run runs."""
    own = run.slots.get(RUN)
    held = () if own is None else own.granted
    return (*run.under, *(one.limit_id for one in held if one.kind == LimitKind.RUNS and one.limit_id not in run.under))
