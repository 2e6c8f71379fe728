"""What a step receives, what a run returns, and whether a step is skipped: all computed from existing outputs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import orjson
from msgspec import Raw, UnsetType

from penstock.engine.definition.definitions import SkipIf
from penstock.engine.run.event_payloads import NULL
from penstock.engine.run.payloads import Gathered, Parts, Payload, Value, joined, size_of
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
    return outputs(run, plan.depends_on, plan.labels or plan.depends_on)


def output_of(run: Run, step_id: str) -> Payload:
    """The output of a step that is done: null without one."""
    step = run.steps[step_id]
    return _combined(run, step) if step.parts else own_output(step)


def _combined(run: Run, planner: StepState) -> Payload:
    """The output of a planner whose fragment's outputs are large."""
    found = outputs(run, tuple(planner.parts.values()), tuple(planner.parts))
    return Parts(found, size_of(found)) if isinstance(found, Mapping) else found


def own_output(step: StepState) -> Payload:
    """As `output_of`, of any step but a planner whose fragment's outputs are large."""
    if step.output_at is not None:
        return step.output_at
    if step.items is not None and isinstance(step.output, UnsetType):
        return Gathered(step.items, step.items.output_bytes + 1)
    return NULL if isinstance(step.output, UnsetType) else step.output


def run_output(workflow: Workflow, run: Run) -> Value:
    """The output of the only terminal step, or an object from terminal step id to output."""
    return outputs(run, workflow.terminals, workflow.terminals)


def skips(run: Run, plan: StepPlan) -> bool:
    """Whether the step's condition holds. It does not if the field is missing or the values cannot be compared."""
    condition = plan.skip_if
    if condition is None:
        return False
    read = run.steps[condition.step_id]
    if read.output_at is not None:
        return plan.id in read.skips
    return _holds(condition, _at_hand(run, read))


def _at_hand(run: Run, step: StepState) -> Raw:
    """The step's output; of a planner with large outputs, only those that are part of the state."""
    if step.parts:
        found = {name: output_of(run, step_id) for name, step_id in step.parts.items()}
        return joined({name: part for name, part in found.items() if isinstance(part, Raw)})
    return NULL if isinstance(step.output, UnsetType) else step.output


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


def outputs(run: Run, step_ids: tuple[str, ...], names: tuple[str, ...]) -> Value:
    """The output of the only step, or an object from the steps' names to their outputs."""
    if len(step_ids) == 1:
        return output_of(run, step_ids[0])
    parts = {name: output_of(run, step_id) for name, step_id in zip(names, step_ids, strict=True)}
    small = {step_id: part for step_id, part in parts.items() if isinstance(part, Raw)}
    # Many parts make many bytes: the shell joins them one object at a time, not for all tasks of one event at once.
    return joined(small) if len(small) == len(parts) <= JOINED_PARTS_MAX else parts
