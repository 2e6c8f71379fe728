"""Definitions of every shape, with every kind of step, and plans of planners."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from msgspec import Raw

from penstock.engine.definition.definitions import steps_to_json
from penstock.engine.run.compiling import compile_workflow
from penstock.engine.run.workflow import Workflow
from penstock.engine.validation import parse

STEPS_MAX = 7

RETRY = st.fixed_dictionaries(
    {
        "max_attempts": st.sampled_from([2, 1, 3, 0]),
        "strategy": st.sampled_from(["fixed", "linear", "exponential"]),
        "initial_delay": st.sampled_from(["0s", "10s"]),
    },
    optional={"max_delay": st.just("15s")},
)
LOOP = st.fixed_dictionaries(
    {"max_iterations": st.sampled_from([3, 1, 5])},
    optional={"max_duration": st.sampled_from(["20s", "2m"]), "loop_delay": st.sampled_from(["0s", "5s"])},
) | st.fixed_dictionaries({"max_duration": st.sampled_from(["20s", "2m"])}, optional={"loop_delay": st.just("5s")})
OLD = ("normal", "normal", "agent_loop", "normal", "approval", "map", "sleep")
NEW = (
    "normal",
    "sub_workflow",
    "wait_for_event",
    "map_of_runs",
    "planner",
    "respond",
    "sub_workflow",
    "wait_for_event",
)
ALL = (*OLD, *NEW)
MAP = st.fixed_dictionaries(
    {"items": st.sampled_from([[1, 2], [1, "${{ input.x }}", 3, 4], [], {"not": "an array"}])},
    optional={"max_concurrency": st.sampled_from([1, 2]), "on_item_failure": st.sampled_from(["fail", "continue"])},
)
RUNS = st.sampled_from(["child", "child", "nowhere"])  # nobody has registered the last one
CHILD = st.fixed_dictionaries({"workflow": RUNS}, optional={"detach": st.booleans()})
WAIT = st.fixed_dictionaries(
    {"event": st.just("e"), "lookback": st.sampled_from(["0s", "1h", "1h"])},
    optional={
        "timeout": st.sampled_from(["30s", "10s"]),
        "match": st.just("event.x == 1"),
        "correlate": st.sampled_from([{"field": "x", "value": "${{ input.x }}"}, {"field": "x", "value": 0}]),
    },
)
PLANNER = st.none() | st.fixed_dictionaries({}, optional={"max_depth": st.sampled_from([1, 2])})
INPUT = {"with": {"x": "${{ input.x }}"}}


def conditions(depends_on: list[str]) -> st.SearchStrategy[str | None]:
    """Conditions: mostly none."""
    read = [f"steps.{step_id}.{rest}" for step_id in depends_on for rest in ('status == "completed"', "output.x == 1")]
    return st.sampled_from([None, None, None, None, "input.x == 1", "false", *read])


@st.composite
def definitions(draw: st.DrawFn) -> dict[str, object]:
    """Up to seven steps in any acyclic shape, several roots and ends included; few task types, so that steps share
    them."""
    steps: list[dict[str, object]] = []
    kinds = draw(st.sampled_from([OLD, OLD, NEW, NEW, ALL]))
    handler = st.none() | st.none() | st.fixed_dictionaries({"task": st.sampled_from(["t", "h"])})
    for number in range(draw(st.integers(1, STEPS_MAX))):
        before = [str(step["id"]) for step in steps]
        depends_on: list[str] = draw(st.lists(st.sampled_from(before), unique=True, max_size=3)) if before else []
        handlers = {"on_failure": draw(handler), "compensate": draw(handler)}
        step = {"id": f"s{number}", "depends_on": depends_on, **handlers, **draw(fields(kinds))}
        conditional = draw(st.booleans())
        if conditional and depends_on:
            step["skip_if"] = {"step_id": draw(st.sampled_from(depends_on)), "field": "x", "op": "==", "value": 1}
        step["when"] = draw(conditions(depends_on))
        steps.append(step)
    timeout, sticky = draw(st.sampled_from([None, None, "5m"])), draw(st.sampled_from([None, "soft", None, "hard"]))
    after = draw(st.sampled_from([None, None, {"workflow": "after"}]))
    general = {"default_retry": draw(RETRY), "timeout": timeout, "sticky": sticky, "on_failure": after}
    return {"name": "w", "steps": steps, **general}


@st.composite
def fields(draw: st.DrawFn, kinds: tuple[str, ...]) -> dict[str, object]:
    """What a step says, whatever it depends on."""
    kind = draw(st.sampled_from(kinds))
    match kind:
        case "approval":
            return {"type": kind, "config": {"timeout": draw(st.sampled_from(["30s", "1h"]))}}
        case "sleep":
            return {"type": kind, "config": {"duration": draw(st.sampled_from(["10s", "2m", "${{ input.x }}"]))}}
        case "respond":
            return {"type": kind, "config": {"body": "${{ input.x }}"}}
        case "wait_for_event":
            config = draw(WAIT)
            if config.get("correlate", {}).get("value") == 0:
                config.pop("match", None)  # nothing would meet both
            goes_on = {"on_timeout": draw(st.sampled_from(["continue", "fail"]))} if "timeout" in config else {}
            return {"type": kind, "config": {**config, **goes_on}}
    timed = {"timeout": draw(st.sampled_from([None, "30s"])), "retry": draw(st.none() | RETRY)}
    given = INPUT if draw(st.sampled_from([False, False, True])) else {}
    match kind:
        case "sub_workflow":
            return {"type": kind, "config": draw(CHILD), **timed, **given}
        case "map_of_runs":
            return {"type": "map", "config": {**draw(MAP), "workflow": draw(RUNS)}, **timed, **given}
    config = {"agent_loop": LOOP, "map": MAP, "planner": PLANNER}.get(kind, st.none())
    return {"type": kind, "task": draw(st.sampled_from(["t", "u"])), "config": draw(config), **timed, **given}


AT_A_TIME = st.lists(
    st.fixed_dictionaries({"limit": st.just(1)}, optional={"scope": st.sampled_from(["a", "b", "above"])}),
    max_size=3,
    unique_by=lambda one: one.get("scope"),
)
RATES = st.sampled_from([[], [], [{"limit": 5, "per": "1s"}], [{"limit": 5, "per": "1s", "scope": "a"}]])


@st.composite
def limited(draw: st.DrawFn) -> dict[str, object]:
    """Definitions most of whose tasks have limits, or the runs themselves."""
    definition = draw(definitions())
    steps = definition["steps"]
    assert isinstance(steps, list)
    for step in steps:
        if "task" in step:
            step["concurrency"], step["rate_limit"] = draw(AT_A_TIME), draw(RATES)
    if draw(st.booleans()):
        definition["rate_limit"] = draw(RATES)
        on_limit = st.sampled_from(["queue", "queue", "skip"])
        definition["concurrency"] = [one | {"on_limit": draw(on_limit)} for one in draw(AT_A_TIME)]
    return definition


def compiled(definition: dict[str, object]) -> Workflow:
    return compile_workflow(parse(definition), "digest")


def task(step_id: str, *depends_on: str, **fields: Any) -> dict[str, Any]:
    return {"id": step_id, "task": "t", "depends_on": list(depends_on), **fields}


def without_worker(kind: str, step_id: str, *depends_on: str, **config: Any) -> dict[str, Any]:
    return {"id": step_id, "type": kind, "depends_on": list(depends_on), "config": config}


ONE_A_SECOND = {"limit": 1, "per": "1s"}
AGAIN = without_worker("wait_for_event", "v", "r", event="e", lookback="1h")
LIMITED: dict[str, Any] = {"concurrency": [{"limit": 1, "key": "input.x"}], "rate_limit": [ONE_A_SECOND]}
PLANS: tuple[dict[str, Any], ...] = (
    {"steps": [task("a"), task("b", "a", when="steps.a.output.x == 1"), task("c", **LIMITED)]},
    {"steps": []},
    {"steps": [task("a"), task("q", "a", type="planner"), task("z", "q")]},
    {"steps": [task("m", type="map", config={"items": [1, 2], "max_concurrency": 1}), task("z", "m", retries=1)]},
    {
        "steps": [
            without_worker("sub_workflow", "c", workflow="child"),
            without_worker("sleep", "n", "c", duration="5s"),
        ]
    },
    {"steps": [without_worker("wait_for_event", "w", event="e"), without_worker("respond", "r", "w"), AGAIN]},
    {
        "steps": [
            task("h", on_failure={"task": "h"}),
            task("g", "h", description="long " * 1000, compensate={"task": "h"}),
        ]
    },
    {"steps": [without_worker("approval", "y", timeout="30s")]},
    {"steps": [task("a", "b"), task("b", "a")]},
    {"steps": [task("a", "nowhere"), task("a")]},
    {"plan": "none"},
)
VALID_PLANS = tuple(plan for plan in PLANS[:-3] if plan["steps"])
SMALL = 1  # of PLANS: it has no steps


def steps_of(plan: dict[str, Any]) -> Raw:
    """The steps of a valid plan, as they stand in the log."""
    return Raw(steps_to_json(parse({"name": "w", **plan}).steps))
