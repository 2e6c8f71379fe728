"""Steps that are completed by hand, and attempts that begin before their time."""

from __future__ import annotations

import pytest
from msgspec import Raw

from penstock.engine.run.commands import CancelTask, SetTimer, WithdrawTask, WithdrawTimer
from penstock.engine.run.event_payloads import Override, TimerRef
from penstock.engine.run.events import StepOverridden, TimerFired
from penstock.engine.run.state import RunStatus
from penstock.engine.run.timers import live_timers
from tests.engine.build import RUN_ID, Play, dispatched, inputs, only, started, step, value, workflow

CHAIN = workflow(step("a", retry={"max_attempts": 1, "initial_delay": "10s"}), step("b", "a"))


def by_hand(step_id: str, output: bytes = b"1") -> StepOverridden:
    return StepOverridden(run_id=RUN_ID, step_id=step_id, payload=Override(Raw(output), "ada"))


def now(step_id: str, attempt: int) -> TimerFired:
    return TimerFired(run_id=RUN_ID, payload=TimerRef(f"retry.{step_id}", step_id, attempt, early=True))


def test_the_worker_that_carries_the_step_out_is_told_and_its_task_withdrawn() -> None:
    play = started(CHAIN)
    play.begin("a", worker="one")
    commands = play.tell(by_hand("a"))
    assert [CancelTask("a", 1, 0, "one", reason="it was completed by hand")] == only(CancelTask, commands)
    assert [WithdrawTask("A", of_step="a")] == only(WithdrawTask, commands)
    assert {"b": 1} == inputs(commands)
    assert {"a": "completed", "b": "queued"} == play.statuses()


def test_the_handler_at_work_for_the_step_and_its_timer_are_withdrawn() -> None:
    play = started(workflow(step("a", timeout="30s", on_failure={"task": "H"}), step("b", "a")))
    play.carry_out(play.fail("a"))
    [timeout] = only(SetTimer, play.begin("a.on_failure", worker="one"))
    commands = play.tell(by_hand("a"))
    assert [WithdrawTimer("timeout.a.on_failure", timeout.due)] == only(WithdrawTimer, commands)
    assert [WithdrawTask("H", of_step="a.on_failure")] == only(WithdrawTask, commands)
    assert {"a": "completed", "a.on_failure": "cancelled", "b": "queued"} == play.statuses()


@pytest.mark.parametrize("late", ["complete", "fail", "begin"])
def test_what_the_worker_still_says_changes_nothing(late: str) -> None:
    play = started(CHAIN)
    play.begin("a")
    play.tell(by_hand("a"))
    before = play.run
    getattr(play, late)("a")
    assert (before, 1) == (play.run, value(play.step("a").output))


def test_the_attempt_that_waited_for_a_worker_or_for_its_time_does_not_count() -> None:
    waited, began, failed = started(CHAIN), started(CHAIN), started(CHAIN)
    began.begin("a")
    failed.begin("a")
    failed.fail("a")
    for play in (waited, began, failed):
        play.tell(by_hand("a"))
    assert [0, 1, 1] == [play.step("a").begun for play in (waited, began, failed)]


def test_a_step_is_completed_once_and_not_before_its_dependencies() -> None:
    play = started(CHAIN)
    before = play.run
    assert [] == play.tell(by_hand("b")) == play.tell(by_hand("nowhere"))
    assert before is play.run
    play.tell(by_hand("a"))
    before = play.run
    assert [] == play.tell(by_hand("a", b"2"))
    assert before is play.run


def test_the_next_attempt_begins_at_once_and_its_timer_is_withdrawn() -> None:
    play = started(CHAIN)
    play.fail("a")
    assert [("a", 2)] == dispatched(commands := play.tell(now("a", 2)))
    assert ["retry.a"] == [one.timer for one in only(WithdrawTimer, commands)]
    before = play.run
    assert [] == play.fire("retry.a", "a", 2, after=60)
    assert before is play.run


def test_an_attempt_that_does_not_wait_is_not_begun() -> None:
    play: Play = started(CHAIN)
    before = play.run
    assert [] == play.tell(now("a", 1))
    assert (before, RunStatus.RUNNING) == (play.run, play.run.status)


def test_an_attempt_that_is_to_begin_now_in_a_paused_run_begins_at_the_resumption_without_its_timer() -> None:
    play = started(CHAIN)
    play.begin("a")
    play.fail("a")
    play.pause_run()
    [timer] = live_timers(play.run)

    assert [WithdrawTimer(timer.timer, timer.due)] == play.tell(now("a", 2))
    assert [] == live_timers(play.run)
    assert [] == play.tell(now("a", 2)), "it has been withdrawn"
    assert [("a", 2)] == dispatched(play.unpause_run())
