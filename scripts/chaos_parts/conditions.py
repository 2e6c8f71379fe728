"""Whether a step is skipped by its `skip_if`, by the words of the documentation."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import json

from penstock.engine.run.workflow import StepPlan

from .step_account import StepAccount

COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def skips(plan: StepPlan, steps: Mapping[str, StepAccount]) -> bool:
    """A field that is not there, or of another type, does not skip the step; numbers are of one type."""
    condition = plan.skip_if
    if condition is None:
        return False
    found = steps[condition.step_id].output
    for name in condition.field.split("."):
        if not isinstance(found, dict) or name not in found:
            return False
        found = found[name]
    wanted = json.decode(condition.value)
    if _kind(found) is not _kind(wanted):
        return False
    try:
        return COMPARE[condition.op](found, wanted)
    except TypeError:  # no order: objects, null
        return False


def _kind(value: Any) -> type:
    return float if type(value) is int else type(value)
