"""What a step receives, what a run returns, and whether a step is skipped: all computed from existing outputs."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import orjson
from msgspec import Raw, UnsetType

from penstock.engine.definition.definitions import SkipIf
from penstock.engine.run.events import NULL
from penstock.engine.run.payloads import Gathered, Payload, Value, joined
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
    """The input of a step: without dependencies, the run's input; with one, its output; with several, an object from
    dependency to output. A skipped dependency gives null.

    Later iterations of a loop receive the payload of the `step.continue` before.
    """
    if step.carried_at is not None:
        return step.carried_at
    if not isinstance(step.carried, UnsetType):
        return step.carried
    if not plan.depends_on:
        return run.input if run.input_at is None else run.input_at
    return _outputs(run, plan.depends_on)


def output_of(step: StepState) -> Payload:
    """The output of a step that is done: null without one."""
    if step.output_at is not None:
        return step.output_at
    if step.items is not None and isinstance(step.output, UnsetType):
        return Gathered(step.items, step.items.output_bytes + 1)
    return NULL if isinstance(step.output, UnsetType) else step.output


def run_output(workflow: Workflow, run: Run) -> Value:
    """The output of the only terminal step, or an object from terminal step id to output."""
    return _outputs(run, workflow.terminals)


def skips(run: Run, plan: StepPlan) -> bool:
    """Whether the step's condition holds. It does not if the field is missing or the values cannot be compared."""
    condition = plan.skip_if
    if condition is None:
        return False
    read = run.steps[condition.step_id]
    if read.output_at is not None:
        return plan.id in read.skips
    return _holds(condition, NULL if isinstance(read.output, UnsetType) else read.output)


def skipped_by(workflow: Workflow, plan: StepPlan, output: Raw) -> tuple[str, ...]:
    """The dependents whose condition this output of the step meets. They are stored when the output itself is not."""
    conditions = ((step_id, workflow.steps[step_id].skip_if) for step_id in plan.dependents)
    return tuple(
        step_id
        for step_id, found in conditions
        if found is not None and found.step_id == plan.id and _holds(found, output)
    )


def _holds(condition: SkipIf, output: Raw) -> bool:
    try:
        found = orjson.loads(bytes(output))
    except orjson.JSONDecodeError:  # valid JSON, but with numbers or a depth that cannot be compared
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
    """The type of a JSON value for comparisons: all numbers are one type, and a boolean is not a number."""
    return float if isinstance(value, int) and not isinstance(value, bool) else type(value)


def _outputs(run: Run, step_ids: tuple[str, ...]) -> Value:
    if len(step_ids) == 1:
        return output_of(run.steps[step_ids[0]])
    parts = {step_id: output_of(run.steps[step_id]) for step_id in step_ids}
    small = {step_id: part for step_id, part in parts.items() if isinstance(part, Raw)}
    # Many parts make many bytes: the shell joins them one object at a time, not for all tasks of one event at once.
    return joined(small) if len(small) == len(parts) <= JOINED_PARTS_MAX else parts
