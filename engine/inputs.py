"""What a step receives, what a run gives back, and whether a step is skipped: all from outputs that are there already."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

import orjson
from msgspec import Raw, UnsetType

from penstock.engine.definitions import SkipIf
from penstock.engine.events import NULL
from penstock.engine.state import Run, StepState
from penstock.engine.workflow import StepPlan, Workflow

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def step_input(run: Run, plan: StepPlan, step: StepState) -> Raw:
    """No dependency: the run's input. One: its output. Several: an object from dependency to output. Skipped: null.

    A loop's later iterations receive what the one before handed on.
    """
    if not isinstance(step.carried, UnsetType):
        return step.carried
    if not plan.depends_on:
        return run.input
    if len(plan.depends_on) == 1:
        return _output(run, plan.depends_on[0])
    return _object(run, plan.depends_on)


def run_output(workflow: Workflow, run: Run) -> Raw:
    """The only terminal step's output, or an object from terminal step id to output."""
    if len(workflow.terminals) == 1:
        return _output(run, workflow.terminals[0])
    return _object(run, workflow.terminals)


def skips(run: Run, condition: SkipIf | None) -> bool:
    """Whether the condition holds. A missing field, or values of types that do not compare: it does not."""
    if condition is None:
        return False
    try:
        found = orjson.loads(bytes(_output(run, condition.step_id)))
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


def _output(run: Run, step_id: str) -> Raw:
    output = run.steps[step_id].output
    return NULL if isinstance(output, UnsetType) else output


def _object(run: Run, step_ids: Iterable[str]) -> Raw:
    return Raw(orjson.dumps({step_id: orjson.Fragment(bytes(_output(run, step_id))) for step_id in step_ids}))
