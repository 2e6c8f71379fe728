"""Runs that undo their steps: what the tests of compensations have in common."""

from __future__ import annotations

from penstock.engine.run.commands import (
    Command,
)
from penstock.engine.run.state import StepStatus
from tests.engine.build import (
    Play,
    dispatched,
    step,
    workflow,
)


def undoable(step_id: str, *depends_on: str, **fields: object) -> dict[str, object]:
    return step(step_id, *depends_on, **{"compensate": {"task": f"UNDO_{step_id.upper()}"}, **fields})


ORDER = workflow(undoable("charge"), undoable("reserve", "charge"), step("ship", "reserve"))


def compensating(play: Play) -> list[tuple[str, int]]:
    """What is being undone now."""
    return [
        (step_id, found.attempts)
        for step_id, found in play.run.steps.items()
        if step_id.endswith(".compensate") and found.status in (StepStatus.QUEUED, StepStatus.RUNNING)
    ]


def undo_all(play: Play, commands: list[Command], output: object = None) -> list[str]:
    """Let every compensation complete, and return their ids in the order in which they were ordered."""
    order: list[str] = []
    ahead = play.carry_out(commands)
    while tasks := [step_id for step_id, _ in dispatched(ahead) if step_id.endswith(".compensate")]:
        order += tasks
        ahead = [command for task in tasks for command in play.carry_out(play.complete(task, output))]
    return order


def child(step_id: str, *depends_on: str, **fields: object) -> dict[str, object]:
    return {
        "id": step_id,
        "type": "sub_workflow",
        "depends_on": list(depends_on),
        "config": {"workflow": "child"},
        **fields,
    }
