"""Large outputs stay in the history: a state keeps their place, and no order of the engine needs their bytes."""

from __future__ import annotations

import pytest

from penstock.config.limits import BODY_BYTES_MAX, OUTPUT_INLINE_BYTES_MAX, PAYLOAD_BYTES_MAX, STEPS_MAX
from penstock.engine.run.advance import fold
from penstock.engine.run.commands import AppendEvent, CompleteRun, DeadLetterTask, DispatchTask
from penstock.engine.run.event_payloads import NULL, Completed
from penstock.engine.run.events import WorkflowCompleted
from penstock.engine.run.payloads import PayloadRef, Value, joined, size_of
from penstock.engine.run.state import from_snapshot, to_snapshot
from tests.engine.build import Play, approval, inputs, loop, only, raw, skip_if, started, step, workflow

LARGE = "x" * OUTPUT_INLINE_BYTES_MAX
SIZE = len(LARGE) + 2
FITTING = LARGE[2:]


def given(play: Play, commands: list[object]) -> dict[str, Value]:
    return {command.step_id: command.input for command in only(DispatchTask, commands)}  # type: ignore[arg-type]


def test_an_output_of_the_most_bytes_stays_in_the_state() -> None:
    play = started(workflow(step("a"), step("b", "a")))
    assert inputs(play.complete("a", FITTING)) == {"b": FITTING}
    assert play.step("a").output_at is None


def test_one_byte_more_leaves_its_place() -> None:
    play = started(workflow(step("a"), step("b", "a")))
    commands = play.complete("a", FITTING + "x")
    kept = PayloadRef(len(play.log), OUTPUT_INLINE_BYTES_MAX + 1)
    assert play.step("a").output_at == kept
    assert not play.step("a").output
    assert given(play, commands) == {"b": kept}


def test_a_large_input_is_where_the_start_is_and_each_first_step_is_given_its_place() -> None:
    play = Play(workflow(step("a"), step("b")))
    assert given(play, play.start(LARGE)) == {"a": PayloadRef(1, SIZE), "b": PayloadRef(1, SIZE)}
    assert (play.run.input_at, play.run.input) == (PayloadRef(1, SIZE), NULL)
    later = Play(workflow(step("a")))
    later.schedule(LARGE)
    assert given(later, later.start(LARGE)) == {"a": PayloadRef(1, SIZE)}


def test_a_retry_and_a_dead_letter_name_the_same_place() -> None:
    play = started(workflow(step("a"), step("b", "a", retry={"max_attempts": 1})))
    first = given(play, play.complete("a", LARGE))
    assert given(play, play.fail("b")) == first
    [dead_letter] = only(DeadLetterTask, play.fail("b", 2))
    assert dead_letter.input == first["b"]


def test_several_dependencies_are_named_one_by_one_when_one_of_them_is_large() -> None:
    play = started(workflow(step("a"), step("b"), step("c", "b", "a")))
    play.complete("b", 1)
    assert given(play, play.complete("a", LARGE)) == {"c": {"b": raw(1), "a": PayloadRef(len(play.log), SIZE)}}


def test_what_a_loop_hands_on_is_kept_like_an_output_and_outlives_a_resumption() -> None:
    play = started(workflow(loop("a", config={"max_iterations": 5})))
    kept = PayloadRef(len(play.log) + 1, SIZE)
    assert given(play, play.go_on("a", LARGE)) == {"a": kept}
    play.fail("a", iteration=1)
    play.settle()
    assert given(play, play.resume()) == {"a": kept}


def test_a_decision_with_a_long_comment_is_kept_like_an_output() -> None:
    play = started(workflow(approval("a"), step("b", "a")))
    play.ask("a")
    commands = play.grant("a", comment=LARGE)
    assert given(play, commands) == {"b": PayloadRef(len(play.log), len('{"comment":""}') + len(LARGE))}


@pytest.mark.parametrize(("wanted", "status"), [(True, "skipped"), (False, "queued")])
def test_a_condition_is_decided_where_the_output_still_is(wanted: bool, status: str) -> None:
    play = started(
        workflow(step("a"), step("z"), step("b", "a", "z", skip_if=skip_if("a", "stop", "==", wanted)), step("c", "b"))
    )
    play.complete("a", {"stop": True, "text": LARGE})
    saved = from_snapshot(to_snapshot(play.run))
    assert fold(play.workflow, saved, []) == play.run
    play.complete("z")
    play.settle()
    assert play.statuses()["b"] == status


def test_a_small_end_is_written_at_once_and_a_larger_one_when_it_is_put_together() -> None:
    play = started(workflow(step("a")))
    [end] = only(CompleteRun, play.complete("a", LARGE))
    assert (end.output, end.event.payload) == (PayloadRef(len(play.log), SIZE), Completed())


def test_an_end_over_the_limit_of_a_payload_says_only_how_large_it_is() -> None:
    play = started(workflow(step("a"), step("b")))
    play.complete("a", "x" * (PAYLOAD_BYTES_MAX // 2))
    [end] = only(AppendEvent, play.complete("b", "y" * (PAYLOAD_BYTES_MAX // 2)))
    assert isinstance(end.event, WorkflowCompleted)
    assert end.event.payload == Completed(output_bytes=PAYLOAD_BYTES_MAX + len('{"a":"","b":""}'))
    play.settle()
    assert play.run.ended


def test_many_small_dependencies_are_not_put_together_for_every_step_at_once() -> None:
    names = [f"s{n}" for n in range(100)]
    play = started(workflow(*map(step, names), *(step(f"t{n}", *names) for n in range(100))))
    commands = [command for name in names for command in play.complete(name, FITTING)]
    assert {type(value) for value in given(play, commands).values()} == {dict}


def test_a_state_with_the_most_steps_and_outputs_fits_into_one_message() -> None:
    play = started(workflow(*(step(f"s{n}") for n in range(STEPS_MAX))), "x" * (PAYLOAD_BYTES_MAX - 2))
    for number in range(STEPS_MAX):
        play.begin(f"s{number}", worker="w" * 128)
        play.complete(f"s{number}", FITTING if number % 2 else LARGE, worker="w" * 128)
    body = to_snapshot(play.run)
    assert len(body) < BODY_BYTES_MAX
    assert from_snapshot(body) == play.run


@pytest.mark.parametrize(
    "value", [raw("x"), raw([1]), PayloadRef(1, 7), {"a": raw(1)}, {"a": raw(1), "b.c": raw("xyz")}]
)
def test_the_size_is_known_before_anything_is_put_together(value: Value) -> None:
    whole = joined(value) if isinstance(value, dict) else value
    expected = whole.size if isinstance(whole, PayloadRef) else len(bytes(whole))
    assert size_of(value) == expected
