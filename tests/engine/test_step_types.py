"""The types of steps in definitions: what an agent loop, an approval and a sticky run may say, and how it is kept."""

from __future__ import annotations

import orjson
import pytest

from penstock.engine.definition.definitions import from_json, to_json
from penstock.engine.run.compiling import compile_workflow
from penstock.engine.run.kinds.agent_loop import Loop, loop_of
from penstock.engine.run.kinds.approval import Approval, approval_of
from penstock.engine.validation import parse, problems
from tests.engine.build import DIGEST
from tests.engine.test_validation import only, step, workflow

ENDLESS = "must hold max_iterations or max_duration, or the loop has no end"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, f"config {ENDLESS}"),
        ({"config": None}, f"config {ENDLESS}"),
        ({"config": {}}, f"config {ENDLESS}"),
        ({"loop": {}}, f"loop {ENDLESS}"),
        ({"config": {"max_iterations": None}}, f"config {ENDLESS}"),
        ({"config": {"loop_delay": "1s"}}, f"config {ENDLESS}"),
        ({"config": 3}, "config: an object is needed, not a number"),
        ({"loop": []}, "loop: an object is needed, not an array"),
        ({"config": {"max_iterations": 0}}, "config: max_iterations must be a whole number from 1 to 1000000, not 0"),
        (
            {"config": {"max_iterations": 1_000_001}},
            "config: max_iterations must be a whole number from 1 to 1000000, not 1000001",
        ),
        (
            {"config": {"max_iterations": True}},
            "config: max_iterations must be a whole number from 1 to 1000000, not true",
        ),
        (
            {"config": {"max_iterations": 2.0}},
            "config: max_iterations must be a whole number from 1 to 1000000, not 2.0",
        ),
        (
            {"config": {"max_iterations": "2"}},
            'config: max_iterations must be a whole number from 1 to 1000000, not "2"',
        ),
        ({"config": {"max_duration": 0}}, "config: max_duration must be longer than 0s"),
        (
            {"config": {"max_duration": "soon"}},
            'config: max_duration "soon" is not a duration (write for example 500ms, 30s, 5m, 1h30m)',
        ),
        (
            {"config": {"max_iterations": 2, "loop_delay": "-1s"}},
            'config: loop_delay "-1s" is negative',
        ),
        (
            {"config": {"max_iterations": 2, "loop_delay": 1.5}},
            "config: loop_delay must be a duration such as 30s, not 1.5",
        ),
        ({"config": {"max_iterations": 2, "timeout": "1h"}}, 'config: unknown field "timeout"'),
        ({"loop": {"max_iterations": 2, "n": 1}}, 'loop: unknown field "n"'),
        (
            {"config": {"max_iterations": 2}, "loop": {"max_iterations": 2}},
            "config and loop are two names of one field, give one of them",
        ),
    ],
)
def test_a_fault_in_a_loop_is_named(fields: dict[str, object], expected: str) -> None:
    assert problems(only(type="agent_loop", **fields)) == [f'step "a": {expected}']


@pytest.mark.parametrize("name", ["config", "loop"])
def test_a_loop_is_read_from_either_name_and_kept_under_one(name: str) -> None:
    bounds = {"max_iterations": 1, "max_duration": 90_000_000_000, "loop_delay": "1000ms"}
    [read] = parse(only(type="agent_loop", **{name: bounds})).steps
    assert (read.type, read.task) == ("agent_loop", "t")
    assert read.config == {"max_iterations": 1, "max_duration": "1m30s", "loop_delay": "1s"}


@pytest.mark.parametrize(
    "config", [{"max_iterations": 1_000_000}, {"max_duration": "1ns"}, {"max_iterations": 1, "loop_delay": 0}]
)
def test_one_bound_is_enough_for_a_loop(config: dict[str, object]) -> None:
    assert problems(only(type="agent_loop", config=config, retries=2, worker_group="gpu", timeout="1m")) == []


def ask(**fields: object) -> dict[str, object]:
    """A workflow whose one step `a` is an approval with these fields."""
    return workflow({"id": "a", "type": "approval", **fields})


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"timeout": "168h1ns"}, 'timeout "168h1ns" is too long, 168h is the most'),
        ({"timeout": 0}, "timeout must be longer than 0s"),
        ({"config": {"timeout": "169h"}}, 'config: timeout "169h" is too long, 168h is the most'),
        ({"config": {"timeout": 604_800_000_000_001}}, 'config: timeout "168h1ns" is too long, 168h is the most'),
        ({"config": {"timeout": "0s"}}, "config: timeout must be longer than 0s"),
        ({"config": {"timeout": True}}, "config: timeout must be a duration such as 30s, not true"),
        ({"config": {"subject": "asks.*"}}, 'config: subject "asks.*" must be tokens with single dots between them'),
        ({"config": {"subject": "history.x"}}, 'config: subject "history.x" belongs to the service itself'),
        ({"config": {"subject": 3}}, "config: subject must be a string, not a number"),
        ({"config": {"description": 3}}, "config: description must be a string, not a number"),
        ({"config": {"metadata": {"k": 1}}}, 'config: metadata "k" must be a string, not a number'),
        ({"config": {"metadata": []}}, "config: metadata must be an object, not an array"),
        ({"config": {"max_iterations": 1}}, 'config: unknown field "max_iterations"'),
        ({"config": "1h"}, "config: an object is needed, not a string"),
        ({"retry": {"max_attempts": 1}}, "retry is not for a step of this type"),
        ({"retries": 0}, "retries is not for a step of this type"),
        ({"worker_group": "gpu"}, "worker_group is not for a step of this type"),
        ({"loop": {"max_iterations": 1}}, "loop is not for a step of this type"),
        ({"task": "x.*"}, 'task "x.*" may hold only A-Z a-z 0-9 _ - and single dots between them'),
        ({"colour": 1}, 'unknown field "colour"'),
    ],
)
def test_a_fault_in_an_approval_is_named(fields: dict[str, object], expected: str) -> None:
    assert problems(ask(**fields)) == [f'step "a": {expected}']


