"""Agent loops: their bounds, their delays, and the timers of both."""

from __future__ import annotations

import pytest

from penstock.engine.run.commands import (
    AppendEvent,
    CancelTask,
    Command,
    DeadLetterTask,
    SetTimer,
    WithdrawTask,
    WithdrawTimer,
)
from penstock.engine.run.events import StepFailed, WorkflowFailed
from penstock.engine.run.state import RunStatus
from penstock.engine.run.still_due import still_due
from penstock.engine.run.timers import live_timers
from tests.engine.build import (
    EPOCH,
    Play,
    appended,
    dispatched,
    dispatched_iterations,
    inputs,
    loop,
    only,
    started,
    step,
    workflow,
)
from tests.engine.test_loops import RETRIED, THREE, looping


def failure(commands: list[Command]) -> str:
    """The error with which a run was ordered to fail, after its dead letter."""
    [dead_letter] = only(DeadLetterTask, commands)
    [end] = [command.event for command in only(AppendEvent, commands) if isinstance(command.event, WorkflowFailed)]
    assert end.payload.error == f'step "{dead_letter.step_id}" failed: {dead_letter.error}'
    return dead_letter.error


def test_the_loops_output_is_that_of_its_last_iteration() -> None:
    play = started(workflow(loop("a", config=THREE), step("b", "a")))
    play.go_on("a", "handed on")
    assert inputs(play.complete("a", {"answer": 42}, iteration=1)) == {"b": {"answer": 42}}
    assert (play.step("a").status, play.step("a").iteration) == ("completed", 1)


@pytest.mark.parametrize("most", [1, 2, 5])
def test_max_iterations_counts_executions_in_all(most: int) -> None:
    play = looping({"max_iterations": most})
    for iteration in range(most - 1):
        assert dispatched_iterations(play.go_on("a", iteration=iteration)) == [("a", iteration + 1, 1)]
    commands = play.go_on("a", iteration=most - 1)
    assert failure(commands) == f"agent loop reached its max_iterations ({most})"
    assert dispatched(commands) == []
    play.settle()
    assert (play.run.status, play.statuses()) == (RunStatus.FAILED, {"a": "failed"})


def test_the_last_iteration_may_complete() -> None:
    play = looping({"max_iterations": 2})
    play.go_on("a")
    play.complete("a", "done", iteration=1)
    play.settle()
    assert play.run.status is RunStatus.COMPLETED


def test_retries_do_not_count_as_iterations() -> None:
    play = looping({"max_iterations": 1}, retry={"max_attempts": 3})
    for attempt in (1, 2, 3):
        assert dispatched_iterations(play.fail("a", attempt)) == [("a", 0, attempt + 1)]


def test_a_delay_comes_between_iterations_exactly_as_long_as_it_says() -> None:
    play = looping({"max_iterations": 3, "loop_delay": "10s"}, given=1)
    play.begin("a")
    due = EPOCH + 10
    assert play.go_on("a", 2) == [SetTimer("retry.a~1", due, "a", 1)]
    assert (play.step("a").status, play.step("a").due) == ("queued", due)
    assert inputs(play.fire("retry.a~1", "a", 1, after=10)) == {"a": 2}
    assert play.step("a").due is None
    assert play.fire("retry.a~1", "a", 1) == []


def test_each_iteration_waits_on_a_timer_of_its_own() -> None:
    play = looping({"max_iterations": 9, "loop_delay": "10s"})
    play.go_on("a")
    play.fire("retry.a~1", "a", 1, after=10)
    assert only(SetTimer, play.go_on("a", iteration=1)) == [SetTimer("retry.a~2", EPOCH + 20, "a", 1)]
    before = play.run
    assert [play.fire("retry.a~1", "a", 1), play.fire("retry.a", "a", 1), play.fire("retry.a~2", "a", 2)] == [[]] * 3
    assert play.run is before


def test_delay_and_retry_of_one_iteration_are_distinguished_by_the_attempt() -> None:
    play = looping({"max_iterations": 9, "loop_delay": "10s"}, retry=RETRIED)
    play.go_on("a")
    play.fire("retry.a~1", "a", 1, after=10)
    [timer] = play.fail("a", iteration=1, kind="retry_after", ms=7000)
    assert timer == SetTimer("retry.a~1", EPOCH + 17, "a", 2)
    assert play.fire("retry.a~1", "a", 1) == []
    assert dispatched_iterations(play.fire("retry.a~1", "a", 2, after=7)) == [("a", 1, 2)]


