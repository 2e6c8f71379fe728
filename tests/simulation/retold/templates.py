"""The few forms of expressions and templates that the workflows of the simulation have, evaluated on our own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

DEFAULT = object()  # a step without `with`
PLACE = re.compile(r"\$\{\{ (.+?) \}\}")
STATUS = re.compile(r"(steps\.\w+\.status) == '(\w+)'")
FIELD = re.compile(r"(steps\.\w+\.output)\.x == 1")
Scope = Mapping[str, Any]


def evaluated(template: Any, scope: Scope) -> Any:
    """The value of a template."""
    match template:
        case dict():
            return {key: evaluated(value, scope) for key, value in template.items()}
        case list():
            return [evaluated(value, scope) for value in template]
        case str() if whole := PLACE.fullmatch(template):
            return _value(whole[1], scope)
        case str():
            return PLACE.sub(lambda found: str(_value(found[1], scope)), template)
        case _:
            return template


def holds(condition: str, scope: Scope) -> bool | None:
    """Whether it is true; None: it fails."""
    if condition in ("true", "false"):
        return condition == "true"
    if condition == "run.version == '1'":
        return bool(scope["run.version"] == "1")
    if found := STATUS.fullmatch(condition):
        return bool(scope[found[1]] == found[2])
    found = FIELD.fullmatch(condition)
    assert found is not None, condition
    output = scope[found[1]]
    return bool(output["x"] == 1) if isinstance(output, dict) and "x" in output else None


def time_of(until: str) -> float:
    """The time at which a sleep with this `until` ends, in s since the epoch."""
    if found := PLACE.fullmatch(until):
        return int(found[1]) / 1000
    return datetime.fromisoformat(until).timestamp()


def _value(expression: str, scope: Scope) -> Any:
    match expression:
        case "404":
            return 404
        case "[1, 2, run.version]":
            return [1, 2, scope["run.version"]]
        case "run.version + 's'":
            return f"{scope['run.version']}s"
        case _:
            return scope[expression]
