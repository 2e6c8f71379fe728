"""Handlers: tasks that follow from the failure of a step.

They are executions like any other, `<step>.on_failure`, and stand among the steps of the run once they exist. They are
not in the graph of the definition: nothing depends on them but the step that they handle.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw, UnsetType

from penstock.engine.expressions.places import INPUT, Place
from penstock.engine.run.commands import Command, DeadLetterTask
from penstock.engine.run.events import Record
from penstock.engine.run.execution.beginning import DEFAULT
from penstock.engine.run.execution.dispatch import task_with
from penstock.engine.run.execution.steps import dead_lettered, fail_with, recovered
from penstock.engine.run.kinds.normal import Normal
from penstock.engine.run.state import Run
from penstock.engine.run.workflow import Advance, Evaluated, StepPlan, Workflow
from penstock.engine.texts import halves


class FailureHandler(Normal):
    """What is carried out when a step has failed for good. Where it completes, the step has recovered."""

    name = "on_failure"
    places: tuple[Place, ...] = (INPUT,)

    def begin(self, workflow: Workflow, run: Run, plan: StepPlan, at: float, values: Evaluated) -> Sequence[Command]:
        return [task_with(run, plan, run.step(plan.id), values.get(INPUT.path, values[DEFAULT]))]

    def done(self, workflow: Workflow, run: Run, record: Record, plan: StepPlan, output: Raw | UnsetType) -> Advance:
        return recovered(workflow, run, record, handled(workflow, plan), output)

    def gave_up(self, workflow: Workflow, run: Run, record: Record, plan: StepPlan, error: str) -> Advance:
        """The run fails with both errors, and the step's failure leaves its dead letter after all."""
        step = handled(workflow, plan)
        own, other = halves(run.steps[step.id].error or "", error)
        letter = _dead_letter(workflow, run, step)
        run, commands = fail_with(run, record, step.id, f"{own}; its on_failure failed, too: {other}")
        return run, [letter, *commands]


def handled(workflow: Workflow, plan: StepPlan) -> StepPlan:
    """The plan of the step that this handler is of."""
    assert plan.handles is not None
    return workflow.steps[plan.handles]


def _dead_letter(workflow: Workflow, run: Run, step: StepPlan) -> DeadLetterTask:
    """That of the failed step; of a map, that of the element with which it failed."""
    state = run.steps[step.id]
    error, items = state.error or "", state.items
    item = None if items is None or items.failed is None else workflow.plan_of(f"{step.id}.{items.failed}")
    return (
        dead_lettered(run, step, state, error) if item is None else dead_lettered(run, item, run.step(item.id), error)
    )