def test_a_step_timeout_holds_for_each_iteration_under_a_name_of_its_own() -> None:
    play = looping(timeout="1m", retry=RETRIED)
    assert play.begin("a") == [SetTimer("timeout.a", EPOCH + 60, "a", 1)]
    assert play.go_on("a", after=5)[0] == WithdrawTimer("timeout.a", EPOCH + 60)
    assert play.begin("a", 1, iteration=1, after=5) == [SetTimer("timeout.a~1", EPOCH + 70, "a", 1)]
    assert play.fire("timeout.a", "a", 1) == []
    [command, told] = play.fire("timeout.a~1", "a", 1, after=60)
    assert isinstance(command, AppendEvent)
    assert isinstance(command.event, StepFailed)
    assert (command.event.attempt_number, command.event.iteration) == (1, 1)
    assert told == CancelTask("a", 1, 1, "one", reason="step timeout exceeded (1m)")
    [retry] = play.settle()
    assert isinstance(retry, SetTimer)
    assert (retry.timer, retry.attempt) == ("retry.a~1", 2)


def test_going_on_overtakes_the_failure_of_its_timeout() -> None:
    play = looping(timeout="1m")
    play.begin("a")
    play.fire("timeout.a", "a", 1, after=60)
    assert dispatched_iterations(play.go_on("a")) == [("a", 1, 1)]
    play.settle()
    assert (play.step("a").status, play.step("a").iteration) == ("queued", 1)


def test_a_delay_that_ends_when_the_timeout_would_have_still_has_its_timer() -> None:
    play = looping({"max_iterations": 3, "loop_delay": "10s"}, timeout="30s")
    play.begin("a")
    due = EPOCH + 30
    assert play.go_on("a", after=20) == [WithdrawTimer("timeout.a", due), SetTimer("retry.a~1", due, "a", 1)]


def test_max_duration_counts_from_the_first_start_and_its_timer_is_set_once() -> None:
    play = looping({"max_duration": "1h"}, retry=RETRIED)
    [timer] = play.begin("a", after=100)
    assert isinstance(timer, SetTimer)
    assert (timer.timer, timer.due, timer.step_id) == ("loop.a", EPOCH + 3700, "a")
    assert only(SetTimer, play.go_on("a", after=10)) == []
    assert play.begin("a", 1, iteration=1, after=10) == []
    [retry] = play.fail("a", 1, iteration=1)
    assert live_timers(play.run) == [retry, timer]
    play.fire("retry.a~1", "a", 2, after=6)
    assert play.begin("a", 2, iteration=1) == []
    assert live_timers(play.run) == [timer]


def test_max_duration_of_workers_that_never_report_a_start_counts_from_their_first_event() -> None:
    play = looping({"max_duration": "1h"})
    [timer] = only(SetTimer, play.go_on("a", after=100))
    assert (timer.timer, timer.due) == ("loop.a", EPOCH + 3700)
    assert only(SetTimer, play.go_on("a", iteration=1, after=5)) == []
    assert failure(play.fire("loop.a", "a", timer.attempt, after=3600)) == "agent loop exceeded its max_duration (1h)"


def test_a_loop_beyond_its_max_duration_fails_whatever_it_is_doing() -> None:
    play = looping({"max_duration": "1h"}, timeout="2h", retry=RETRIED)
    [timeout, timer] = only(SetTimer, play.begin("a"))
    commands = play.fire("loop.a", "a", timer.attempt, after=3600)
    assert failure(commands) == "agent loop exceeded its max_duration (1h)"
    assert [command for command in commands if not isinstance(command, AppendEvent | DeadLetterTask)] == [
        CancelTask("a", 1, 0, "one", reason="agent loop exceeded its max_duration (1h)"),
        WithdrawTimer("timeout.a", timeout.due),
        WithdrawTask("A", of_step="a"),
    ]
    assert (play.step("a").status, live_timers(play.run)) == ("failed", [])
    play.settle()
    assert play.run.status is RunStatus.FAILED


