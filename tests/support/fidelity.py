"""Scenarios that are run twice, in the test kit and by a service: `python -m tests.support.fidelity` is their worker.

A scenario is made from its number alone. Where its branches go on side by side nothing fails for good, so that what
happens does not depend on which of them is faster.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from penstock.worker import Context, Continue, NonRetriable, Pause, Worker

SCENARIOS = 200
AT_ONCE = {"max_attempts": 3, "strategy": "fixed", "initial_delay": "0s"}
CHILD = {
    "name": "fidelity-child",
    "steps": [
        {"id": "one", "task": "fidelity.add"},
        {"id": "two", "task": "fidelity.flaky", "depends_on": ["one"], "retry": AT_ONCE},
    ],
}
BROKEN_CHILD = {"name": "fidelity-broken", "steps": [{"id": "one", "task": "fidelity.broken"}]}
AFTER = {"name": "fidelity-after", "steps": [{"id": "one", "task": "fidelity.echo"}]}
PLANS: tuple[list[dict[str, Any]], ...] = (
    [{"id": "a", "task": "fidelity.add"}, {"id": "b", "task": "fidelity.echo", "depends_on": ["a"]}],
    [{"id": "m", "task": "fidelity.echo", "type": "map", "config": {"items": [1, 2]}}],
    [],
    [{"id": "a", "task": "fidelity.echo", "depends_on": ["nowhere"]}],
)


class Scenario(NamedTuple):
    """A workflow and its input, any JSON."""

    definition: dict[str, Any]
    input: Any


def echo(value: Any) -> Any:
    return value


def add(value: Any, ctx: Context) -> Any:
    return {"x": (value.get("x", 0) if isinstance(value, dict) else 0) + 1, "attempt": ctx.attempt}


def flaky(value: Any, ctx: Context) -> Any:
    """Fails once."""
    if ctx.attempt == 1:
        raise ValueError("not yet")
    return {"x": 1, "attempt": ctx.attempt}


def broken(value: Any) -> Any:
    raise NonRetriable("for good")


def wearing(value: Any) -> Any:
    raise ValueError("again and again")


async def counted(value: Any, ctx: Context) -> Any:
    """An iteration of a loop, of three."""
    found = (value.get("n", 0) if isinstance(value, dict) else 0) + 1
    return {"n": found} if ctx.iteration >= 2 else Continue({"n": found})


async def paused(value: Any, ctx: Context) -> Any:
    """Pauses once, for a moment."""
    kept = await ctx.load_checkpoint()
    if kept is None:
        raise Pause(0.05, {"kept": True})
    return {"x": 1, "kept": kept}


def plan(value: Any) -> Any:
    return {"steps": PLANS[value["plan"] if isinstance(value, dict) and "plan" in value else 0]}


FUNCTIONS: dict[str, Callable[..., Any]] = {
    f"fidelity.{function.__name__}": function for function in (echo, add, flaky, broken, wearing, counted, paused, plan)
}


def scenarios() -> list[Scenario]:
    return [_scenario(number) for number in range(SCENARIOS)]


def _scenario(number: int) -> Scenario:
    draw = Random(number)
    breaks, in_turn, steps = number % 4 == 3, number % 4 > 1, list[dict[str, Any]]()
    for at in range(draw.randint(1, 6)):
        before = [step["id"] for step in steps]
        depends_on = before[-1:] if in_turn else draw.sample(before, draw.randint(0, min(2, len(before))))
        steps.append({"id": f"s{at}", "depends_on": depends_on, **_step(draw, depends_on, in_turn=in_turn)})
    if breaks:
        steps.append({"id": "end", "depends_on": [steps[-1]["id"]], **draw.choice(BREAKING)})
    definition: dict[str, Any] = {"name": f"fidelity-{number}", "steps": steps}
    if draw.random() < 0.2:
        definition["concurrency"] = [{"limit": draw.randint(1, 2), "key": "string(input.x)"}]
    if breaks and draw.random() < 0.4:
        definition["on_failure"] = {"workflow": AFTER["name"]}
    return Scenario(definition, {"x": draw.randint(0, 2), "plan": draw.randrange(3), "number": number})


def _step(draw: Random, depends_on: list[str], *, in_turn: bool) -> dict[str, Any]:
    step: dict[str, Any] = {**draw.choice((*LASTING, *IN_TURN) if in_turn else LASTING)}
    if draw.random() < 0.2:
        step["when"] = draw.choice(["input.x == 1", "input.x < 2", "false"])
    if depends_on and draw.random() < 0.1:
        step["skip_if"] = {"step_id": depends_on[0], "field": "x", "op": "==", "value": 1}
    if "task" in step and draw.random() < 0.2:
        step["compensate"] = {"task": draw.choice(["fidelity.echo", "fidelity.echo", "fidelity.broken"])}
    if "task" in step and draw.random() < 0.15:
        step["concurrency"] = [{"limit": 1, "scope": draw.choice(["fidelity-a", "fidelity-b"])}]
    return step


LASTING: tuple[dict[str, Any], ...] = (
    {"task": "fidelity.echo"},
    {"task": "fidelity.add", "with": {"x": "${{ input.x }}", "all": "${{ input }}"}},
    {"task": "fidelity.flaky", "retry": AT_ONCE},
    {"task": "fidelity.paused"},
    {"task": "fidelity.broken", "on_failure": {"task": "fidelity.echo"}},
    {"task": "fidelity.counted", "type": "agent_loop", "config": {"max_iterations": 5}},
    {"task": "fidelity.counted", "type": "agent_loop", "config": {"max_iterations": 3}},
    {"task": "fidelity.add", "type": "map", "config": {"items": [{"x": 1}, {"x": "${{ input.x }}"}, {}]}},
    {"task": "fidelity.echo", "type": "map", "config": {"items": [], "max_concurrency": 1}},
    {"task": "fidelity.flaky", "type": "map", "config": {"items": [1, 2, 3], "max_concurrency": 1}, "retry": AT_ONCE},
    {"task": "fidelity.broken", "type": "map", "config": {"items": [1, 2], "on_item_failure": "continue"}},
    {"type": "map", "config": {"items": [1, 2], "workflow": CHILD["name"], "max_concurrency": 1}},
    {"task": "fidelity.plan", "type": "planner", "with": {"plan": "${{ input.plan }}"}},
    {"type": "sub_workflow", "config": {"workflow": CHILD["name"]}},
    {"type": "sleep", "config": {"duration": "20ms"}},
    {"type": "respond", "config": {"body": "${{ input.x }}"}},
    {
        "type": "wait_for_event",
        "config": {"event": "nobody", "lookback": "0s", "timeout": "30ms", "on_timeout": "continue"},
    },
)
IN_TURN: tuple[dict[str, Any], ...] = (  # each takes an event that no other may take
    {"type": "wait_for_event", "config": {"event": "fidelity", "lookback": "1h"}},
    {
        "type": "wait_for_event",
        "config": {
            "event": "fidelity",
            "lookback": "1h",
            "correlate": {"field": "x", "value": "${{ input.x }}"},
            "match": "event.x < 5",
        },
    },
)
BREAKING: tuple[dict[str, Any], ...] = (
    {"task": "fidelity.broken"},
    {"task": "fidelity.wearing", "retry": AT_ONCE},
    {"task": "fidelity.broken", "on_failure": {"task": "fidelity.broken"}},
    {"task": "fidelity.echo", "with": {"x": "${{ steps.s0.output.nothing.there }}"}},
    {"task": "fidelity.echo", "when": "input.nothing"},
    {"task": "fidelity.wearing", "type": "map", "config": {"items": [1], "max_concurrency": 1}},
    {"task": "fidelity.plan", "type": "planner", "with": {"plan": 3}},
    {"type": "sub_workflow", "config": {"workflow": BROKEN_CHILD["name"]}},
    {"type": "sub_workflow", "config": {"workflow": "fidelity-nowhere"}},
    {"type": "wait_for_event", "config": {"event": "nobody", "lookback": "0s", "timeout": "30ms"}},
    {"type": "approval", "config": {"timeout": "30ms"}},
)
OTHERS = (CHILD, BROKEN_CHILD, AFTER)
EVENTS = tuple({"x": at % 3} for at in range(30))


def main() -> None:
    worker = Worker(max_tasks=100)
    for name, function in FUNCTIONS.items():
        worker.task(name)(function)
    worker.run()


if __name__ == "__main__":
    main()
