"""What a step receives, what a run gives back, and whether a step is skipped: all from outputs that are there
already."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import orjson
from msgspec import Raw, UnsetType

from penstock.engine.definition.definitions import SkipIf
from penstock.engine.run.events import NULL
from penstock.engine.run.payloads import Payload, Value, joined
from penstock.engine.run.state import Run, StepState
from penstock.engine.run.workflow import StepPlan, Workflow

JOINED_PARTS_MAX = 16

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def step_input(run: Run, plan: StepPlan, step: StepState) -> Value:
    """No dependency: the run's input. One: its output. Several: an object from dependency to output. Skipped: null.

    A loop's later iterations receive what the one before handed on.
    """
    if step.carried_at is not None:
        return step.carried_at
    if not isinstance(step.carried, UnsetType):
        return step.carried
    if not plan.depends_on:
        return run.input if run.input_at is None else run.input_at
    return _outputs(run, plan.depends_on)


def run_output(workflow: Workflow, run: Run) -> Value:
    """The only terminal step's output, or an object from terminal step id to output."""
    return _outputs(run, workflow.terminals)


def skips(run: Run, plan: StepPlan) -> bool:
    """Whether the step's condition holds. A missing field, or values of types that do not compare: it does not."""
    condition = plan.skip_if
    if condition is None:
        return False
    read = run.steps[condition.step_id]
    if read.output_at is not None:
        return plan.id in read.skips
    return _holds(condition, NULL if isinstance(read.output, UnsetType) else read.output)


def skipped_by(workflow: Workflow, plan: StepPlan, output: Raw) -> tuple[str, ...]:
    """The dependents whose condition this output of the step meets: to be kept where the output is not."""
    conditions = ((step_id, workflow.steps[step_id].skip_if) for step_id in plan.dependents)
    return tuple(
        step_id
        for step_id, found in conditions
        if found is not None and found.step_id == plan.id and _holds(found, output)
    )


def _holds(condition: SkipIf, output: Raw) -> bool:
    try:
        found = orjson.loads(bytes(output))
    except orjson.JSONDecodeError:  # JSON all the same, but with numbers or a depth beyond what can be compared
        return False
    for name in condition.field.split("."):
        if not isinstance(found, dict) or name not in found:
            return False
        found = found[name]
    wanted = orjson.loads(bytes(condition.value))
    return _kind(found) == _kind(wanted) and _compare(condition.op, found, wanted)


def _compare(op: str, found: Any, wanted: Any) -> bool:
    try:
        return COMPARE[op](found, wanted)
    except TypeError:
        return False


def _kind(value: Any) -> type:
    """JSON knows one kind of number, and a boolean is none."""
    return float if isinstance(value, int) and not isinstance(value, bool) else type(value)


def _outputs(run: Run, step_ids: tuple[str, ...]) -> Value:
    if len(step_ids) == 1:
        return _output(run.steps[step_ids[0]])
    parts = {step_id: _output(run.steps[step_id]) for step_id in step_ids}
    small = {step_id: part for step_id, part in parts.items() if isinstance(part, Raw)}
    # Many parts make many bytes: those are put together one object at a time, not all that follow from one event at
    # once.
    return joined(small) if len(small) == len(parts) <= JOINED_PARTS_MAX else parts


def _output(step: StepState) -> Payload:
    if step.output_at is not None:
        return step.output_at
    return NULL if isinstance(step.output, UnsetType) else step.output