def test_the_last_moment_comes_also_while_the_loop_waits() -> None:
    play = looping({"max_duration": "1h", "loop_delay": "2h"})
    [timer] = only(SetTimer, play.begin("a"))
    [delay] = only(SetTimer, play.go_on("a"))
    commands = play.fire("loop.a", "a", timer.attempt, after=3600)
    assert only(WithdrawTimer, commands) == [WithdrawTimer("retry.a~1", delay.due)]
    assert failure(commands) == "agent loop exceeded its max_duration (1h)"
    assert play.fire("retry.a~1", "a", 1, after=3600) == []


def test_the_last_moment_comes_also_while_the_loop_waits_for_a_retry() -> None:
    play = looping({"max_duration": "10s"}, retry={"max_attempts": 1, "initial_delay": "1h"})
    [timer] = only(SetTimer, play.begin("a"))
    [retry] = only(SetTimer, play.fail("a"))
    commands = play.fire("loop.a", "a", timer.attempt, after=10)
    assert only(WithdrawTimer, commands) == [WithdrawTimer("retry.a", retry.due)]
    assert play.step("a").status == "failed"


@pytest.mark.parametrize(("after", "goes_on"), [(3599.0, True), (3600.0, False), (5000.0, False)])
def test_going_on_at_or_after_the_last_moment_fails_though_its_timer_is_late(after: float, goes_on: bool) -> None:
    play = looping({"max_duration": "1h"})
    [timer] = only(SetTimer, play.begin("a"))
    commands = play.go_on("a", after=after)
    assert dispatched(commands) == ([("a", 1)] if goes_on else [])
    if not goes_on:
        assert failure(commands) == "agent loop exceeded its max_duration (1h)"
        assert WithdrawTimer("loop.a", timer.due) in commands
        assert play.fire("loop.a", "a", timer.attempt) == []


def test_completing_after_the_last_moment_counts_as_long_as_nobody_said_it_was_over() -> None:
    play = looping({"max_duration": "1h"})
    play.begin("a")
    assert appended(play.complete("a", 1, after=7200)) == ["workflow.completed"]


def test_max_iterations_comes_before_max_duration() -> None:
    play = looping({"max_iterations": 1, "max_duration": "1h"})
    play.begin("a")
    assert failure(play.go_on("a", after=7200)) == "agent loop reached its max_iterations (1)"


@pytest.mark.parametrize("end", [Play.complete, Play.fail])
def test_the_end_of_a_loop_withdraws_its_timer(end: object) -> None:
    play = looping({"max_duration": "1h"})
    [timer] = only(SetTimer, play.begin("a"))
    assert callable(end)
    assert end(play, "a")[0] == WithdrawTimer("loop.a", timer.due)
    before = play.run
    assert play.fire("loop.a", "a", timer.attempt, after=3600) == []
    assert play.run is before


def test_cancelling_withdraws_every_timer_of_a_loop_and_its_task() -> None:
    play = looping({"max_duration": "1h"}, timeout="1m")
    [timeout, timer] = only(SetTimer, play.begin("a"))
    assert play.cancel() == [
        CancelTask("a", 1, 0, "one", reason="the run was cancelled"),
        WithdrawTimer("timeout.a", timeout.due),
        WithdrawTimer("loop.a", timer.due),
        WithdrawTask("A"),
    ]
    assert play.go_on("a") == []


def test_the_last_moment_of_a_loop_in_a_failing_run_changes_nothing() -> None:
    play = started(workflow(loop("a", config={"max_duration": "1h"}), step("b")))
    [timer] = only(SetTimer, play.begin("a"))
    play.fail("b")
    before = play.run
    assert play.fire("loop.a", "a", timer.attempt, after=3600) == []
    assert play.run is before


def test_timers_of_former_iterations_are_not_due() -> None:
    play = looping({"max_duration": "1h", "loop_delay": "5s"}, timeout="1m")
    commands = [
        *play.begin("a"),
        *play.go_on("a"),
        *play.fire("retry.a~1", "a", 1, after=5),
        *play.begin("a", 1, iteration=1),
    ]
    found = [command.timer for command in only(SetTimer, commands) if still_due(play.run, command)]
    assert found == ["loop.a", "timeout.a~1"]
    assert [timer.timer for timer in live_timers(play.run)] == ["timeout.a~1", "loop.a"]
