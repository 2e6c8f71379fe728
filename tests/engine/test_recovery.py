"""What a new owner of a run must still carry out: `still_due` over the commands of the events beyond a snapshot."""

from __future__ import annotations

from penstock.engine.run.commands import AppendEvent, Command, DeadLetterTask, DispatchTask, SetTimer
from penstock.engine.run.still_due import still_due
from tests.engine.build import Play, dispatched, only, started, step, workflow

RETRIED = workflow(step("a", timeout="1m", retry={"max_attempts": 1, "initial_delay": "5s"}), step("b", "a"), step("c"))


def due(play: Play, commands: list[Command]) -> list[Command]:
    return [command for command in commands if still_due(play.run, command)]


def test_a_task_is_due_until_it_was_started_or_answered() -> None:
    play = Play(RETRIED)
    commands = play.start()
    assert due(play, commands) == commands
    play.begin("a")
    assert dispatched(due(play, commands)) == [("c", 1)]
    play.complete("c")
    assert dispatched(due(play, commands)) == []


def test_a_task_of_an_earlier_attempt_is_not_due() -> None:
    play = Play(RETRIED)
    commands = play.start()
    commands += play.fail("a")
    assert ("a", 1) not in dispatched(due(play, commands))
    commands += play.fire("retry.a", "a", 2, after=6)
    assert dispatched(due(play, commands)) == [("c", 1), ("a", 2)]


def test_a_timer_is_due_until_it_fired_or_its_step_went_on() -> None:
    play = started(RETRIED)
    first = play.begin("a")
    assert due(play, first) == first
    second = play.fail("a")
    assert only(SetTimer, due(play, first + second)) == only(SetTimer, second)
    play.fire("retry.a", "a", 2, after=6)
    assert only(SetTimer, due(play, first + second)) == []


def test_the_end_of_a_failing_run_is_due_and_its_tasks_are_not() -> None:
    play = Play(RETRIED)
    commands = play.start()
    commands += play.fail("c")
    found = due(play, commands)
    assert [type(command) for command in found] == [DeadLetterTask, AppendEvent]
    assert only(DispatchTask, found) == []


def test_a_dead_letter_is_due_also_after_the_end_of_the_run() -> None:
    """A step that fails while its run is failing: the end of the run may be in the log before its letter is kept."""
    play = started(RETRIED)
    play.fail("c")
    commands = play.fail("a", kind="non_retriable")
    play.settle()
    assert due(play, commands) == commands
    assert [type(command) for command in commands] == [DeadLetterTask]
