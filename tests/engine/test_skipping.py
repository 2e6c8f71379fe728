"""`skip_if`: when a step is skipped, and that its dependents go on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from penstock.engine.run.commands import AppendEvent, DispatchTask
from penstock.engine.run.events import StepCompleted, StepSkipped
from penstock.engine.run.state import RunStatus
from tests.engine.build import Play, appended, dispatched, skip_if, started, step, workflow

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def conditional(field: str, op: str, wanted: object) -> Play:
    return started(workflow(step("a"), step("b", "a", skip_if=skip_if("a", field, op, wanted)), step("c", "b")))


def is_skipped(found: object, op: str, wanted: object, field: str = "x") -> bool:
    [command] = conditional(field, op, wanted).complete("a", {"x": found})
    assert isinstance(command, AppendEvent | DispatchTask)
    return isinstance(command, AppendEvent)


@pytest.mark.parametrize(
    ("found", "op", "wanted"),
    [
        (1, "==", 1),
        (1, "==", 1.0),
        (1, "!=", 2),
        (1, "<", 2),
        (2, "<=", 2),
        (2.5, ">", 2),
        (2, ">=", 2),
        ("a", "==", "a"),
        ("a", "!=", "b"),
        ("a", "<", "b"),
        (True, "==", True),
        (False, "!=", True),
        (None, "==", None),
        ([1, "x"], "==", [1, "x"]),
        ({"k": [1]}, "==", {"k": [1]}),
        ([1], "!=", [2]),
    ],
)
def test_a_condition_that_holds_skips_the_step(found: object, op: str, wanted: object) -> None:
    assert is_skipped(found, op, wanted)


@pytest.mark.parametrize(
    ("found", "op", "wanted"),
    [
        (1, "==", 2),
        (1, "!=", 1),
        (2, "<", 2),
        ("a", "==", "A"),
        (None, "!=", None),
        ([1], "==", [2]),
    ],
)
def test_a_condition_that_does_not_hold_skips_nothing(found: object, op: str, wanted: object) -> None:
    assert not is_skipped(found, op, wanted)


@pytest.mark.parametrize("op", ["==", "!=", "<", "<=", ">", ">="])
@pytest.mark.parametrize(
    ("found", "wanted"),
    [("1", 1), (1, "1"), (None, 0), (0, None), (True, 1), (1, True), ([], {}), ("", None), ([1], 1)],
)
def test_values_of_other_types_never_skip(found: object, op: str, wanted: object) -> None:
    assert not is_skipped(found, op, wanted)


@pytest.mark.parametrize(("found", "wanted"), [({}, {}), (None, None), ([1], ["a"])])
@pytest.mark.parametrize("op", ["<", ">="])
def test_values_without_an_order_never_skip_by_it(found: object, op: str, wanted: object) -> None:
    assert not is_skipped(found, op, wanted)


@pytest.mark.parametrize("op", ["==", "!=", "<"])
@pytest.mark.parametrize("field", ["y", "x.y", "x.y.z", "X"])
@pytest.mark.parametrize("found", [1, None, [1], "y", {"z": 1}])
def test_a_missing_field_never_skips(found: object, op: str, field: str) -> None:
    assert not is_skipped(found, op, found, field)


def test_a_field_is_found_along_its_path() -> None:
    assert is_skipped({"y": {"z": 7}}, "==", 7, "x.y.z")


@pytest.mark.parametrize("output", [None, 1, "x", ["x"], [{"x": 1}]])
def test_an_output_that_is_no_object_never_skips(output: object) -> None:
    assert dispatched(conditional("x", "!=", 2).complete("a", output)) == [("b", 1)]


@pytest.mark.parametrize("text", [b'{"x":' + b"[" * 1500 + b"]" * 1500 + b"}", b'{"x":1e999}'])
def test_json_beyond_what_can_be_compared_never_skips(text: bytes) -> None:
    play = conditional("x", "!=", 2)
    assert dispatched(play.tell(StepCompleted(run_id=play.run_id, step_id="a", payload=Raw(text)))) == [("b", 1)]


@given(found=JSON, op=st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), wanted=JSON)
def test_any_two_values_compare_or_do_not_skip(found: object, op: str, wanted: object) -> None:
    skipped = is_skipped(found, op, wanted)
    assert not (skipped and op in ("==", "!=") and (found == wanted) is not (op == "=="))


def test_a_skipped_step_is_pending_until_its_event_is_in_the_log_and_never_dispatched() -> None:
    play = conditional("x", "==", 1)
    assert appended(play.complete("a", {"x": 1})) == ["step.skipped"]
    assert play.step("b").status == "pending"
    assert dispatched(play.settle()) == [("c", 1)]
    b = play.step("b")
    assert (b.status, b.attempts) == ("skipped", 0)
    assert b.finished_at is not None


def test_a_run_whose_last_steps_are_skipped_completes() -> None:
    steps = [
        step("b", "a", skip_if=skip_if("a", "x", "==", 1)),
        step("c", "a", "b", skip_if=skip_if("a", "x", "==", 1)),
    ]
    play = started(workflow(step("a"), *steps))
    play.complete("a", {"x": 1})
    play.settle()
    assert play.run.status is RunStatus.COMPLETED
    assert play.statuses() == {"a": "completed", "b": "skipped", "c": "skipped"}


def test_skipping_twice_changes_nothing() -> None:
    play = conditional("x", "==", 1)
    play.complete("a", {"x": 1})
    play.settle()
    before = play.run
    assert play.tell(StepSkipped(run_id=play.run_id, step_id="b")) == []
    assert play.run is before


@pytest.mark.parametrize("step_id", ["a", "b", "c", "x"])
def test_a_step_whose_dependencies_are_not_done_cannot_be_skipped(step_id: str) -> None:
    play = conditional("x", "==", 1)
    before = play.run
    assert play.tell(StepSkipped(run_id=play.run_id, step_id=step_id)) == []
    assert play.run is before


def test_a_skip_that_arrives_while_the_run_is_failing_dispatches_nothing() -> None:
    play = started(workflow(step("a"), step("b", "a", skip_if=skip_if("a", "x", "==", 1)), step("c", "b"), step("z")))
    play.complete("a", {"x": 1})
    play.fail("z")
    assert dispatched(play.settle()) == []
    assert play.run.status is RunStatus.FAILED
    assert play.statuses() == {"a": "completed", "b": "skipped", "c": "cancelled", "z": "failed"}
