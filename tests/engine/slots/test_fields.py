"""What definitions say of limits: read, checked, kept and compiled."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from penstock.engine.definition.definitions import as_registered, from_json, steps_from_json, steps_to_json, to_json
from penstock.engine.limits.names import LimitKind, OnLimit
from penstock.engine.limits.records import Allowed
from penstock.engine.run.compiling import compile_workflow
from penstock.engine.validation import explained, parse, problems

RUNS = {"limit": 3, "key": "input.tenant", "scope": "openai", "on_limit": "replace", "fair_by": "run.labels.x"}
ONE = [{"limit": 1}]
RATE = {"limit": 5, "per": "90s", "burst": 7, "key": "input.tenant"}


def of_step(**fields: object) -> dict[str, object]:
    return {"name": "w", "steps": [{"id": "a", "task": "t", **fields}]}


def of_runs(**fields: object) -> dict[str, object]:
    return {"name": "w", "steps": [{"id": "a", "task": "t"}], **fields}


WRONG: list[tuple[dict[str, object], str]] = [
    (of_step(concurrency={"limit": 1}), 'step "a": concurrency must be an array, not an object'),
    (
        of_step(concurrency=[{"limit": 1, "scope": scope} for scope in "bcde"]),
        'step "a": concurrency has 4 entries, 3 is the most',
    ),
    (of_step(concurrency=[{}]), 'step "a": concurrency[0]: limit is missing'),
    (of_step(concurrency=[{"limit": -1}]), 'step "a": concurrency[0]: limit must be a whole number from 0 to 1000000'),
    (
        of_step(concurrency=[{"limit": 1, "on_limit": "skip"}]),
        'step "a": concurrency[0]: on_limit must be one of',
    ),
    (of_step(concurrency=[{"limit": 1, "per": "1s"}]), 'step "a": concurrency[0]: unknown field "per"'),
    (of_step(concurrency=[{"limit": 1, "scope": "a b"}]), 'step "a": concurrency[0]: scope "a b" may hold only'),
    (of_step(concurrency=[{"limit": 1, "key": "input."}]), 'step "a": concurrency[0]: key: column 7'),
    (of_step(concurrency=[{"limit": 1, "fair_by": "x"}]), 'step "a": concurrency[0]: fair_by: column 1'),
    (of_step(rate_limit=[{"limit": 1}]), 'step "a": rate_limit[0]: per is missing'),
    (of_step(rate_limit=[{"limit": 1, "per": "0s"}]), 'step "a": rate_limit[0]: per must be longer than 0s'),
    (of_step(rate_limit=[{"limit": 1, "per": "1s", "burst": 0}]), 'step "a": rate_limit[0]: burst must be a whole'),
    (of_step(priority=101), 'step "a": priority must be a whole number from -100 to 100 or the text of an expression'),
    (of_step(priority=True), 'step "a": priority must be a whole number from -100 to 100'),
    (of_step(priority="steps.z.output"), 'step "a": priority: column 1'),
    (of_step(concurrency=[{"limit": 1}, {"limit": 2}]), 'step "a": concurrency: each entry needs a scope of its own'),
    (
        of_step(rate_limit=[{"limit": 1, "per": "1s"}, {"limit": 1, "per": "1s", "scope": "w.a"}]),
        'step "a": rate_limit: each entry needs a scope of its own: "w.a", 2 have it',
    ),
    (
        of_runs(concurrency=[{"limit": 1}, {"limit": 2, "scope": "w"}]),
        "concurrency: each entry needs a scope",
    ),
    (of_runs(concurrency=[{"limit": 1, "on_limit": "wait"}]), "concurrency[0]: on_limit must be one of queue skip"),
    (of_runs(concurrency=[{"limit": 1, "key": "steps.a.output"}]), "concurrency[0]: key: column 1"),
    (of_runs(priority=1.5), "priority must be a whole number from -100 to 100 or the text of an expression, not 1.5"),
    (
        {"name": "w", "steps": [{"id": "a", "type": "sleep", "config": {"duration": "1s"}, "priority": 1}]},
        'step "a": priority is not for a step of this type',
    ),
    (
        {"name": "w", "steps": [{"id": "a", "type": "sub_workflow", "config": {"workflow": "x"}, "concurrency": [1]}]},
        'step "a": concurrency is not for a step of this type',
    ),
    (
        {
            "name": "w",
            "steps": [{"id": "a", "type": "map", "config": {"workflow": "x"}, "concurrency": ONE}],
        },
        'step "a": concurrency is for tasks: give it to workflow of config',
    ),
]


@pytest.mark.parametrize(("document", "problem"), WRONG, ids=[problem for _, problem in WRONG])
def test_every_problem_is_named_with_its_step_and_field(document: dict[str, object], problem: str) -> None:
    (found,) = problems(document)
    assert found.startswith(problem)


def test_one_scope_is_no_problem_for_a_limit_at_a_time_and_a_rate() -> None:
    assert [] == problems(of_step(concurrency=[{"limit": 1}], rate_limit=[{"limit": 1, "per": "1s"}]))


def test_a_definition_with_limits_is_kept_whole_and_for_versions_that_know_them() -> None:
    document = of_runs(concurrency=[RUNS], rate_limit=[RATE], priority="input.p")
    definition = parse(document)
    stored = orjson.loads(to_json(definition))
    assert (3, [RUNS], "input.p") == (stored["v"], stored["concurrency"], stored["priority"])
    assert [{**RATE, "per": "1m30s"}] == stored["rate_limit"]
    assert definition == from_json(to_json(definition)) == parse(orjson.loads(as_registered(definition)))


@pytest.mark.parametrize("field", ["concurrency", "rate_limit", "priority"])
def test_a_limit_of_a_step_alone_makes_the_definition_new(field: str) -> None:
    given: dict[str, Any] = {"concurrency": [{"limit": 1}], "rate_limit": [RATE], "priority": -3}
    definition = parse(of_step(**{field: given[field]}))
    assert 3 == orjson.loads(to_json(definition))["v"]
    assert definition.steps == steps_from_json(steps_to_json(definition.steps))
    assert "v" not in orjson.loads(to_json(parse(of_step())))


def test_limits_are_compiled_in_the_order_in_which_slots_are_taken() -> None:
    fields = {
        "concurrency": [{"limit": 2}, {"limit": 1, "scope": "b"}],
        "rate_limit": [RATE, {"limit": 1, "per": "1s", "scope": "a"}],
        "priority": 7,
    }
    workflow = compile_workflow(parse(of_step(**fields)), "d")
    slots = workflow.steps["a"].slots
    assert slots is not None
    found = [(limit.kind, limit.scope, limit.allowed) for limit in slots.limits]
    assert found == [
        (LimitKind.EXECUTIONS, "b", Allowed(1)),
        (LimitKind.EXECUTIONS, "w.a", Allowed(2)),
        (LimitKind.RATE, "a", Allowed(1, 1.0)),
        (LimitKind.RATE, "w.a", Allowed(5, 90.0, 7)),
    ]
    assert (7, True, None) == (slots.priority, workflow.slots_used, workflow.slots)


def test_limits_of_runs_have_the_name_of_the_workflow_as_their_scope() -> None:
    workflow = compile_workflow(parse(of_runs(concurrency=[{"limit": 1, "on_limit": "skip"}])), "d")
    assert workflow.slots is not None
    (limit,) = workflow.slots.limits
    assert (LimitKind.RUNS, "w", OnLimit.SKIP) == (limit.kind, limit.scope, limit.on_limit)
    assert workflow.slots_used


def test_a_map_gives_its_limits_to_its_elements_which_may_name_theirs() -> None:
    fields = {
        "type": "map",
        "config": {"items": [1]},
        "concurrency": [{"limit": 1, "key": "item.tenant + string(index)"}],
    }
    workflow = compile_workflow(parse(of_step(**fields)), "d")
    plan = workflow.steps["a"]
    assert plan.slots is None
    assert plan.each is not None
    assert plan.each.slots is not None
    assert workflow.slots_used


def test_a_priority_alone_takes_no_slot() -> None:
    workflow = compile_workflow(parse({**of_step(priority=3), "priority": 4}), "d")
    assert (None, None, False) == (workflow.slots, workflow.steps["a"].slots, workflow.slots_used)


def test_the_expressions_of_limits_are_explained() -> None:
    document = {**of_step(concurrency=[{"limit": 1, "key": "input.x"}], priority="1 +"), "rate_limit": [RATE]}
    found = [(one.step, one.field, one.reads, bool(one.problems)) for one in explained(document)]
    assert found == [
        ("a", "concurrency[0].key", ("input",), False),
        ("a", "priority", (), True),
        ("", "rate_limit[0].key", ("input",), False),
    ]
