"""Handlers: tasks that follow from the failure of a step, and those that undo a step.

They are executions like any other, `<step>.on_failure` and `<step>.compensate`, and stand among the steps of the run
once they exist. They are not in the graph of the definition: nothing depends on them but the step that they handle.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw, UnsetType

from penstock.engine.expressions.places import INPUT, Place
from penstock.engine.run.commands import Command, DeadLetterTask
from penstock.engine.run.events import Record
from penstock.engine.run.execution.beginning import DEFAULT
from penstock.engine.run.execution.compensation import undone
from penstock.engine.run.execution.dispatch import task_with
from penstock.engine.run.execution.steps import dead_lettered, fail_with, recovered
from penstock.engine.run.kinds.normal import Normal
from penstock.engine.run.state import Run
from penstock.engine.run.workflow import COMPENSATE, ON_FAILURE, Advance, Evaluated, StepPlan, Workflow
from penstock.engine.texts import halves


class Handler(Normal):
    """What follows from the end of a step. It is given `default`, what has become of the step, or its `with`."""

    places: tuple[Place, ...] = (INPUT,)

    def begin(self, workflow: Workflow, run: Run, plan: StepPlan, at: float, values: Evaluated) -> Sequence[Command]:
        return [task_with(run, plan, run.step(plan.id), values.get(INPUT.path, values[DEFAULT]))]


class FailureHandler(Handler):
    """What is carried out when a step has failed for good. Where it completes, the step has recovered."""

    name = ON_FAILURE

    def done(self, workflow: Workflow, run: Run, record: Record, plan: StepPlan, output: Raw | UnsetType) -> Advance:
        return recovered(workflow, run, record, handled(workflow, plan), output)

    def gave_up(self, workflow: Workflow, run: Run, record: Record, plan: StepPlan, error: str) -> Advance:
        """The run fails with both errors, and the step's failure leaves its dead letter after all."""
        step = handled(workflow, plan)
        own, other = halves(run.steps[step.id].error or "", error)
        letter = _dead_letter(workflow, run, step)
        run, commands = fail_with(workflow, run, record, step.id, f"{own}; its on_failure failed, too: {other}")
        return run, [letter, *commands]


class StepCompensation(Handler):
    """What undoes a step that has completed. Where it fails for good, those of the other steps follow all the same."""

    name = COMPENSATE

    def done(self, workflow: Workflow, run: Run, record: Record, plan: StepPlan, output: Raw | UnsetType) -> Advance:
        return undone(workflow, run, record)

    def gave_up(self, workflow: Workflow, run: Run, record: Record, plan: StepPlan, error: str) -> Advance:
        return undone(workflow, run, record, failed=True)


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
