"""Maps: an execution for each element of an array, with attempts, retries and a timeout of its own."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.config.limits import OUTPUT_INLINE_BYTES_MAX
from penstock.engine.run.commands import DeadLetterTask, SetTimer, WithdrawTask, WithdrawTimer
from penstock.engine.run.execution.inputs import output_of
from penstock.engine.run.items import ItemStatus
from penstock.engine.run.state import StepStatus, from_snapshot, to_snapshot
from penstock.engine.validation import problems
from tests.engine.build import Play, appended, dispatched, inputs, only, step, value, workflow


def mapped(step_id: str, *depends_on: str, **fields: Any) -> dict[str, object]:
    config = {key: fields.pop(key) for key in list(fields) if key in CONFIG}
    return step(step_id, *depends_on, type="map", config=config, **fields)


CONFIG = ("items", "max_items", "max_concurrency", "on_item_failure")


def play_of(given: object, *later: dict[str, object], **fields: Any) -> tuple[Play, list[Any]]:
    """A run whose first step `m` is a map over the run's input, and what was ordered to begin it."""
    play = Play(workflow(mapped("m", **fields), *later))
    return play, play.carry_out(play.start(given))


def counted(play: Play) -> dict[str, int]:
    """How many elements of `m` have each status, without those that none has."""
    items = play.step("m").items
    assert items is not None
    assert sum(items.counts) == items.total
    return {status.name.lower(): items.count(status) for status in ItemStatus if items.count(status)}


def output(play: Play, step_id: str = "m") -> object:
    return value(play.whole(output_of(play.run, step_id)))


def test_each_element_is_a_task_with_its_element_as_input() -> None:
    play, commands = play_of([{"a": 1}, "two", None])

    assert dispatched(commands) == [("m.0", 1), ("m.1", 1), ("m.2", 1)]
    assert inputs(commands) == {"m.0": {"a": 1}, "m.1": "two", "m.2": None}
    assert [command.item for command in commands] == [0, 1, 2]
    assert play.step("m").status is StepStatus.RUNNING


def test_its_output_are_the_outputs_in_the_order_of_the_elements() -> None:
    play, _ = play_of([1, 2, 3], step("b", "m"))

    play.complete("m.2", "c")
    play.complete("m.0", "a")
    commands = play.carry_out(play.complete("m.1", "b"))

    assert output(play) == ["a", "b", "c"]
    assert inputs(commands) == {"b": ["a", "b", "c"]}
    assert play.step("m").status is StepStatus.COMPLETED


def test_no_elements_end_it_at_once_with_an_empty_array() -> None:
    _, commands = play_of([], step("b", "m"))

    assert inputs(commands) == {"b": []}


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"a": 1}, "a map needs an array of items, and was given an object"),
        ("text", "a map needs an array of items, and was given a string"),
        ([1] * 4, "the array has 4 elements, max_items is 3: raise it"),
        ([1] * 10_001, "max_items is 3: 10000 is the most: map over parts of the array"),
    ],
)
def test_what_is_no_array_or_too_long_fails_for_good(given: object, error: str) -> None:
    play, commands = play_of(given, max_items=3, retries=2)

    assert play.run.status == "failed"
    assert error in (play.step("m").error or "")
    assert dispatched(commands) == []


def test_with_says_what_an_element_receives() -> None:
    _, commands = play_of([5, 6], **{"with": {"n": "${{ item }}", "i": "${{ index }}", "all": "${{ input }}"}})

    assert inputs(commands)["m.1"] == {"n": 6, "i": 1, "all": [5, 6]}


def test_no_more_elements_are_out_than_it_allows() -> None:
    play, commands = play_of([1, 2, 3, 4], max_concurrency=2)

    assert dispatched(commands) == [("m.0", 1), ("m.1", 1)]
    assert counted(play) == {"waiting": 2, "queued": 2}
    assert dispatched(play.carry_out(play.complete("m.1"))) == [("m.2", 1)]
    assert dispatched(play.carry_out(play.complete("m.0"))) == [("m.3", 1)]
    assert counted(play) == {"queued": 2, "completed": 2}


def test_an_element_is_tried_again_by_the_retries_of_the_step() -> None:
    play, _ = play_of([1, 2], retry={"max_attempts": 1, "initial_delay": "10s"})

    [timer] = play.fail("m.1")
    again = play.carry_out(play.fire("retry.m.1", "m.1", 2, after=11))

    assert (timer.timer, timer.step_id, timer.attempt) == ("retry.m.1", "m.1", 2)
    assert dispatched(again) == [("m.1", 2)]
    assert inputs(again) == {"m.1": 2}
    assert play.complete("m.1", "late", attempt=1) == []
    play.complete("m.1", "b", attempt=2)
    play.complete("m.0", "a")
    assert output(play) == ["a", "b"]


def test_an_element_has_the_timeout_of_the_step() -> None:
    play, _ = play_of([1, 2], timeout="30s")

    [timer] = play.begin("m.1")
    [_] = play.fire("timeout.m.1", "m.1", 1, after=30)

    assert timer == SetTimer("timeout.m.1", play.now - 30 + 30, "m.1", 1)
    play.settle()
    assert play.run.status == "failed"
    assert play.step("m").error == "element 1 failed: step timeout exceeded (30s)"


