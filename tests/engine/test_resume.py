"""Runs that failed and go on: what begins again, and what stays."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.engine.run.commands import (
    AppendEvent,
    Command,
    RemoveDeadLetters,
    SetTimer,
    WithdrawTask,
    WithdrawTimer,
)
from penstock.engine.run.events import StepSkipped, WorkflowCompleted, WorkflowFailed
from penstock.engine.run.execution.cancelling import silently
from penstock.engine.run.state import RunStatus, from_snapshot, to_snapshot
from penstock.engine.run.still_due import still_due
from penstock.engine.run.timers import live_timers
from tests.engine.build import (
    EPOCH,
    Play,
    appended,
    dispatched,
    inputs,
    only,
    skip_if,
    started,
    step,
    value,
    workflow,
)

CHAIN = workflow(step("a"), step("b", "a"), step("c", "b"))
TWICE = {"max_attempts": 2}


def failed_at(play: Play, step_id: str, attempt: int = 1, **fields: int) -> Play:
    play.fail(step_id, attempt, kind="non_retriable", **fields)  # type: ignore[arg-type]
    play.settle()
    assert play.run.status is RunStatus.FAILED
    return play


def failed_chain() -> Play:
    """Step `a` is done, `b` has failed the run, `c` never began."""
    play = started(CHAIN, {"n": 1})
    play.complete("a", {"n": 2})
    return failed_at(play, "b")


def test_a_resumed_run_goes_on_at_the_step_that_failed_with_the_next_attempt() -> None:
    play = failed_chain()
    commands = play.resume(after=60)
    assert dispatched(commands) == [("b", 2)]
    assert inputs(commands) == {"b": {"n": 2}}
    assert play.statuses() == {"a": "completed", "b": "queued", "c": "pending"}


def test_a_resumed_run_shows_neither_error_nor_end() -> None:
    play = failed_chain()
    begun = play.run.started_at
    play.resume(after=60)
    run, b = play.run, play.step("b")
    assert (run.status, run.error, run.finished_at, run.started_at, run.resumes) == (
        RunStatus.RUNNING,
        None,
        None,
        begun,
        1,
    )
    assert (b.error, b.finished_at, b.started_at, b.worker_id) == (None, None, None, None)
    assert play.step("c").finished_at is None


def test_a_resumed_run_completes_as_any() -> None:
    play = failed_chain()
    play.resume()
    play.complete("b", "b's", 2)
    [end] = only(AppendEvent, play.complete("c", "c's"))
    assert isinstance(end.event, WorkflowCompleted)
    assert (value(end.event.payload.output), end.event.payload.resumes) == ("c's", 1)
    play.settle()
    assert play.run.status is RunStatus.COMPLETED


def test_what_is_done_stays_done() -> None:
    play = started(workflow(step("a"), step("b", "a", skip_if=skip_if("a", "x", "==", 1)), step("c", "b"), step("z")))
    play.complete("a", {"x": 1})
    play.settle()
    failed_at(play, "z")
    commands = play.resume()
    assert play.statuses() == {"a": "completed", "b": "skipped", "c": "queued", "z": "queued"}
    assert dispatched(commands) == [("c", 2), ("z", 2)]
    assert value(play.step("a").output) == {"x": 1}


def test_what_was_cancelled_with_the_run_begins_again_with_the_next_attempt() -> None:
    play = started(
        workflow(
            step("a"),
            step("b", task="T", timeout="1m"),
            step("c", "b"),
            step("d", retry={**TWICE, "initial_delay": "9s"}),
        )
    )
    play.begin("b", worker="w")
    play.fail("d")
    failed_at(play, "a")
    assert set(play.statuses().values()) == {"failed", "cancelled"}
    assert dispatched(play.resume()) == [("a", 2), ("b", 2), ("d", 3)]
    assert play.statuses() == {"a": "queued", "b": "queued", "c": "pending", "d": "queued"}
    assert live_timers(play.run) == []
    play.complete("b", attempt=2)
    assert play.step("c").attempts == 1


def test_the_dead_letters_of_failed_steps_are_removed_up_to_the_last_known_one() -> None:
    play = started(workflow(step("a"), step("b", task="B"), step("c", "a")))
    play.complete("a")
    failed_at(play, "b")
    commands = play.resume(dead_letters=7)
    assert only(RemoveDeadLetters, commands) == [RemoveDeadLetters("b", "B", 7)]
    assert commands[0] == RemoveDeadLetters("b", "B", 7)
    failed_at(play, "b", 2)
    assert still_due(play.run, commands[0])  # a shard that died before it had done it does it late
    assert only(RemoveDeadLetters, play.resume()) == []  # an older version says nothing of letters


def test_retries_begin_anew_and_attempts_go_on_counting() -> None:
    play = started(workflow(step("a", retry=TWICE)))
    for attempt in (1, 2, 3):
        play.fail("a", attempt)
    play.settle()
    assert dispatched(play.resume()) == [("a", 4)]
    assert [dispatched(play.fail("a", attempt)) for attempt in (4, 5)] == [[("a", 5)], [("a", 6)]]
    assert appended(play.fail("a", 6)) == ["workflow.failed"]
    assert (play.step("a").status, play.step("a").attempts) == ("failed", 6)


def test_delays_grow_from_the_beginning_again() -> None:
    policy = {"max_attempts": 3, "strategy": "exponential", "initial_delay": "10s"}
    play = started(workflow(step("a", retry=policy)))
    [first] = only(SetTimer, play.fail("a"))
    play.fire("retry.a", "a", 2, after=20)
    failed_at(play, "a", 2)
    play.resume()
    [again] = only(SetTimer, play.fail("a", 3))
    assert first.due - EPOCH == pytest.approx(10, rel=0.11)
    assert again.due - play.now == pytest.approx(10, rel=0.11)
    assert (again.timer, again.attempt) == ("retry.a", 4)


@pytest.mark.parametrize("answer", [Play.begin, Play.complete, Play.fail, Play.go_on])
def test_late_answers_from_before_are_ignored(answer: Callable[..., list[Command]]) -> None:
    play = failed_chain()
    play.resume()
    before = play.run
    assert silently(answer(play, "b", attempt=1)) == []
    assert silently(answer(play, "a", attempt=1)) == []
    assert play.run is before


def resumed_when(status: RunStatus) -> Play:
    play = Play(CHAIN)
    play.schedule()
    if status is RunStatus.SCHEDULED:
        return play
    play.start()
    if status is RunStatus.CANCELLED:
        play.cancel()
    if status is RunStatus.COMPLETED:
        for step_id in "abc":
            play.complete(step_id)
        play.settle()
    assert play.run.status is status
    return play


@pytest.mark.parametrize("status", [RunStatus.SCHEDULED, RunStatus.RUNNING, RunStatus.CANCELLED, RunStatus.COMPLETED])
def test_only_a_failed_run_is_resumed(status: RunStatus) -> None:
    play = resumed_when(status)
    before = play.run
    assert play.resume() == []
    assert play.run is before


def test_what_was_never_started_is_not_resumed() -> None:
    play = Play(CHAIN)
    assert play.resume() == []
    assert dispatched(play.start()) == [("a", 1)]
    assert play.run.resumes == 0


def test_a_run_whose_end_is_not_in_the_log_yet_is_not_resumed() -> None:
    play = started(CHAIN)
    play.fail("a")
    before = play.run
    assert play.resume() == []
    assert play.run is before
    play.settle()
    assert dispatched(play.resume()) == [("a", 2)]


def test_resuming_twice_is_resuming_once() -> None:
    play = failed_chain()
    play.resume()
    before = play.run
    assert play.resume() == []
    assert play.run is before


def test_a_resumed_run_that_fails_again_is_resumed_again() -> None:
    play = failed_chain()
    play.resume()
    failed_at(play, "b", 2)
    assert play.run.error == 'step "b" failed: boom'
    assert dispatched(play.resume()) == [("b", 3)]
    assert play.run.resumes == 2
    play.complete("b", attempt=3)
    play.complete("c")
    play.settle()
    assert play.run.status is RunStatus.COMPLETED


def test_a_resumed_run_can_be_cancelled() -> None:
    play = failed_chain()
    play.resume()
    assert play.cancel("enough") == [WithdrawTask("B")]
    assert (play.run.status, play.run.error) == (RunStatus.CANCELLED, "enough")
    assert play.resume() == []


def test_a_resumed_run_has_a_snapshot_that_is_read_back() -> None:
    play = failed_chain()
    play.resume()
    assert from_snapshot(to_snapshot(play.run)) == play.run


def test_a_run_that_took_too_long_is_resumed_with_all_of_its_time() -> None:
    play = started(workflow(step("a"), step("b", "a"), timeout="1m"))
    play.fire("workflow", after=60)
    play.settle()
    assert play.statuses() == {"a": "cancelled", "b": "cancelled"}
    commands = play.resume(after=40)
    assert commands[0] == SetTimer("workflow", EPOCH + 160, attempt=1)
    assert dispatched(commands) == [("a", 2)]
    assert live_timers(play.run) == [SetTimer("workflow", EPOCH + 160, attempt=1)]


@pytest.mark.parametrize("attempt", [None, 0, 2])
def test_the_workflow_timer_of_another_life_does_not_count(attempt: int | None) -> None:
    play = started(workflow(step("a"), timeout="1m"))
    failed_at(play, "a")
    play.resume()
    before = play.run
    assert play.fire("workflow", attempt=attempt, after=60) == []
    assert play.run is before
    assert appended(play.fire("workflow", attempt=1)) == ["workflow.failed"]


def test_each_life_has_a_workflow_timer_of_its_own() -> None:
    play = started(workflow(step("a"), timeout="1m"))
    for life in (1, 2, 3):
        failed_at(play, "a", life)
        [timer] = only(SetTimer, play.resume(after=100))
        assert timer == SetTimer("workflow", play.now + 60, attempt=life)
    [end] = only(AppendEvent, play.fire("workflow", attempt=3, after=60))
    assert isinstance(end.event, WorkflowFailed)
    assert end.event.payload.resumes == 3
    assert WithdrawTimer("workflow", EPOCH + 360) not in play.settle()
    assert (play.run.status, play.run.error) == (RunStatus.FAILED, "workflow timeout exceeded (1m)")


def test_a_run_that_the_broker_refused_to_serve_goes_on_where_it_was() -> None:
    play = started(CHAIN)
    play.complete("a", "big")
    assert WithdrawTask("B") in play.refuse("the run cannot go on: too large")
    assert (play.run.status, play.run.error) == (RunStatus.FAILED, "the run cannot go on: too large")
    assert play.statuses() == {"a": "completed", "b": "cancelled", "c": "cancelled"}
    assert dispatched(play.resume()) == [("b", 2)]


def test_a_run_whose_end_was_refused_only_has_to_end() -> None:
    play = started(workflow(step("a"), timeout="1m"))
    play.complete("a", "big")
    play.refuse()
    [end] = play.resume()
    assert isinstance(end, AppendEvent)
    assert isinstance(end.event, WorkflowCompleted)
    assert (value(end.event.payload.output), end.event.payload.resumes) == ("big", 1)
    assert live_timers(play.run) == []
    play.settle()
    assert play.run.status is RunStatus.COMPLETED


def test_a_skip_that_its_runs_end_overtook_is_ordered_again_under_another_number() -> None:
    """The broker drops what has the message id of an event that it stored a moment ago."""
    play = started(workflow(step("a"), step("b", "a", skip_if=skip_if("a", "x", "==", 1)), step("c", "b")))
    [first] = only(AppendEvent, play.complete("a", {"x": 1}))
    play.refuse()
    play.settle()
    assert play.statuses() == {"a": "completed", "b": "cancelled", "c": "cancelled"}
    [again] = only(AppendEvent, play.resume())
    assert isinstance(first.event, StepSkipped)
    assert isinstance(again.event, StepSkipped)
    assert (first.event.attempt_number, again.event.attempt_number) == (None, 2)
    assert dispatched(play.settle()) == [("c", 1)]
    assert play.statuses() == {"a": "completed", "b": "skipped", "c": "queued"}


def test_a_skip_from_before_serves_a_resumed_run_as_well() -> None:
    play = started(workflow(step("a"), step("b", "a", skip_if=skip_if("a", "x", "==", 1)), step("c", "b")))
    [first] = only(AppendEvent, play.complete("a", {"x": 1}))
    play.refuse()
    play.resume()
    assert dispatched(play.tell(first.event)) == [("c", 1)]
    before = play.run
    assert play.settle() == []
    assert play.run is before
