"""The storm's workflows with conditions, inputs of their own, and the kinds of steps that need no worker.

What their expressions give is worked out a second time in given.py.
"""

from __future__ import annotations

from typing import Any

WORK, LIST, PIECE, FRAIL, PLAN = (f"chaos.{word}" for word in ("work", "list", "piece", "frail", "plan"))
NOBODY, DOOM, SLOW = "chaos.nobody", "chaos.doom", "chaos.slow"

CHOSEN, ASLEEP, MAPPED, STRICT, PARENT, CHILD, FAMILY, PATRON, STUCK, WAITING, ASKING, PLANNED, RESCUED, MOURNER = (
    f"chaos-{word}"
    for word in (
        "chosen",
        "asleep",
        "mapped",
        "strict",
        "parent",
        "child",
        "family",
        "patron",
        "stuck",
        "waiting",
        "asking",
        "planned",
        "rescued",
        "mourner",
    )
)
CALLED, FETCHED, CLAN, DESERTED, LISTENING, UNDONE, GUARDIAN, WARD = (
    f"chaos-{word}" for word in ("called", "fetched", "clan", "deserted", "listening", "undone", "guardian", "ward")
)
UNPLANNED, SCRAPPED, RECALLED, ROUTED = (f"chaos-{word}" for word in ("unplanned", "scrapped", "recalled", "routed"))

ANSWER, NEWS = "chaos-answer", "chaos-news"  # events that runs wait for: one each, and all of them the same
THREE = [1, 2, 3]
REFUSED = 2  # the number of an answer that the second wait does not take
SHORT_S, LONG_S = 0.3, 2.5  # a sleep, by the output before it
WAIT_S, LOOKBACK_S, ASK_S, STUCK_S = 6, 60, 5, 2
PATIENT: dict[str, Any] = {"max_attempts": 12, "strategy": "exponential", "initial_delay": "100ms", "max_delay": "1s"}
NO_RETRY = {"max_attempts": 0}


def step(step_id: str, *after: str, **more: Any) -> dict[str, Any]:
    return {"id": step_id, "depends_on": list(after), **more}


def work(step_id: str, *after: str, **more: Any) -> dict[str, Any]:
    return step(step_id, *after, task=WORK, **more)


CORRELATE = {"field": "order.key", "value": "${{ input.key }}"}
WAIT = {
    "event": ANSWER,
    "correlate": CORRELATE,
    "lookback": f"{LOOKBACK_S}s",
    "timeout": f"{WAIT_S}s",
    "on_timeout": "continue",
}
WAITED = "5s"  # for what runs when its run begins to undo its steps; without a timeout it is five minutes
UNDO = {"key": "${{ input.key }}", "by": "${{ default.output.by }}"}
WHOLE = {"key": "${{ input.key }}", "of": "${{ default.step }}", "why": "${{ default.error }}"}

