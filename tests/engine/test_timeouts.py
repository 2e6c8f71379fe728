"""Deadlines of steps and of runs: set, met, missed."""

from __future__ import annotations

from penstock.engine.run.commands import AppendEvent, CancelTask, SetTimer, WithdrawTimer
from penstock.engine.run.events import StepFailed, WorkflowFailed
from penstock.engine.run.state import RunStatus
from penstock.engine.run.timers import WORKFLOW_TIMER, live_timers
from tests.engine.build import EPOCH, Play, appended, dispatched, only, started, step, workflow

SLOW = workflow(step("a", timeout="1m", retry={"max_attempts": 1, "initial_delay": "5s"}))


def test_a_step_timeout_counts_from_its_start_not_from_its_dispatch() -> None:
    play = Play(SLOW)
    assert only(SetTimer, play.start()) == []
    assert play.begin("a", after=100) == [SetTimer("timeout.a", EPOCH + 160, "a", 1)]
    assert play.step("a").due == EPOCH + 160


def test_every_attempt_has_the_whole_timeout() -> None:
    play = started(SLOW)
    play.begin("a")
    play.fail("a")
    play.fire("retry.a", "a", 2, after=6)
    assert play.begin("a", 2, after=50) == [SetTimer("timeout.a", EPOCH + 116, "a", 2)]


def test_a_redelivered_task_that_starts_again_gets_no_second_timeout() -> None:
    play = started(SLOW)
    play.begin("a")
    assert play.begin("a", after=30) == []
    assert play.step("a").due == EPOCH + 60


def test_a_missed_step_timeout_is_recorded_as_a_failure_of_that_attempt() -> None:
    play = started(SLOW)
    play.begin("a")
    [command, told] = play.fire("timeout.a", "a", 1, after=60)
    assert told == CancelTask("a", 1, 0, "one", reason="step timeout exceeded (1m)")
    assert isinstance(command, AppendEvent)
    failed = command.event
    assert isinstance(failed, StepFailed)
    assert (failed.step_id, failed.attempt_number, failed.iteration) == ("a", 1, None)
    assert (failed.payload.error, failed.payload.failure_type) == ("step timeout exceeded (1m)", "retriable")
    assert play.step("a").status == "running"


def test_a_missed_step_timeout_is_tried_again_as_any_failure() -> None:
    play = started(SLOW)
    play.begin("a")
    play.fire("timeout.a", "a", 1, after=60)
    [timer] = play.settle()
    assert isinstance(timer, SetTimer)
    assert (timer.timer, timer.attempt) == ("retry.a", 2)
    assert dispatched(play.fire("retry.a", "a", 2, after=6)) == [("a", 2)]


def test_a_completion_that_overtakes_the_failure_of_its_timeout_wins() -> None:
    play = started(SLOW)
    play.begin("a")
    play.fire("timeout.a", "a", 1, after=60)
    assert appended(play.complete("a")) == ["workflow.completed"]
    play.settle()
    assert (play.run.status, play.step("a").status, play.step("a").attempts) == (RunStatus.COMPLETED, "completed", 1)


def test_an_answer_in_time_withdraws_the_timeout() -> None:
    play = started(SLOW)
    play.begin("a")
    assert play.complete("a")[0] == WithdrawTimer("timeout.a", EPOCH + 60)
    play = started(SLOW)
    play.begin("a")
    assert play.fail("a")[0] == WithdrawTimer("timeout.a", EPOCH + 60)


def test_a_timer_that_fires_though_withdrawn_changes_nothing() -> None:
    play = started(workflow(step("a", timeout="1m", retry={"max_attempts": 1}), step("b")))
    play.begin("a")
    play.fail("a")
    play.begin("a", 2)
    before = play.run
    assert [play.fire("timeout.a", "a", 1, after=60), play.fire("retry.a", "a", 2), play.fire("nonsense", "a", 2)] == [
        []
    ] * 3
    assert play.run is before
    play.complete("a", attempt=2)
    before = play.run
    assert play.fire("timeout.a", "a", 2) == []
    assert play.run is before


def test_the_workflow_timeout_counts_from_the_start_of_the_run() -> None:
    play = Play(workflow(step("a"), timeout="1m"))
    play.schedule()
    assert only(SetTimer, play.start(after=1000)) == [SetTimer(WORKFLOW_TIMER, EPOCH + 1060)]


def test_a_missed_workflow_timeout_fails_the_run() -> None:
    play = started(workflow(step("a", retry={"max_attempts": 5}), timeout="1m"))
    play.begin("a")
    [command] = play.fire(WORKFLOW_TIMER, after=60)
    assert isinstance(command, AppendEvent)
    assert isinstance(command.event, WorkflowFailed)
    assert (command.event.payload.error, command.event.payload.step_id) == ("workflow timeout exceeded (1m)", None)
    play.settle()
    assert (play.run.status, play.run.error) == (RunStatus.FAILED, "workflow timeout exceeded (1m)")
    assert play.statuses() == {"a": "cancelled"}


def test_a_workflow_timeout_counts_once() -> None:
    play = started(workflow(step("a"), timeout="1m"))
    play.fire(WORKFLOW_TIMER, after=60)
    before = play.run
    assert play.fire(WORKFLOW_TIMER) == []
    assert play.run is before


def test_a_workflow_timeout_after_the_last_step_comes_too_late() -> None:
    """The completion is ordered already: a run has one end, whatever reaches the log first."""
    play = started(workflow(step("a"), timeout="1m"))
    assert appended(play.complete("a")) == ["workflow.completed"]
    assert play.fire(WORKFLOW_TIMER, after=60) == []
    play.settle()
    assert (play.run.status, play.run.error) == (RunStatus.COMPLETED, None)


def test_without_timeouts_no_timer_is_ever_set() -> None:
    play = Play(workflow(step("a", retry={"max_attempts": 1})))
    commands = [*play.start(), *play.begin("a"), *play.fail("a"), *play.begin("a", 2), *play.complete("a", attempt=2)]
    assert only(SetTimer, commands) == []
    assert only(WithdrawTimer, commands) == []
    assert play.fire(WORKFLOW_TIMER) == []
    assert play.fire("timeout.a", "a", 1) == []


def test_live_timers_are_those_that_were_set_and_neither_fired_nor_withdrawn() -> None:
    play = Play(
        workflow(
            step("a", timeout="1m", retry={"max_attempts": 1, "initial_delay": "5s"}),
            step("b", timeout="2m"),
            timeout="1h",
        )
    )
    [whole] = only(SetTimer, play.start())
    [a] = only(SetTimer, play.begin("a"))
    [b] = only(SetTimer, play.begin("b"))
    assert live_timers(play.run) == [whole, a, b]
    play.complete("b")
    [retry] = only(SetTimer, play.fail("a"))
    assert live_timers(play.run) == [whole, retry]
    play.fire("retry.a", "a", 2, after=6)
    assert live_timers(play.run) == [whole]
    play.cancel()
    assert live_timers(play.run) == []
