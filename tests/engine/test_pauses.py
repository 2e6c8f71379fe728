"""While a worker has put its task aside, the step's timeout stands still."""

from __future__ import annotations

import pytest

from penstock.engine.run.advance import advance
from penstock.engine.run.commands import Command, SetTimer, WithdrawTimer
from penstock.engine.run.event_payloads import PauseRef
from penstock.engine.run.events import StepPaused, StepStarted
from penstock.engine.run.state import from_snapshot, to_snapshot
from penstock.engine.run.timers import live_timers
from tests.engine.build import EPOCH, RUN_ID, Play, appended, dispatched, loop, only, started, step, workflow

SLOW = workflow(step("a", timeout="10s", retry={"max_attempts": 1}))


def pause(
    play: Play, delivery: int = 1, worker: str | None = "one", attempt: int = 1, *, after: float = 0.0
) -> list[Command]:
    event = StepPaused(
        run_id=RUN_ID,
        step_id="a",
        worker_id=worker,
        attempt_number=attempt,
        delivery=delivery,
        payload=PauseRef(4000, "rest"),
    )
    return play.tell(event, after=after)


def begin(play: Play, delivery: int, worker: str = "one", attempt: int = 1, *, after: float = 0.0) -> list[Command]:
    event = StepStarted(run_id=RUN_ID, step_id="a", worker_id=worker, attempt_number=attempt, delivery=delivery)
    return play.tell(event, after=after)


def test_a_pause_takes_the_deadline_back_and_the_next_delivery_gets_what_is_left() -> None:
    play = started(SLOW)
    begin(play, 1)
    assert [WithdrawTimer("timeout.a", EPOCH + 10)] == pause(play, after=4)
    assert ("running", None, 6.0) == (play.step("a").status, play.step("a").due, play.step("a").left)
    assert [] == live_timers(play.run)
    assert [SetTimer("timeout.a+1", EPOCH + 110, "a", 1)] == begin(play, 2, "two", after=100)
    assert ("two", EPOCH + 110, None) == (play.step("a").worker_id, play.step("a").due, play.step("a").left)


def test_all_pauses_of_an_attempt_together_leave_it_the_whole_of_its_timeout() -> None:
    play = started(SLOW)
    begin(play, 1)
    for delivery in range(1, 5):
        pause(play, delivery, after=2)
        begin(play, delivery + 1, after=3600)
    [timer] = live_timers(play.run)
    assert (f"timeout.a+{4}", play.now + 2) == (timer.timer, timer.due)
    [failed, _] = play.fire(timer.timer, "a", 1, after=2)
    assert ["step.failed"] == appended([failed])


def test_a_timer_from_before_a_pause_means_nothing_after_it() -> None:
    play = started(SLOW)
    begin(play, 1)
    pause(play, after=9.99)
    assert [] == play.fire("timeout.a", "a", 1, after=0.02)
    begin(play, 2, after=1)
    assert [] == play.fire("timeout.a", "a", 1)
    assert ["step.failed"] == appended(play.fire("timeout.a+1", "a", 1, after=0.02))


@pytest.mark.parametrize(("delivery", "worker"), [(1, "one"), (3, "two"), (2, "one")])
def test_a_pause_reported_by_a_worker_without_the_task_is_late(delivery: int, worker: str) -> None:
    play = started(SLOW)
    begin(play, 1)
    begin(play, 2, "two", after=1)
    before = play.run
    assert [] == pause(play, delivery, worker, after=1)
    assert before == play.run
    pause(play, 2, "two")
    assert 8.0 == play.step("a").left


def test_repeats_of_a_pause_and_of_the_starts_around_it_change_nothing() -> None:
    play = started(SLOW)
    for event in (
        lambda: begin(play, 1),
        lambda: pause(play),
        lambda: begin(play, 2),
        lambda: pause(play, 2),
        lambda: begin(play, 3),
    ):
        event()
        before = play.run
        for record in list(play.log[1:]):
            assert [] == play.tell(record.event, after=1)
            assert before == play.run


def test_a_redelivered_task_that_was_not_paused_keeps_its_deadline() -> None:
    play = started(SLOW)
    begin(play, 1)
    assert [] == begin(play, 2, "two", after=3)
    assert (EPOCH + 10, "two") == (play.step("a").due, play.step("a").worker_id)


def test_a_pause_of_another_attempt_or_of_a_step_without_a_timeout_changes_nothing() -> None:
    play = started(SLOW)
    begin(play, 1)
    before = play.run
    assert [] == pause(play, attempt=2)
    assert before == play.run
    free = started(workflow(step("a")))
    begin(free, 1)
    before = free.run
    assert [] == pause(free)
    assert before == free.run


def test_the_next_attempt_and_the_next_iteration_begin_with_a_whole_timeout() -> None:
    play = started(workflow(step("a", timeout="10s", retry={"max_attempts": 1, "initial_delay": "0s"})))
    begin(play, 1)
    pause(play, after=4)
    begin(play, 2, after=5)
    assert [("a", 2)] == dispatched(play.fail("a"))
    assert [SetTimer("timeout.a", play.now, "a", 2)] == [
        SetTimer(timer.timer, timer.due - 10, timer.step_id, timer.attempt)
        for timer in only(SetTimer, begin(play, 1, attempt=2))
    ]
    looped = started(workflow(loop("a", timeout="10s", config={"max_iterations": 3})))
    begin(looped, 1)
    pause(looped, after=4)
    looped.go_on("a")
    assert (None, 0, 1) == (looped.step("a").left, looped.step("a").pauses, looped.step("a").delivery)


@pytest.mark.parametrize("end", ["complete", "fail", "cancel"])
def test_a_step_that_ends_in_its_pause_has_nothing_left(end: str) -> None:
    play = started(workflow(step("a", timeout="10s")))
    begin(play, 1)
    pause(play)
    commands = {"complete": lambda: play.complete("a"), "fail": lambda: play.fail("a"), "cancel": play.cancel}[end]()
    assert [] == only(WithdrawTimer, commands)
    assert (None, None) == (play.step("a").left, play.step("a").due)


def test_a_paused_step_is_taken_up_from_its_snapshot() -> None:
    play = started(SLOW)
    begin(play, 1)
    pause(play, after=4.25)
    kept = from_snapshot(to_snapshot(play.run))
    assert kept == play.run
    commands = begin(play, 2, after=60)
    again, repeated = advance(SLOW, kept, play.log[-1])
    assert (play.run, commands) == (again, repeated)


def test_a_lost_task_that_was_paused_goes_on_with_whoever_takes_its_place() -> None:
    play = started(workflow(step("first"), step("a", "first", timeout="10s"), sticky="soft"))
    play.complete("first", worker="bound")
    begin(play, 1, "bound")
    pause(play, worker="bound", after=4)
    play.fire("lost.a", "a", 1, after=30)
    before = play.run
    assert [] == pause(play, worker="bound")
    assert [] == begin(play, 1, "bound")
    assert before == play.run
    assert [SetTimer("timeout.a+1", play.now + 6, "a", 1)] == begin(play, 1, "two")
