"""The workflows of the storm: between them they have every kind of step, timer and end."""

from __future__ import annotations

from typing import Any

from . import kind_workflows, limited_workflows
from .kind_workflows import DOOM, FRAIL, LIST, NOBODY, PATIENT, PIECE, PLAN, ROUTED, SLOW, WORK

LOOP, WAIT = "chaos.loop", "chaos.wait"
TASKS = (WORK, LOOP, WAIT, SLOW, DOOM, LIST, PIECE, FRAIL, PLAN)  # nobody does NOBODY

HOOK, CRON, SENT, ROUTE = "chaos-hook", "chaos-cron", "chaos-sent", "chaos-route"
ROUTE_PATH = "chaos/asked"
SIGNAL = "go"

CHAIN, DIAMOND, AGENT, SIGNALLED, CONSENT, DOOMED, TIMED, PARKED, STICKY, BRIEF = (
    f"chaos-{word}"
    for word in ("chain", "diamond", "agent", "signalled", "consent", "doomed", "timed", "parked", "sticky", "brief")
)
SHORT, LOST = "chaos-short", "chaos-lost"  # whose runs are removed; the second one leaves dead letters


def _step(step_id: str, task: str, *after: str, **more: Any) -> dict[str, Any]:
    return {"id": step_id, "task": task, "depends_on": list(after), **more}


DEFINITIONS: list[dict[str, Any]] = [
    {
        "name": CHAIN,
        "default_retry": PATIENT,
        "steps": [_step("a", WORK), _step("b", WORK, "a", timeout="3s"), _step("c", WORK, "b")],
    },
    {
        "name": DIAMOND,
        "default_retry": PATIENT,
        "steps": [
            _step("a", WORK),
            _step("b", WORK, "a", metadata={"bytes": "6000"}),
            _step("c", WORK, "a", skip_if={"step_id": "a", "field": "even", "op": "==", "value": True}),
            _step("d", WORK, "b", "c"),
        ],
    },
    {
        "name": AGENT,
        "default_retry": PATIENT,
        "steps": [
            _step(
                "loop",
                LOOP,
                type="agent_loop",
                config={"max_iterations": 8, "max_duration": "10m", "loop_delay": "150ms"},
            ),
            _step("after", WORK, "loop"),
        ],
    },
    {"name": SIGNALLED, "default_retry": PATIENT, "steps": [_step("wait", WAIT), _step("after", WORK, "wait")]},
    {
        "name": CONSENT,
        "default_retry": PATIENT,
        "steps": [
            _step("a", WORK),
            {"id": "consent", "type": "approval", "depends_on": ["a"], "config": {"timeout": "25s"}},
            _step("after", WORK, "consent"),
        ],
    },
    {
        "name": DOOMED,
        "steps": [
            _step("a", WORK, retry=PATIENT),
            _step("doom", DOOM, "a"),
            _step("after", WORK, "doom", retry=PATIENT),
        ],
    },
    {
        "name": TIMED,
        "timeout": "9s",
        "steps": [_step("slow", SLOW, timeout="1s", retry=PATIENT), _step("after", WORK, "slow")],
    },
    {"name": PARKED, "steps": [_step("a", WORK, retry=PATIENT), _step("never", NOBODY, "a")]},
    {
        "name": STICKY,
        "sticky": "soft",
        "default_retry": PATIENT,
        "steps": [_step("a", WORK), _step("b", WORK, "a"), _step("c", WORK, "b")],
    },
    {"name": BRIEF, "default_retry": PATIENT, "steps": [_step("a", WORK)]},
    {"name": SHORT, "default_retry": PATIENT, "steps": [_step("a", WORK)]},
    {"name": LOST, "steps": [_step("a", WORK, retry=PATIENT), _step("doom", DOOM, "a")]},
    *kind_workflows.DEFINITIONS,
    *limited_workflows.DEFINITIONS,
]

TRIGGERS: list[dict[str, Any]] = [
    {"name": HOOK, "workflow": BRIEF, "enabled": True, "webhook": {}},
    {"name": SENT, "workflow": BRIEF, "enabled": True, "event": {"subject": f"event.{SENT}"}},
    {"name": ROUTE, "workflow": ROUTED, "enabled": True, "http": {"path": ROUTE_PATH, "auth": "none", "timeout": "8s"}},
    {"name": CRON, "workflow": BRIEF, "enabled": True, "cron": {"expression": "* * * * * *"}},
]
