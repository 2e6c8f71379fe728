"""Cancelling: what it takes back, and that whatever comes later is ignored."""

from __future__ import annotations

from penstock.engine.run.commands import (
    AppendEvent,
    CancelTask,
    Command,
    DeadLetterTask,
    DispatchTask,
    SetTimer,
    WithdrawTask,
    WithdrawTimer,
)
from penstock.engine.run.event_payloads import NULL, Cancellation
from penstock.engine.run.events import WorkflowCancelled, WorkflowFailed
from penstock.engine.run.state import RunStatus
from penstock.engine.run.still_due import still_due
from tests.engine.build import EPOCH, Play, started, step, workflow

MIXED = workflow(
    step("done"),
    step("out", task="T", worker_group="gpu", timeout="1m"),
    step("queued", task="T", worker_group="gpu"),
    step("plain", task="T"),
    step("waits", retry={"max_attempts": 1, "initial_delay": "10s"}),
    step("later", "out"),
    timeout="1h",
)


def mixed() -> Play:
    play = started(MIXED)
    play.complete("done")
    play.begin("out")
    play.fail("waits")
    return play


def test_cancelling_withdraws_every_timer_and_each_kind_of_task_once() -> None:
    play = mixed()
    retry_due = play.step("waits").due
    assert retry_due is not None
    assert play.cancel() == [
        CancelTask("out", 1, 0, "one", reason="the run was cancelled"),
        WithdrawTimer("workflow", EPOCH + 3600),
        WithdrawTimer("timeout.out", EPOCH + 60),
        WithdrawTimer("retry.waits", retry_due),
        WithdrawTask("T", "gpu"),
        WithdrawTask("T"),
        WithdrawTask("WAITS"),
    ]


def test_cancelling_ends_the_run_and_every_step_that_has_not_ended() -> None:
    play = mixed()
    play.cancel("enough")
    assert (play.run.status, play.run.error) == (RunStatus.CANCELLED, "enough")
    assert play.run.finished_at is not None
    statuses = play.statuses()
    assert statuses.pop("done") == "completed"
    assert set(statuses.values()) == {"cancelled"}


def test_a_run_cancelled_without_reason_has_no_error() -> None:
    play = mixed()
    play.cancel()
    assert play.run.error is None


def test_late_completion_after_cancel_is_ignored() -> None:
    play = mixed()
    play.cancel()
    before = play.run
    assert [play.complete("out"), play.fail("queued"), play.complete("plain", attempt=None)] == [[]] * 3
    assert play.run is before


def test_late_timers_after_cancel_are_ignored() -> None:
    play = mixed()
    play.cancel()
    before = play.run
    assert [play.fire("workflow"), play.fire("timeout.out", "out", 1), play.fire("retry.waits", "waits", 2)] == [[]] * 3
    assert play.run is before


def test_cancelling_twice_keeps_the_first_reason() -> None:
    play = mixed()
    play.cancel("first")
    assert play.cancel("second") == []
    assert play.run.error == "first"


def test_a_cancelled_run_does_not_start_again() -> None:
    play = mixed()
    play.cancel()
    assert play.start() == []
    assert play.run.status is RunStatus.CANCELLED


def test_a_scheduled_run_that_is_cancelled_never_starts() -> None:
    play = Play(MIXED)
    play.schedule()
    assert play.cancel("changed my mind") == []
    assert play.start(after=60) == []
    assert (play.run.status, play.run.started_at) == (RunStatus.CANCELLED, None)
    assert set(play.statuses().values()) == {"cancelled"}


def test_a_cancel_that_overtakes_the_end_of_the_run_wins() -> None:
    for answer in (Play.complete, Play.fail):
        play = started(workflow(step("a")))
        answer(play, "a")
        play.cancel()
        assert play.settle() == []
        assert play.run.status is RunStatus.CANCELLED


def test_after_the_end_only_what_cleans_up_or_keeps_is_still_due() -> None:
    play = mixed()
    play.fail("out", kind="non_retriable")
    play.cancel()
    task = DispatchTask("queued", "T", 1, 0, NULL, {}, "gpu")
    dead_letter = DeadLetterTask("out", "T", 1, 0, NULL, {}, "boom", "gpu")
    event = AppendEvent(WorkflowFailed(run_id=play.run_id))
    commands: list[Command] = [
        task,
        dead_letter,
        event,
        SetTimer("workflow", EPOCH + 3600),
        WithdrawTimer("workflow", EPOCH + 3600),
        WithdrawTask("T"),
    ]
    assert [still_due(play.run, command) for command in commands] == [False, True, False, False, True, True]


def test_the_reason_is_optional_on_the_wire() -> None:
    assert WorkflowCancelled(run_id="r").payload == Cancellation(reason=None)
