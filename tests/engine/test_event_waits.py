"""Steps that wait for an event: what they wait for is worked out as they begin; an event or the deadline ends them."""

from __future__ import annotations

import pytest

from penstock.engine.run.commands import AppendEvent, AwaitEvent, BeginStep, Command, StopWaiting
from penstock.engine.run.event_payloads import Correlation, EventWait, ReceivedEvent
from penstock.engine.run.events import EventReceived
from penstock.engine.run.execution.beginning import begin_step
from penstock.engine.run.kinds.correlation import NoValue, key_at, key_of
from penstock.engine.run.state import StepStatus, from_snapshot, to_snapshot
from penstock.engine.run.still_due import still_due
from penstock.engine.validation import problems
from tests.engine.build import EPOCH, RUN_ID, Play, appended, dispatched, only, raw, step, value, workflow

GIVEN = {"order": 7, "long": "x" * 5000}


def wait(step_id: str, *depends_on: str, **config: object) -> dict[str, object]:
    given = {"event": "paid", **config}
    return {"id": step_id, "type": "wait_for_event", "depends_on": list(depends_on), "config": given}


def receive(play: Play, step_id: str, seq: int, body: object = None, attempt: int = 1) -> list[Command]:
    found = ReceivedEvent("paid", seq, raw(body))
    return play.tell(EventReceived(run_id=RUN_ID, step_id=step_id, attempt_number=attempt, payload=found))


def waiting(*steps: dict[str, object]) -> Play:
    play = Play(workflow(*steps))
    play.carry_out(play.start(GIVEN))
    return play


def test_an_event_completes_the_step_and_its_body_is_the_output() -> None:
    play = Play(workflow(wait("w", correlate={"field": "order.id", "value": "${{ input.order }}"}), step("b", "w")))

    [ordered] = play.carry_out(play.start(GIVEN))

    wanted = EventWait("paid", EPOCH, None, Correlation("order.id", raw(7)))
    assert ordered == AwaitEvent("w", 1, wanted)
    assert (play.step("w").status, play.step("w").waits_for) == (StepStatus.RUNNING, wanted)
    commands = receive(play, "w", 31, {"order": {"id": 7}})
    assert (dispatched(commands), only(StopWaiting, commands)) == ([("b", 1)], [StopWaiting("w", 1)])
    assert (play.step("w").waits_for, play.step("w").received) == (None, 31)
    assert value(play.step("w").output) == {"order": {"id": 7}}
    assert receive(play, "w", 32) == []


def test_it_waits_from_the_end_of_its_last_dependency_and_the_lookback_before() -> None:
    play = Play(workflow(step("a"), wait("w", "a", timeout="1h", lookback="10m")))
    play.start(GIVEN)

    [ordered] = play.carry_out(play.complete("a", after=50))

    assert ordered == AwaitEvent("w", 1, EventWait("paid", EPOCH + 50 - 600, EPOCH + 50 + 3600))


def test_what_completed_an_ancestor_is_passed_over() -> None:
    play = waiting(wait("w"), step("a", "w"), wait("x", "a", lookback="1h"), wait("other", lookback="1h"))
    play.carry_out(receive(play, "w", 31))

    [ordered] = only(AwaitEvent, play.carry_out(play.complete("a")))

    assert (ordered.step_id, ordered.wait.passed) == ("x", (31,))
    other = play.step("other").waits_for
    assert other is not None
    assert other.passed == ()


def test_without_an_event_in_time_the_step_fails_for_good() -> None:
    play = waiting(wait("w", timeout="1h"))

    commands = play.fire("wait.w", "w", 1, after=3600)

    assert (play.step("w").status, play.step("w").error) == (StepStatus.FAILED, "no event paid came within 1h")
    assert appended(commands) == ["workflow.failed"]
    assert only(StopWaiting, commands) == [StopWaiting("w", 1)]


def test_it_goes_on_with_null_where_it_may() -> None:
    play = waiting(wait("w", timeout="1h", on_timeout="continue"), step("b", "w"))

    assert dispatched(play.fire("wait.w", "w", 1)) == [("b", 1)]
    assert play.step("w").status is StepStatus.COMPLETED
    assert receive(play, "w", 31) == []


def test_the_timer_of_another_attempt_or_step_changes_nothing() -> None:
    play = waiting(wait("w", timeout="1h"), step("a"))

    assert (play.fire("wait.w", "w", 2), play.fire("wait.a", "a", 1)) == ([], [])
    assert play.step("w").status is StepStatus.RUNNING