_STEPS: dict[str, list[dict[str, Any]]] = {
    CHOSEN: [
        work("a"),
        work(
            "b",
            "a",
            when="steps.a.output.even",
            **{"with": {"key": "${{ input.key }}", "by": "after ${{ steps.a.output.by }}"}},
        ),
        work("c", "a", "b", **{"with": {"a": "${{ steps.a.output }}", "b": "${{ steps.b.status }}"}}),
    ],
    ASLEEP: [
        work("a"),
        step(
            "nap",
            "a",
            type="sleep",
            config={"duration": f"${{{{ steps.a.output.even ? '{SHORT_S}s' : '{LONG_S}s' }}}}"},
        ),
        work("after", "nap"),
    ],
    MAPPED: [
        step("list", task=LIST),
        step("m", "list", type="map", task=PIECE, config={"max_concurrency": 3, "on_item_failure": "continue"}),
        work("after", "m"),
    ],
    STRICT: [
        step("list", task=LIST),
        step(
            "m",
            "list",
            type="map",
            task=FRAIL,
            config={"items": "${{ steps.list.output }}", "max_concurrency": 4},
            **{"with": {"number": "${{ item.number }}", "place": "${{ index }}", "key": "${{ input.key }}"}},
        ),
        work("after", "m"),
    ],
    PARENT: [
        work("a"),
        step(
            "child",
            "a",
            type="sub_workflow",
            config={"workflow": CHILD},
            **{"with": {"child": "${{ run.id }}", "by": "${{ steps.a.output.by }}"}},
        ),
        step("aside", "a", type="sub_workflow", config={"workflow": CHILD, "detach": True}),
        work("after", "child"),
    ],
    CHILD: [work("x"), step("y", "x", task=FRAIL)],
    FAMILY: [
        step("list", task=LIST),
        step(
            "m",
            "list",
            type="map",
            config={"workflow": CHILD, "max_concurrency": 2, "on_item_failure": "continue"},
            retry={"max_attempts": 1, "initial_delay": "200ms"},
        ),
        work("after", "m"),
    ],
    CLAN: [
        step("list", task=LIST),
        step("m", "list", type="map", config={"workflow": CHILD, "max_concurrency": 3}, retry=NO_RETRY),
        work("after", "m"),
    ],
    DESERTED: [
        step("doom", task=DOOM, retry=NO_RETRY),
        step(
            "m",
            type="map",
            config={"workflow": STUCK, "items": THREE, "max_concurrency": 2, "on_item_failure": "continue"},
            timeout=f"{STUCK_S}s",
            retry=NO_RETRY,
        ),
        step("w", type="wait_for_event", config={**WAIT, "lookback": "0s"}),
        work("after", "doom", "m", "w"),
    ],
    PATRON: [
        step(
            "child",
            type="sub_workflow",
            config={"workflow": STUCK},
            timeout=f"{STUCK_S}s",
            retry={"max_attempts": 1, "initial_delay": "100ms"},
            on_failure={"task": WORK},
        ),
        work("after", "child"),
    ],
    STUCK: [step("never", task=NOBODY)],
    WAITING: [
        work("a"),
        step("w", "a", type="wait_for_event", config=WAIT),
        step("again", "w", type="wait_for_event", config={**WAIT, "match": f"event.number != {REFUSED}"}),
        work("after", "again"),
    ],
    ASKING: [
        step("w", type="wait_for_event", config={"event": ANSWER, "correlate": CORRELATE, "timeout": f"{ASK_S}s"}),
        work("after", "w"),
    ],
    LISTENING: [
        step("w", type="wait_for_event", config={"event": NEWS, "timeout": f"{ASK_S}s", "on_timeout": "continue"}),
        work("after", "w"),
    ],
    PLANNED: [work("a"), step("plan", "a", task=PLAN, type="planner"), work("after", "plan")],
    RESCUED: [
        step("a", task=DOOM, retry=NO_RETRY, on_failure={"task": FRAIL, "with": WHOLE}),
        step("b", "a", task=DOOM, retry=NO_RETRY, on_failure={"task": WORK}),
        work("after", "b"),
    ],
    MOURNER: [work("a")],
    FETCHED: [
        work("a"),
        step(
            "fetch",
            "a",
            type="http",
            config={"url": "${{ input.url }}/${{ input.key }}", "headers": {"x-by": "${{ steps.a.output.by }}"}},
        ),
        work("after", "fetch"),
    ],
    UNDONE: [
        work("a", timeout=WAITED, compensate={"task": WORK, "with": UNDO}),
        step("list", task=LIST),
        step(
            "m",
            "list",
            type="map",
            task=PIECE,
            config={"max_concurrency": 3, "on_item_failure": "continue"},
            timeout=WAITED,
            compensate={"task": PIECE},
        ),
        work("b", "a", timeout=WAITED, compensate={"task": PIECE}),
        step("slow", "a", task=SLOW, timeout=WAITED, compensate={"task": WORK}),
        step("doom", "b", "m", task=DOOM),
        work("never", "doom"),
    ],
    UNPLANNED: [
        work("a", timeout=WAITED, compensate={"task": WORK}),
        step("plan", "a", task=PLAN, type="planner"),
        step("doom", "plan", task=DOOM),
    ],
    SCRAPPED: [
        work("a", timeout=WAITED, compensate={"task": PIECE}),
        step("list", "a", task=LIST),
        step("m", "list", type="map", task=FRAIL, timeout=WAITED, retry=NO_RETRY, compensate={"task": WORK}),
        work("after", "m"),
    ],
    RECALLED: [work("a", timeout=WAITED, compensate={"task": WORK}), step("b", "a", task=NOBODY)],
    WARD: [work("a", timeout=WAITED, compensate={"task": WORK}), step("b", "a", task=NOBODY)],
    GUARDIAN: [
        step("child", type="sub_workflow", config={"workflow": WARD}),
        step("nap", type="sleep", config={"duration": f"{SHORT_S}s"}),
        step("doom", "nap", task=DOOM),
        work("never", "child", "doom"),
    ],
    CALLED: [
        work("a"),
        step(
            "answer",
            "a",
            type="respond",
            config={
                "status": 201,
                "headers": {"x-key": "${{ input.key }}"},
                "body": {"by": "${{ steps.a.output.by }}"},
            },
        ),
        work("after", "a"),
    ],
    ROUTED: [
        work("a"),
        step(
            "answer",
            "a",
            type="respond",
            config={"status": 203, "body": {"key": "${{ input.body.key }}", "by": "${{ steps.a.output.by }}"}},
        ),
    ],
}
_OTHERWISE: dict[str, dict[str, Any]] = {RESCUED: {"on_failure": {"workflow": MOURNER}}}

DEFINITIONS: list[dict[str, Any]] = [
    {"name": name, "default_retry": PATIENT, "steps": steps, **_OTHERWISE.get(name, {})}
    for name, steps in _STEPS.items()
]

# What a planner's worker may answer. The last one is no plan: it is refused, and another one is asked for, as it is for
# a plan that has too many planners in one another.
PLANS: list[list[dict[str, Any]]] = [
    [],
    [work("x", timeout=WAITED, compensate={"task": WORK}), work("y", "x")],
    [work("x"), work("y", "x", "a", timeout=WAITED, compensate={"task": PIECE}), work("z", "x")],
    [work("x"), step("inner", "x", type="planner", task=PLAN)],
    [
        step("list", task=LIST),
        step(
            "m",
            "list",
            type="map",
            task=PIECE,
            config={"on_item_failure": "continue"},
            timeout=WAITED,
            compensate={"task": WORK},
        ),
        step("nap", "m", type="sleep", config={"duration": f"{SHORT_S}s"}),
    ],
    [work("x", "nobody")],
]
