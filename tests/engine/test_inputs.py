"""What a step receives, and what a run gives back."""

from __future__ import annotations

from penstock.engine.run.advance import fold
from penstock.engine.run.commands import AppendEvent
from penstock.engine.run.events import Record, StepCompleted, WorkflowCompleted, WorkflowStarted, decode
from tests.engine.build import EPOCH, Play, inputs, only, skip_if, started, step, value, workflow


def output(play: Play, *answers: tuple[str, object]) -> object:
    """The output of the run that these answers complete."""
    commands = [command for step_id, given in answers for command in [*play.complete(step_id, given), *play.settle()]]
    [end] = [command.event for command in only(AppendEvent, commands) if isinstance(command.event, WorkflowCompleted)]
    return value(end.payload.output)


def test_a_step_without_dependencies_receives_the_input_of_the_run() -> None:
    play = Play(workflow(step("a"), step("b")))
    assert inputs(play.start({"n": [1, "ü"]})) == {"a": {"n": [1, "ü"]}, "b": {"n": [1, "ü"]}}


def test_an_absent_input_is_null() -> None:
    play = Play(workflow(step("a")))
    event = decode(b'{"type":"workflow.started","run_id":"r","payload":{"workflow":"w","version":"1","digest":"d"}}')
    assert isinstance(event, WorkflowStarted)
    assert inputs(play.tell(event)) == {"a": None}


def test_a_step_with_one_dependency_receives_its_output_as_it_is() -> None:
    play = started(workflow(step("a"), step("b", "a")), "ignored")
    assert inputs(play.complete("a", [1, {"x": None}])) == {"b": [1, {"x": None}]}


def test_a_step_with_several_dependencies_receives_an_object_by_step_id() -> None:
    play = started(workflow(step("a"), step("b.x"), step("c", "b.x", "a")))
    play.complete("a", 1)
    assert inputs(play.complete("b.x", [2])) == {"c": {"b.x": [2], "a": 1}}


def test_a_dependency_without_output_is_null() -> None:
    play = started(workflow(step("a"), step("b"), step("c", "a"), step("d", "a", "b")))
    assert inputs(play.tell(StepCompleted(run_id=play.run_id, step_id="a"))) == {"c": None}
    assert inputs(play.complete("b", 2)) == {"d": {"a": None, "b": 2}}


def test_a_skipped_dependency_is_null() -> None:
    skipped = step("b", "a", skip_if=skip_if("a", "skip", "==", True))
    play = started(workflow(step("a"), skipped, step("c", "b"), step("d", "a", "b")))
    play.complete("a", {"skip": True})
    assert inputs(play.settle()) == {"c": None, "d": {"a": {"skip": True}, "b": None}}


def test_a_retry_receives_the_same_input_again() -> None:
    play = started(workflow(step("a"), step("b", "a", retry={"max_attempts": 1})))
    first = inputs(play.complete("a", {"n": 1}))
    assert inputs(play.fail("b")) == first == {"b": {"n": 1}}


def test_the_run_gives_back_the_output_of_its_only_terminal_step() -> None:
    assert output(started(workflow(step("a"), step("b", "a"))), ("a", 1), ("b", {"sum": 2})) == {"sum": 2}


def test_the_run_gives_back_an_object_when_several_steps_are_terminal() -> None:
    play = started(workflow(step("a"), step("b", "a"), step("c", "a"), step("d")))
    assert output(play, ("a", 0), ("c", 3), ("d", None), ("b", 2)) == {"b": 2, "c": 3, "d": None}


def test_the_output_of_a_skipped_terminal_step_is_null() -> None:
    play = started(workflow(step("a"), step("b", "a", skip_if=skip_if("a", "n", ">", 1))))
    assert output(play, ("a", {"n": 2})) is None


def test_payloads_pass_through_as_the_bytes_they_were() -> None:
    payload = b'{ "n" : 1.50, "n" : 9007199254740993 , "s":"\\u00fc"}'
    body = b'{"type":"step.completed","run_id":"r","step_id":"a","payload":' + payload + b"}"
    play = started(workflow(step("a"), step("b", "a")))
    [task] = play.tell(decode(body))
    assert bytes(task.input) == payload  # type: ignore[union-attr]


def test_a_run_does_not_keep_the_messages_that_its_payloads_came_in() -> None:
    body = bytearray(b'{"type":"step.completed","run_id":"r","step_id":"a","payload":"mine"}')
    play = started(workflow(step("a"), step("b", "a")))
    run = fold(play.workflow, play.run, [Record(9, EPOCH, decode(bytes(body)))])
    assert run is not None
    assert bytes(run.steps["a"].output) == b'"mine"'  # type: ignore[arg-type]
