"""What the workers of planners return: plans, and what is none."""

from __future__ import annotations

import json
from typing import Any

A: dict[str, Any] = {"id": "a", "task": "t"}
B: dict[str, Any] = {"id": "b", "task": "u", "depends_on": ["a"], "with": {"a": "${{ steps.a.output }}"}}
NAP: dict[str, Any] = {"id": "n", "type": "sleep", "config": {"duration": "300ms"}}
MAP: dict[str, Any] = {"id": "a", "type": "map", "task": "t", "config": {"items": [1, "${{ run.version }}"]}}
CHILD: dict[str, Any] = {"id": "c", "type": "sub_workflow", "config": {"workflow": "quick"}}
INNER: dict[str, Any] = {"id": "q", "type": "planner", "task": "u"}
AFTER: dict[str, Any] = {"id": "z", "task": "t", "depends_on": ["q"]}

UNDO: dict[str, Any] = {"compensate": {"task": "u"}}
UNDONE: list[dict[str, Any]] = [{**A, **UNDO}, {**B, **UNDO}, {**MAP, **UNDO, "id": "m"}]

VALID: tuple[list[dict[str, Any]], ...] = (
    [A],
    [A, B],
    [A, NAP],
    [],
    [MAP, B],
    [A, CHILD],
    UNDONE,
    [INNER, AFTER],
    [INNER, A],
)
REFUSED: tuple[Any, ...] = (
    {"steps": [{**A, "depends_on": ["b"]}, B]},
    {"steps": [{**A, "depends_on": ["nowhere"]}]},
    {"steps": [A, A]},
    {"steps": 7},
    7,
)
PLAIN = json.dumps({"steps": [A]})


def plan_of(chance: int, depth: int) -> str:
    """What a planner's worker returns; one that stands in another's plan plans no other one."""
    if chance % 10 < 3:
        return json.dumps(REFUSED[chance // 10 % len(REFUSED)])
    most = len(VALID) - (2 if depth > 1 else 0)
    return json.dumps({"steps": VALID[chance // 10 % most]})


def is_refused(plan: Any) -> bool:
    """Whether the plan must not become part of its run."""
    return plan in REFUSED or not isinstance(plan, dict)
