"""The storm's workflows with limits: of runs and of executions, by key and shared between workflows, that wait, are
refused or replace others; and rates."""

from __future__ import annotations

from typing import Any

from .kind_workflows import DOOM, LIST, PATIENT, PIECE, SLOW, step, work

LIMITED, NARROW, SINGLE, NEWEST, RATED, HOUSE, ROOM = (
    f"chaos-{word}" for word in ("limited", "narrow", "single", "newest", "rated", "house", "room")
)
TEAM = "has(run.labels.team) ? run.labels.team : 'none'"
PIECES = {"limit": 2, "scope": "chaos-pieces"}
ROOMS = {"limit": 2, "scope": "chaos-rooms"}

_DEFINITIONS: dict[str, dict[str, Any]] = {
    LIMITED: {
        "concurrency": [{"limit": 1, "key": TEAM}, {"limit": 3, "scope": "chaos-several", "fair_by": TEAM}],
        "priority": f"({TEAM}) == 'red' ? 5 : 0",
        "steps": [work("a"), step("doom", "a", task=DOOM), work("after", "doom")],
    },
    NARROW: {
        "steps": [
            step("list", task=LIST),
            step(
                "m",
                "list",
                type="map",
                task=PIECE,
                config={"max_concurrency": 4, "on_item_failure": "continue"},
                concurrency=[{**PIECES, "fair_by": "input.key"}],
            ),
            work("b", "m", concurrency=[PIECES, {"limit": 1, "key": TEAM}], rate_limit=[{"limit": 5, "per": "1s"}]),
        ],
    },
    SINGLE: {
        "concurrency": [{"limit": 1, "on_limit": "skip"}, {"limit": 3, "scope": "chaos-several"}],
        "steps": [work("a"), work("after", "a")],
    },
    NEWEST: {
        "concurrency": [{"limit": 1, "on_limit": "replace"}],
        "steps": [work("a"), step("slow", "a", task=SLOW)],
    },
    RATED: {
        "rate_limit": [{"limit": 3, "per": "1s"}],
        "steps": [work("a", rate_limit=[{"limit": 4, "per": "1s", "burst": 2}]), work("after", "a")],
    },
    HOUSE: {
        "timeout": "60s",
        "concurrency": [ROOMS],
        "steps": [work("a"), step("child", "a", type="sub_workflow", config={"workflow": ROOM})],
    },
    ROOM: {"concurrency": [ROOMS], "steps": [work("x", concurrency=[PIECES])]},
}
STARTED = (LIMITED, LIMITED, NARROW, NARROW, SINGLE, NEWEST, NEWEST, RATED, HOUSE)  # a room only by its house

DEFINITIONS: list[dict[str, Any]] = [
    {"name": name, "default_retry": PATIENT, **definition} for name, definition in _DEFINITIONS.items()
]
