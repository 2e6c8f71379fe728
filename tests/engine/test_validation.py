"""Definitions: what is accepted and how it is kept, and that every problem is named at once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.definition.definitions import Retry, from_json, to_json
from penstock.engine.errors import Invalid
from penstock.engine.run.compiling import compile_workflow
from penstock.engine.run.kinds.table import KINDS
from penstock.engine.validation import parse, problems


def step(step_id: str, **fields: object) -> dict[str, object]:
    return {"id": step_id, "task": "t", **fields}


def workflow(*steps: object, **fields: object) -> dict[str, object]:
    return {"name": "w", "steps": list(steps), **fields}


def only(**fields: object) -> dict[str, object]:
    """A workflow whose one step `a` has these fields."""
    return workflow(step("a", **fields))


FULL = workflow(
    step("a", timeout="90s", metadata={"k": "v"}, worker_group="gpu", retries=3),
    step(
        "b",
        type="normal",
        depends_on=["a"],
        retry={
            "max_attempts": 2,
            "strategy": "exponential",
            "initial_delay": "1000ms",
            "max_delay": 60_000_000_000,
            "multiplier": 3,
        },
        skip_if={"step_id": "a", "field": "x.y", "op": "==", "value": None},
    ),
    version="2",
    timeout=1_500_000_000,
    default_retry={"max_attempts": 0},
    input_schema={"type": "object"},
    description="two steps",
)


def test_a_full_definition_is_read_with_its_durations_in_normal_form() -> None:
    read = parse(FULL)
    assert (read.name, read.version, read.timeout, read.description) == ("w", "2", "1s500ms", "two steps")
    assert read.default_retry == Retry(max_attempts=0)
    assert orjson.loads(bytes(read.input_schema)) == {"type": "object"}  # type: ignore[arg-type]
    a, b = read.steps
    assert (a.timeout, a.metadata, a.worker_group, a.retries) == ("1m30s", {"k": "v"}, "gpu", 3)
    assert b.retry == Retry(max_attempts=2, strategy="exponential", initial_delay="1s", max_delay="1m", multiplier=3.0)
    assert b.depends_on == ("a",)
    assert b.skip_if is not None
    assert bytes(b.skip_if.value) == b"null"


def test_what_is_left_out_takes_its_default() -> None:
    read = parse(only())
    assert (read.version, read.timeout, read.default_retry, read.steps[0].type) == ("1", None, None, "normal")
    assert read.steps[0].depends_on == ()


def test_null_counts_as_absent() -> None:
    optional = (
        "type",
        "depends_on",
        "timeout",
        "retry",
        "retries",
        "config",
        "loop",
        "skip_if",
        "metadata",
        "worker_group",
    )
    nulls = workflow(
        step("a", **dict.fromkeys(optional)),
        version=None,
        timeout=None,
        default_retry=None,
        input_schema=None,
        sticky=None,
    )
    assert to_json(parse(nulls)) == to_json(parse(only()))


def test_the_stored_form_is_read_back_as_the_same_definition() -> None:
    stored = to_json(parse(FULL))
    assert to_json(from_json(stored)) == stored
    assert to_json(parse(orjson.loads(stored))) == stored


def test_the_schema_key_of_editors_is_ignored() -> None:
    assert problems({"$schema": "https://example.com/workflow.json", **only()}) == []


def test_a_chain_of_a_thousand_steps_is_valid() -> None:
    assert problems(workflow(step("s0"), *(step(f"s{n}", depends_on=[f"s{n - 1}"]) for n in range(1, 1000)))) == []


def test_a_diamond_is_no_circle() -> None:
    assert (
        problems(
            workflow(
                step("d", depends_on=["b", "c"]), step("b", depends_on=["a"]), step("c", depends_on=["a"]), step("a")
            )
        )
        == []
    )


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ([], "a workflow definition must be an object, not an array"),
        (None, "a workflow definition must be an object, not null"),
        ({"steps": [step("a")]}, "name is missing"),
        ({"name": "w"}, "steps is missing"),
        ({**only(), "name": "a b"}, 'name "a b" may hold only A-Z a-z 0-9 _ - and single dots between them'),
        ({**only(), "version": ""}, "version is empty"),
        ({**only(), "version": 1}, "version must be a string, not a number"),
        ({**only(), "version": "1\n"}, r'version "1\n" holds control characters'),
        ({**only(), "description": 1}, "description must be a string, not a number"),
        ({**only(), "nmae": "x"}, 'unknown field "nmae"'),
        ({**only(), "unknown": None}, 'unknown field "unknown"'),
        ({**only(), "sticky": "firm"}, 'sticky must be one of soft hard, not "firm"'),
        ({**only(), "sticky": ""}, 'sticky must be one of soft hard, not ""'),
        ({**only(), "sticky": True}, "sticky must be one of soft hard, not true"),
        ({**only(), "timeout": "0s"}, "timeout must be longer than 0s"),
        ({**only(), "timeout": True}, "timeout must be a duration such as 30s, not true"),
        ({**only(), "default_retry": {}}, "default_retry: max_attempts is missing"),
        ({**only(), "default_retry": 3}, "default_retry: an object is needed, not a number"),
        ({**only(), "input_schema": {"type": 3}}, None),
        ({**only(), "steps": {}}, "steps must be an array, not an object"),
        (workflow(), "steps has 0 entries, it must have 1 to 1000"),
        (workflow(*[step(f"s{n}") for n in range(1001)]), "steps has 1001 entries, it must have 1 to 1000"),
        (workflow("a"), None),
        (workflow({"task": "t"}), "steps[0]: id is missing"),
        (workflow({"id": 3, "task": "t"}), "steps[0]: id must be a string, not a number"),
        (workflow({"id": "a"}), 'step "a": task is missing'),
        (
            workflow({"id": "a", "task": "x.*"}),
            'step "a": task "x.*" may hold only A-Z a-z 0-9 _ - and single dots between them',
        ),
        (
            workflow({"id": "a", "task": "penstock.http"}),
            'step "a": task "penstock.http" is reserved: task types that begin with penstock. are the service\'s own',
        ),
        (workflow(step("a"), step("a")), 'duplicate step id "a", used 2 times'),
        (
            only(type="loop"),
            f'step "a": type must be one of {" ".join(KINDS)}, not "loop"',
        ),
        (
            only(type=3),
            f'step "a": type must be one of {" ".join(KINDS)}, not 3',
        ),
        (
            only(type=["approval"]),
            f'step "a": type must be one of {" ".join(KINDS)}, not an array',
        ),
        (only(config={"max_iterations": 2}), 'step "a": config is not for a step of this type'),
        (only(config=0), 'step "a": config is not for a step of this type'),
        (only(type="normal", loop={"max_iterations": 2}), 'step "a": loop is not for a step of this type'),
        (only(depend_on=[]), 'step "a": unknown field "depend_on"'),
        (
            only(timeout="5 minutes"),
            'step "a": timeout "5 minutes" is not a duration (write for example 500ms, 30s, 5m, 1h30m)',
        ),
        (only(timeout=0), 'step "a": timeout must be longer than 0s'),
        (only(timeout=1.5), 'step "a": timeout must be a duration such as 30s, not 1.5'),
        (only(retries=True), 'step "a": retries must be a whole number from 0 to 100000, not true'),
        (only(retries=100_001), 'step "a": retries must be a whole number from 0 to 100000, not 100001'),
        (only(retries=1.0), 'step "a": retries must be a whole number from 0 to 100000, not 1.0'),
        (only(metadata={"k": 1}), 'step "a": metadata "k" must be a string, not a number'),
        (only(metadata=[]), 'step "a": metadata must be an object, not an array'),
        (
            only(worker_group="a b"),
            'step "a": worker_group "a b" may hold only A-Z a-z 0-9 _ - and single dots between them',
        ),
        (only(retry={"max_attempts": 1, "n": 2}), 'step "a": retry: unknown field "n"'),
        (
            only(retry={"max_attempts": -1}),
            'step "a": retry: max_attempts must be a whole number from 0 to 100000, not -1',
        ),
        (
            only(retry={"max_attempts": 1, "strategy": "slow"}),
            'step "a": retry: strategy must be one of fixed linear exponential, not "slow"',
        ),
        (
            only(retry={"max_attempts": 1, "multiplier": 0.5}),
            'step "a": retry: multiplier must be a number of at least 1, not 0.5',
        ),
        (
            only(retry={"max_attempts": 1, "multiplier": True}),
            'step "a": retry: multiplier must be a number of at least 1, not true',
        ),
        (
            only(retry={"max_attempts": 1, "max_delay": "-1s"}),
            'step "a": retry: max_delay "-1s" is negative',
        ),
        (only(depends_on="b"), 'step "a": depends_on must be an array, not a string'),
        (only(depends_on=[3]), 'step "a": depends_on[0] must be a string, not a number'),
        (only(depends_on=["a"]), 'step "a" depends on itself'),
        (workflow(step("a"), step("b", depends_on=["a", "a"])), 'step "b": depends_on names "a" 2 times'),
        (workflow(step("b", depends_on=["x"])), 'step "b" depends on "x", which does not exist'),
    ],
)
def test_a_single_fault_gives_a_single_sentence(document: object, expected: str | None) -> None:
    found = problems(document)
    assert len(found) == 1
    assert expected is None or found == [expected]


SKIP = {"step_id": "a", "field": "x", "op": "==", "value": 1}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"step_id": "c"}, 'step "b": skip_if: step_id "c" is not one of its depends_on'),
        ({"step_id": None}, 'step "b": skip_if: step_id is missing'),
        ({"field": ""}, 'step "b": skip_if: field "" must be names with single dots between them'),
        ({"field": "a..b"}, 'step "b": skip_if: field "a..b" must be names with single dots between them'),
        ({"op": "in"}, 'step "b": skip_if: op must be one of == != < <= > >=, not "in"'),
        ({"extra": 1}, 'step "b": skip_if: unknown field "extra"'),
    ],
)
def test_a_fault_in_skip_if_is_named(changed: dict[str, object], expected: str) -> None:
    document = workflow(step("a"), step("b", depends_on=["a"], skip_if=SKIP | changed), step("c"))
    assert problems(document) == [expected]


def test_skip_if_needs_a_value_to_compare_with() -> None:
    without = {key: item for key, item in SKIP.items() if key != "value"}
    assert problems(workflow(step("a"), step("b", depends_on=["a"], skip_if=without))) == [
        'step "b": skip_if: value is missing'
    ]


def test_a_circle_names_its_steps() -> None:
    circle = workflow(step("a", depends_on=["b"]), step("b", depends_on=["a"]))
    assert problems(circle) == ["steps depend on each other in a circle: a -> b -> a"]


def test_each_circle_is_named() -> None:
    edges = {"a": ["b", "c"], "b": ["a"], "c": ["a"], "x": ["y"], "y": ["x"]}
    found = problems(workflow(*(step(step_id, depends_on=targets) for step_id, targets in edges.items())))
    circles = ["a -> b -> a", "a -> c -> a", "x -> y -> x"]
    assert found == [f"steps depend on each other in a circle: {circle}" for circle in circles]


def test_a_circle_of_a_thousand_steps_is_shown_short() -> None:
    found = problems(workflow(*(step(f"s{n}", depends_on=[f"s{(n + 1) % 1000}"]) for n in range(1000))))
    assert len(found) == 1
    assert len(found[0]) < 300


def test_problems_of_all_parts_are_collected() -> None:
    document = workflow(
        step("a", depends_on=["b"], timeout="x"),
        step("b", depends_on=["a", "z"], retry={}),
        {"id": "c d"},
        name="",
        sticky="firm",
        input_schema=3,
    )
    with pytest.raises(Invalid) as caught:
        parse(document)
    offenders = [
        "sticky",
        "name",
        '"x"',
        "max_attempts",
        '"c d"',
        "task is missing",
        "input_schema",
        '"z"',
        "a -> b -> a",
    ]
    assert [offender for offender in offenders if offender not in str(caught.value)] == []
    assert list(caught.value.problems) == problems(document)
    assert len(caught.value.problems) == len(offenders)


HOSTILE: dict[str, Callable[[], object]] = {
    "10,000 steps": lambda: workflow(*(step(f"s{n}") for n in range(10_000))),
    "10,000 dependencies": lambda: only(depends_on=[f"x{n}" for n in range(10_000)]),
    "a megabyte as id": lambda: workflow(step("a" * 1_000_000), step("\x00" * 1_000_000, depends_on=["b" * 1_000_000])),
    "100,000 unknown fields": lambda: only(**{f"k{n}": n for n in range(100_000)}),
    "a hundred thousand missing steps": lambda: workflow(
        *(step(f"s{n}", depends_on=[f"x{m}" for m in range(100)]) for n in range(1000))
    ),
    "all depend on all": lambda: workflow(
        *(step(f"s{n}", depends_on=[f"s{m}" for m in range(300)]) for n in range(300))
    ),
    "a large broken schema": lambda: {**only(), "input_schema": {"required": list(range(40_000))}},
    "numbers beyond 64 bits": lambda: only(retries=10**400, retry={"max_attempts": 1, "multiplier": 10**400}),
}


@pytest.mark.parametrize("document", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.timeout(5)
def test_a_hostile_document_ends_in_a_bounded_answer(document: Callable[[], object]) -> None:
    found = problems(document())
    assert 1 <= len(found) <= 101
    assert sum(map(len, found)) < 100_000


def test_the_101st_problem_is_counted_and_not_listed() -> None:
    found = problems(only(**{f"k{n}": n for n in range(130)}))
    assert len(found) == 101
    assert found[-1] == "… and 30 more"


def test_a_document_nested_without_end_is_refused() -> None:
    deep: object = 1
    for _ in range(2000):
        deep = [deep]
    found = problems({**only(), "input_schema": {"const": deep}})
    assert found == ["the workflow definition cannot be stored as JSON: Recursion limit reached"]


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["a", "b", "5s", "normal", "=="])
)
KEYS = st.text(max_size=3) | st.sampled_from(
    [
        "name",
        "version",
        "steps",
        "timeout",
        "default_retry",
        "input_schema",
        "sticky",
        "$schema",
        "$ref",
        "type",
        "properties",
    ]
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)
RETRY = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(["max_attempts", "strategy", "initial_delay", "max_delay", "multiplier", "x"], JSON)
)
SKIP_IF = st.fixed_dictionaries({}, optional=dict.fromkeys(["step_id", "field", "op", "value", "x"], JSON))
CONFIG = st.fixed_dictionaries(
    {},
    optional={
        "max_iterations": st.integers(1, 3) | JSON,
        "max_duration": st.sampled_from(["5s", 7]) | JSON,
        "loop_delay": st.sampled_from(["5s", 0]) | JSON,
        "timeout": st.sampled_from(["5s", "200h"]) | JSON,
        "subject": st.sampled_from(["s", "task.x"]) | JSON,
        "description": JSON,
        "metadata": JSON,
    },
)
IDS = st.sampled_from(["a", "b", "c"])
STEP = st.fixed_dictionaries(
    {"id": IDS | JSON, "task": IDS | JSON},
    optional={
        "type": st.sampled_from(list(KINDS)) | JSON,
        "depends_on": st.lists(IDS | JSON, max_size=3) | JSON,
        "timeout": st.sampled_from(["5s", 7]) | JSON,
        "retry": RETRY | JSON,
        "retries": JSON,
        "skip_if": SKIP_IF | JSON,
        "metadata": JSON,
        "worker_group": JSON,
        "config": CONFIG | JSON,
        "loop": CONFIG | JSON,
    },
)
NEAR_MISSES = st.fixed_dictionaries(
    {"name": IDS | JSON, "steps": st.lists(STEP | JSON, max_size=4) | JSON},
    optional={
        "version": JSON,
        "timeout": JSON,
        "default_retry": RETRY | JSON,
        "input_schema": JSON,
        "description": JSON,
        "sticky": JSON,
        "x": JSON,
    },
)


@given(JSON | NEAR_MISSES)
def test_any_document_is_either_kept_for_good_or_refused_with_reasons(document: object) -> None:
    stored, reasons = b"", problems(document)
    with suppress(Invalid):
        stored = to_json(parse(document))
    assert bool(stored) is not bool(reasons)
    assert all(reason and reason.isprintable() for reason in reasons)
    assert not stored or to_json(parse(orjson.loads(stored))) == stored
    assert not stored or compile_workflow(from_json(stored), "digest").steps