def test_the_failure_of_an_element_fails_the_map_and_takes_back_what_is_out() -> None:
    play, _ = play_of([1, 2, 3], step("b", "m"), timeout="30s", max_concurrency=2)
    play.begin("m.1")

    commands = play.fail("m.0", kind="non_retriable")

    assert [(letter.step_id, letter.error) for letter in only(DeadLetterTask, commands)] == [("m.0", "boom")]
    assert only(WithdrawTimer, commands) == [WithdrawTimer("timeout.m.1", play.now + 30)]
    assert only(WithdrawTask, commands) == [WithdrawTask("M", of_step="m")]
    assert appended(commands) == ["workflow.failed"]
    assert counted(play) == {"failed": 1, "cancelled": 2}
    assert play.run.error == 'step "m" failed: element 0 failed: boom'
    assert play.complete("m.1") == []


def test_continue_gives_what_became_of_each_element() -> None:
    play, _ = play_of([1, 2], on_item_failure="continue")

    assert play.fail("m.0", kind="non_retriable") == [], "what the definition provides for leaves no dead letter"
    play.complete("m.1", "b")

    assert output(play) == [{"ok": False, "error": "boom"}, {"ok": True, "output": "b"}]
    assert play.step("m").status is StepStatus.COMPLETED


@pytest.mark.parametrize("on_item_failure", ["fail", "continue"])
def test_large_outputs_stay_in_the_history(on_item_failure: str) -> None:
    play, _ = play_of([1, 2, 3], step("b", "m"), on_item_failure=on_item_failure)
    text = "x" * OUTPUT_INLINE_BYTES_MAX

    for number in (1, 0, 2):
        commands = play.carry_out(play.complete(f"m.{number}", text + str(number)))

    found = [text + str(number) for number in range(3)]
    wrapped = [{"ok": True, "output": one} for one in found]
    assert output(play) == (found if on_item_failure == "fail" else wrapped)
    assert value(play.whole(only_input(commands))) == output(play)
    assert len(to_snapshot(play.run)) < OUTPUT_INLINE_BYTES_MAX


def only_input(commands: list[Any]) -> Any:
    [command] = commands
    return command.input


def test_a_cancelled_run_takes_back_the_elements() -> None:
    play, _ = play_of([1, 2, 3], timeout="30s", max_concurrency=2)
    play.begin("m.1")
    play.complete("m.0")

    commands = play.cancel()

    assert only(WithdrawTask, commands) == [WithdrawTask("M")]
    assert [timer.timer for timer in only(WithdrawTimer, commands)] == ["timeout.m.1"]
    assert counted(play) == {"completed": 1, "cancelled": 2}


def test_a_resumed_run_repeats_only_what_has_not_completed() -> None:
    play, _ = play_of([1, 2, 3], max_concurrency=2)
    play.complete("m.0", "a")
    play.fail("m.1", kind="non_retriable")
    play.settle()

    commands = play.carry_out(play.resume())

    assert dispatched(commands) == [("m.1", 2), ("m.2", 2)]
    play.complete("m.1", "b", attempt=2)
    play.complete("m.2", "c", attempt=2)
    assert output(play) == ["a", "b", "c"]


def test_a_worker_that_puts_an_element_aside_keeps_its_time() -> None:
    play, _ = play_of([1], timeout="30s")
    play.begin("m.0")
    play.pause("m.0", after=10)

    assert play.step("m.0").left == 20
    assert from_snapshot(to_snapshot(play.run)) == play.run
    [timer] = play.begin("m.0", delivery=2, after=60)
    assert timer.due == play.now + 20


def test_an_element_that_does_not_exist_changes_nothing() -> None:
    play, _ = play_of([1, 2])

    assert [play.complete(f"m.{wrong}") for wrong in ("2", "00", "x", "-1", "99999999999999")] == [[]] * 5
    assert counted(play) == {"queued": 2}


def test_a_map_of_10_000_elements_has_a_small_snapshot() -> None:
    play, commands = play_of([0] * 10_000, max_items=10_000, timeout="30s")
    assert len(commands) == 10_000

    for number in range(0, 10_000, 3):
        play.begin(f"m.{number}")
    for number in range(0, 10_000, 6):
        play.complete(f"m.{number}", {"ok": True})

    size = len(to_snapshot(play.run))
    assert size <= 40 * 10_000
    assert from_snapshot(to_snapshot(play.run)) == play.run


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"task": None}, "a map needs a task or config.workflow"),
        ({"config": {"max_items": 10_001}}, "config: max_items must be a whole number from 1 to 10000, not 10001"),
        ({"config": {"max_concurrency": 0}}, "config: max_concurrency must be a whole number from 1 to 10000, not 0"),
        ({"config": {"on_item_failure": "ignore"}}, 'must be one of fail continue, not "ignore"'),
        ({"config": {"map": {"items": [[1]]}}}, 'config: unknown field "map"'),
        ({"loop": {"max_iterations": 1}}, "loop is not for a step of this type"),
    ],
)
def test_a_fault_in_it_is_named(fields: dict[str, object], problem: str) -> None:
    [found] = problems({"name": "w", "steps": [{**mapped("m"), **fields}]})

    assert found.startswith('step "m": ')
    assert problem in found


def test_an_id_that_an_element_has_is_no_other_steps() -> None:
    found = problems({"name": "w", "steps": [mapped("m"), step("m.7"), step("m.x"), step("m.07")]})

    assert found == ['step "m.7" has the id of an element of the map "m"']


def test_a_snapshot_that_was_read_is_written_as_it_was() -> None:
    play, _ = play_of([1, 2, 3], timeout="30s", max_concurrency=2)
    play.begin("m.0")
    play.complete("m.1")

    assert to_snapshot(from_snapshot(to_snapshot(play.run))) == to_snapshot(play.run)