def test_a_resumed_run_waits_again_for_what_was_stored_since_the_first_time() -> None:
    play = waiting(wait("w", timeout="1h"))
    play.fire("wait.w", "w", 1, after=3600)
    play.settle()

    [ordered] = only(AwaitEvent, play.carry_out(play.resume(after=100)))

    assert ordered == AwaitEvent("w", 2, EventWait("paid", EPOCH, EPOCH + 3700 + 3600))
    assert receive(play, "w", 31, attempt=1) == []
    assert appended(receive(play, "w", 31, attempt=2)) == ["workflow.completed"]


def test_a_cancelled_run_waits_no_more() -> None:
    play = waiting(wait("w", timeout="1h"))
    [ordered] = [AwaitEvent("w", 1, EventWait("paid", EPOCH))]
    assert still_due(play.run, ordered)

    assert only(StopWaiting, play.cancel()) == [StopWaiting("w", 1)]
    assert not still_due(play.run, ordered)
    assert receive(play, "w", 31) == []


def test_a_value_that_is_too_large_fails_the_step() -> None:
    play = waiting(wait("w", correlate={"field": "id", "value": "${{ input.long }}"}))

    assert play.step("w").error == "config.correlate.value gives 5002 bytes, 4096 is the most"


def test_a_snapshot_has_what_is_waited_for() -> None:
    play = waiting(wait("w", timeout="1h", correlate={"field": "id", "value": [1, "${{ input.order }}"]}))

    assert from_snapshot(to_snapshot(play.run)) == play.run


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"event": "a b"}, 'config: event "a b" may hold only A-Z a-z 0-9 _ - and single dots between them'),
        ({"lookback": "25h"}, "config: lookback 25h is too long: 24h is the most"),
        ({"on_timeout": "continue"}, "config: on_timeout needs a timeout"),
        (
            {"correlate": {"field": "a..b", "value": 1}},
            'config: correlate: field "a..b" must be names with single dots',
        ),
        ({"correlate": {"field": "a"}}, "config: correlate: value is missing"),
        ({"match": "event.id =="}, "config: match: column"),
        ({"match": "steps.a.output.id == event.id"}, "config: match: column"),
        ({"match": "'text'"}, "config: match: column 1: the expression gives a string, not true or false"),
        ({"correlate": {"field": "a", "value": "${{ event.id }}"}}, "config: correlate.value: column"),
    ],
)
def test_each_problem_names_step_and_field(config: dict[str, object], problem: str) -> None:
    [found] = problems({"name": "w", "steps": [step("a"), wait("w", **config)]})

    assert found.startswith(f'step "w": {problem}')


def test_all_problems_are_named_at_once() -> None:
    config = {"event": "", "timeout": "0s", "on_timeout": "later", "lookback": "2d", "more": 1}

    found = problems({"name": "w", "steps": [wait("w", **config)]})

    assert len(found) == 5


@pytest.mark.parametrize(("one", "other"), [(1, 1.0), ({"a": 1, "b": 2.0}, {"b": 2, "a": 1}), ([1, None], [1.0, None])])
def test_equal_values_have_one_key(one: object, other: object) -> None:
    assert key_of(one) == key_of(other)


@pytest.mark.parametrize(
    ("one", "other"), [(1, "1"), (1, True), (0, False), (None, "null"), ([1, 2], [2, 1]), ({}, [])]
)
def test_other_values_have_another_key(one: object, other: object) -> None:
    assert key_of(one) != key_of(other)


@pytest.mark.parametrize("body", [None, 1, "a", [], {}, {"a": {"c": 1}}, {"a.b": 1}])
def test_what_has_nothing_there_has_no_key(body: object) -> None:
    with pytest.raises(NoValue):
        key_at(body, "a.b")


def test_a_null_is_a_value_as_well() -> None:
    assert key_at({"a": {"b": None}}, "a.b") == key_of(None)


def test_a_wait_that_begins_while_the_run_fails_is_not_looked_after() -> None:
    play = Play(workflow(wait("w"), step("b")))
    [begun] = only(BeginStep, play.start(GIVEN))
    [starting] = begin_step(play.workflow, play.run, begun, {})
    assert isinstance(starting, AppendEvent)
    play.fail("b", kind="non_retriable")

    assert [] == play.tell(starting.event)
