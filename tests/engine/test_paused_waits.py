"""What comes to a paused run from outside while it waits: events, decisions, times. It counts when the run goes on."""

from __future__ import annotations

import pytest

from penstock.engine.run.commands import (
    AwaitEvent,
    DispatchTask,
    RequestApproval,
    WithdrawTimer,
)
from penstock.engine.run.event_payloads import ReceivedEvent, TimerRef
from penstock.engine.run.events import EventReceived, TimerFired
from penstock.engine.run.state import RunStatus, StepStatus
from penstock.engine.times import rfc3339
from tests.engine.build import (
    EPOCH,
    Play,
    appended,
    approval,
    dispatched,
    only,
    raw,
    started,
    step,
    workflow,
)


def test_a_sleep_that_comes_due_ends_at_the_resumption() -> None:
    play = Play(workflow({"id": "nap", "type": "sleep", "config": {"duration": "10s"}}, step("b", "nap")))
    play.carry_out(play.start())
    play.pause_run()

    assert [] == play.fire("sleep.nap", "nap", 1, after=10)
    assert play.step("nap").status is StepStatus.RUNNING
    assert [("b", 1)] == dispatched(play.unpause_run(after=5))
    assert rfc3339(EPOCH + 15) == play.step("nap").finished_at


def test_a_sleep_that_could_begin_meanwhile_begins_at_the_resumption() -> None:
    play = Play(workflow(step("a"), {"id": "nap", "type": "sleep", "depends_on": ["a"], "config": {"duration": "10s"}}))
    play.start()
    play.begin("a")
    play.pause_run()
    assert [] == play.complete("a", after=3)

    play.carry_out(play.unpause_run(after=4))

    assert EPOCH + 17 == play.step("nap").wake_at


WAIT = {"id": "w", "type": "wait_for_event", "config": {"event": "paid", "timeout": "10s", "on_timeout": "continue"}}


def _received(play: Play, seq: int = 7) -> EventReceived:
    payload = ReceivedEvent("paid", seq, raw({"n": 1}))
    return EventReceived(run_id=play.run_id, step_id="w", attempt_number=1, payload=payload)


def test_an_event_that_comes_meanwhile_ends_its_step_and_what_follows_waits() -> None:
    play = Play(workflow(WAIT, step("b", "w")))
    play.carry_out(play.start())
    play.pause_run()

    assert [] == only(DispatchTask, play.tell(_received(play)))
    assert play.step("w").status is StepStatus.COMPLETED
    assert [("b", 1)] == dispatched(play.unpause_run())


def test_the_deadline_of_a_wait_that_passes_meanwhile_counts_at_the_resumption() -> None:
    play = Play(workflow(WAIT, step("b", "w")))
    play.carry_out(play.start())
    play.pause_run()

    assert [] == play.fire("wait.w", "w", 1, after=10)
    assert play.step("w").status is StepStatus.RUNNING
    assert [("b", 1)] == dispatched(play.unpause_run())


def test_a_wait_that_could_begin_meanwhile_counts_events_from_then_on() -> None:
    play = Play(workflow(step("a"), {**WAIT, "depends_on": ["a"]}))
    play.start()
    play.begin("a")
    play.pause_run()
    assert [] == play.complete("a", after=3)

    [waiting] = only(AwaitEvent, play.carry_out(play.unpause_run(after=50)))

    assert (EPOCH + 3, EPOCH + 63) == (waiting.wait.since, waiting.wait.until)


def test_a_wait_that_was_about_to_begin_begins_though_the_run_is_paused() -> None:
    play = Play(workflow(WAIT))
    ordered = play.start()
    play.pause_run()

    [waiting] = only(AwaitEvent, play.carry_out(ordered))

    assert EPOCH == waiting.wait.since


def test_a_step_that_was_about_to_begin_does_not_begin() -> None:
    play = Play(workflow(step("a", **{"with": {"x": "${{ input }}"}})))
    ordered = play.start()
    play.pause_run()

    assert [] == play.carry_out(ordered)
    assert [("a", 1)] == dispatched(play.carry_out(play.unpause_run()))


@pytest.mark.parametrize("granted", [True, False])
def test_a_decision_that_comes_meanwhile_takes_effect_at_the_resumption(granted: bool) -> None:
    play = started(workflow(approval("ok"), step("b", "ok")))
    play.ask("ok")
    play.pause_run()

    assert [] == (play.grant("ok", comment="yes") if granted else play.reject("ok", comment="no"))
    assert [] == play.reject("ok"), "the first one counts"
    assert play.step("ok").status is StepStatus.RUNNING
    assert play.run.pause is not None
    assert play.run.pause.decided("ok")
    commands = play.unpause_run()

    if granted:
        assert [("b", 1)] == dispatched(commands)
    else:
        assert ["workflow.failed"] == appended(commands)
        assert "rejected: no" == play.step("ok").error


def test_an_approval_that_expires_meanwhile_expires_at_the_resumption() -> None:
    play = started(workflow(approval("ok", timeout="10s")))
    play.ask("ok")
    play.pause_run()

    assert [] == play.fire("approval.ok", "ok", 1, after=10)
    assert ["approval.expired"] == appended(play.unpause_run())


def test_an_approval_that_could_be_requested_meanwhile_is_requested_at_the_resumption() -> None:
    play = started(workflow(step("a"), approval("ok", "a")))
    play.begin("a")
    play.pause_run()

    assert [] == play.complete("a", after=5)
    [request] = only(RequestApproval, play.unpause_run(after=5))
    assert EPOCH + 10 + 86400 == request.expires


def test_a_scheduled_run_whose_time_comes_starts_at_the_resumption() -> None:
    play = Play(workflow(step("a"), timeout="60s"))
    play.schedule()
    play.pause_run()

    assert [] == play.start(after=100)
    assert play.run.status is RunStatus.SCHEDULED
    commands = play.unpause_run(after=100)

    assert (RunStatus.RUNNING, rfc3339(EPOCH + 200)) == (play.run.status, play.run.started_at)
    assert [("a", 1)] == dispatched(commands)
    assert EPOCH + 260 == play.run.due


def test_a_start_that_comes_twice_meanwhile_changes_the_run_once() -> None:
    play = Play(workflow(step("a")))
    play.schedule()
    play.pause_run()
    play.start()
    before = play.run

    assert [] == play.start()
    assert before is play.run


def test_a_retry_that_is_begun_before_its_time_begins_at_the_resumption_and_its_timer_is_withdrawn() -> None:
    play = started(workflow(step("a", retry={"max_attempts": 2, "initial_delay": "10s"})))
    play.begin("a")
    play.fail("a")
    play.pause_run()
    early = TimerFired(run_id=play.run_id, payload=TimerRef("retry.a", "a", 2, early=True))

    [withdrawn] = only(WithdrawTimer, play.tell(early))
    assert ("retry.a", play.step("a").due) == (withdrawn.timer, withdrawn.due)
    assert [] == play.tell(early)
    assert [("a", 2)] == dispatched(play.unpause_run())


def test_a_scheduled_run_that_is_resumed_before_its_time_starts_then() -> None:
    play = Play(workflow(step("a")))
    play.schedule()
    play.pause_run()

    assert [] == play.unpause_run()
    assert [("a", 1)] == dispatched(play.start(after=100))