def test_an_approval_needs_no_task_and_no_config() -> None:
    [read] = parse(ask()).steps
    assert (read.type, read.task, read.config, read.timeout) == ("approval", "", None, None)


def test_an_approval_is_read_with_all_that_it_may_say() -> None:
    config = {"timeout": "168h", "subject": "asks.ops", "description": "Sure?", "metadata": {"k": "v"}}
    [read] = parse(ask(config=config, metadata={"m": "n"}, timeout=3600 * 10**9)).steps
    assert read.config == config
    assert (read.metadata, read.timeout) == ({"m": "n"}, "1h")


@pytest.mark.parametrize("sticky", ["soft", "hard"])
def test_a_run_may_keep_to_its_worker_softly_or_hard(sticky: str) -> None:
    assert parse({**only(), "sticky": sticky}).sticky == sticky


ALL_TYPES = workflow(
    step("a", type="agent_loop", loop={"max_iterations": 3, "max_duration": "60s", "loop_delay": 10**9}, retries=1),
    {
        "id": "b",
        "type": "approval",
        "depends_on": ["a"],
        "timeout": "60m",
        "config": {"subject": "s", "metadata": {"k": "v"}},
    },
    step("c", depends_on=["b"], type="normal", config={}),
    {
        "id": "d",
        "type": "approval",
        "skip_if": {"step_id": "c", "field": "x", "op": "==", "value": 1},
        "depends_on": ["c"],
    },
    sticky="hard",
)


def test_every_type_of_step_is_stored_and_read_back_as_the_same() -> None:
    read = parse(ALL_TYPES)
    stored = to_json(read)
    assert from_json(stored) == read
    assert to_json(parse(orjson.loads(stored))) == stored
    assert compile_workflow(from_json(stored), "d") == compile_workflow(read, "d")
    assert [kept["type"] for kept in orjson.loads(stored)["steps"]] == ["agent_loop", "approval", "normal", "approval"]


def test_the_bounds_of_a_loop_are_compiled_to_seconds() -> None:
    config = {"max_iterations": 3, "max_duration": "1m", "loop_delay": "500ms"}
    compiled = compile_workflow(parse(only(type="agent_loop", config=config)), DIGEST)
    assert compiled.steps["a"].config == Loop(3, 60.0, 0.5)
    assert approval_of(compiled.steps["a"]) is None
    compiled = compile_workflow(parse(only(type="agent_loop", config={"max_iterations": 3})), DIGEST)
    assert compiled.steps["a"].config == Loop(3, None, 0.0)


@pytest.mark.parametrize(
    ("fields", "timeout_s"),
    [
        ({}, 86_400.0),
        ({"timeout": "1h"}, 3600.0),
        ({"config": {"timeout": "2h"}}, 7200.0),
        ({"timeout": "1h", "config": {"timeout": "2h"}}, 7200.0),
    ],
    ids=["neither", "the step's", "the config's", "both: the config's"],
)
def test_a_person_has_a_day_or_as_long_as_the_approval_says(fields: dict[str, object], timeout_s: float) -> None:
    plan = compile_workflow(parse(ask(**fields)), DIGEST).steps["a"]
    assert plan.config == Approval(timeout_s, None, None, None)
    assert (plan.task, plan.timeout_s, loop_of(plan)) == ("approval", None, None)


def test_the_task_of_an_approval_is_its_type_whatever_it_says() -> None:
    assert compile_workflow(parse(ask(task="t")), DIGEST).steps["a"].task == "approval"


def test_a_normal_step_has_neither_bounds_nor_question() -> None:
    plan = compile_workflow(parse(only()), DIGEST).steps["a"]
    assert (plan.config, loop_of(plan), approval_of(plan)) == (None, None, None)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"type": "wait_for_event", "event": "go"}, 'unknown field "event": it belongs into config'),
        ({"type": "wait_for_event", "timeout": "1h"}, "timeout is not for a step of this type: it belongs into config"),
        ({"type": "wait_for_event", "nonsense": 1}, 'unknown field "nonsense"'),
        ({"type": "normal", "task": "t", "event": "go"}, 'unknown field "event"'),
    ],
)
def test_a_field_that_belongs_into_the_config_is_told_from_one_that_is_none(
    fields: dict[str, object], problem: str
) -> None:
    assert f'step "a": {problem}' in problems({"name": "w", "steps": [{"id": "a", **fields}]})
