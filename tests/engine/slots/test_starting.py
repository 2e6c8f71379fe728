"""A run with limits of its own is pending until it has its slots."""

from __future__ import annotations

from penstock.engine.run.commands import (
    AppendEvent,
    RemoveDeadLetters,
    RequestSlot,
    SetTimer,
    StartChild,
    StartFailureRun,
    TakeOver,
)
from penstock.engine.run.event_payloads import Override, ParentRef, Resumed, Started, TakenStep, Taking
from penstock.engine.run.events import StepOverridden, StepTakenOver, WorkflowResumed, WorkflowStarted
from penstock.engine.run.slots.starting import begun_soon
from penstock.engine.run.state import from_snapshot, to_snapshot
from tests.engine.build import RUN_ID, appended, dispatched, only, raw, step
from tests.engine.slots.granting import ONE, RATE, Limited, asked, given_back, limited

BOTH = {"concurrency": [{"limit": 1, "on_limit": "skip"}], "rate_limit": RATE}


def failed(**fields: object) -> Limited:
    """A run with a limit that has failed at its only step."""
    play = limited(step("a"), concurrency=ONE, **fields)
    play.let_all_in(play.start())
    play.fail("a", kind="non_retriable")
    play.settle()
    assert "failed" == play.run.status
    return play


def test_a_run_waits_for_its_slots_and_its_time_counts_from_then() -> None:
    play = limited(step("a"), timeout="1m", **BOTH)
    found = play.start()
    assert ("pending", None, [("0", 0)], []) == (play.run.status, play.run.due, asked(found), dispatched(found))
    play.now += 100
    found = play.let_in(only(RequestSlot, found)[0])
    assert ("pending", [("0", 1)]) == (play.run.status, asked(found))
    found = play.let_in(only(RequestSlot, found)[0])
    assert ("running", play.now + 60, [("a", 1)]) == (play.run.status, play.run.due, dispatched(found))
    assert ["workflow"] == [one.timer for one in only(SetTimer, found)]
    assert play.run.created_at < (play.run.started_at or "")
    play.complete("a")
    assert [("0", "run#0")] == given_back(play.settle())


def test_a_scheduled_run_asks_when_its_time_has_come() -> None:
    play = limited(step("a"), concurrency=ONE)
    assert [] == asked(play.schedule())
    assert [("0", 0)] == asked(play.start())
    assert "pending" == play.run.status


def test_a_run_that_is_turned_away_is_cancelled() -> None:
    play = limited(step("a"), **BOTH)
    (request,) = only(RequestSlot, play.start())
    found = play.turn_away(request)
    assert ["workflow.cancelled"] == appended(found)
    play.settle()
    assert ("cancelled", "limit", {}) == (play.run.status, play.run.error, play.run.slots)
    assert [] == play.turn_away(request)


def test_a_run_that_was_turned_away_does_not_ask_again_after_a_pause() -> None:
    play = limited(step("a"), **BOTH)
    (request,) = only(RequestSlot, play.start())
    play.turn_away(request)
    play.pause_run()
    assert [] == asked(play.unpause_run())
    play.settle()
    assert "cancelled" == play.run.status


def test_a_run_that_was_turned_away_does_not_begin_when_it_is_granted_a_slot_later() -> None:
    play = limited(step("a"), concurrency=ONE)
    (request,) = only(RequestSlot, play.start())
    play.turn_away(request)
    found = play.let_in(request)
    assert ("pending", [], [("0", "run#0")]) == (play.run.status, dispatched(found), given_back(found))
    play.settle()
    assert ("cancelled", "limit", {}) == (play.run.status, play.run.error, play.run.slots)
    assert [("0", "run#0")] == given_back(play.let_in(request))


def test_a_refusal_of_a_run_that_has_begun_is_ignored() -> None:
    play = limited(step("a"), concurrency=ONE)
    (request,) = only(RequestSlot, play.start())
    play.let_in(request)
    assert [] == play.turn_away(request)
    assert "running" == play.run.status


def test_a_pending_run_is_cancelled_and_gives_up_its_place() -> None:
    play = limited(step("a"), concurrency=ONE)
    play.start()
    assert [("0", 0)] == given_back(play.cancel("enough", compensate=True))
    assert ("cancelled", {"a": "cancelled"}) == (play.run.status, play.statuses())


def test_a_pending_run_fails_where_its_limits_cannot_be_worked_out() -> None:
    play = limited(step("a"), concurrency=[{"limit": 1, "key": "input.x"}], on_failure={"workflow": "after"})
    play.start({})
    found = play.refuse("no such key")
    assert ("failed", "no such key", {}) == (play.run.status, play.run.error, play.run.slots)
    assert 1 == len(only(StartFailureRun, found))


def test_a_pause_of_a_pending_run_gives_up_its_place() -> None:
    play = limited(step("a"), concurrency=ONE)
    (request,) = only(RequestSlot, play.start())
    assert [("0", 0)] == given_back(play.pause_run())
    assert [("0", "run#0")] == given_back(play.let_in(request))
    assert "pending" == play.run.status
    assert [("0+1", 0)] == asked(play.unpause_run())


def test_a_scheduled_run_whose_time_comes_in_a_pause_asks_after_it() -> None:
    play = limited(step("a"), concurrency=ONE)
    play.schedule()
    play.pause_run()
    assert [] == asked(play.start())
    assert [("0+1", 0)] == asked(play.unpause_run())


def test_a_pause_of_a_running_run_keeps_its_slot() -> None:
    play = limited(step("a"), concurrency=ONE)
    play.let_all_in(play.start())
    assert ([], []) == (given_back(play.pause_run()), asked(play.unpause_run()))


def test_a_failed_run_gives_back_and_asks_again_when_it_is_resumed() -> None:
    play = failed(timeout="1m")
    assert {} == play.run.slots
    found = play.resume(dead_letters=7)
    assert ("pending", 1, [("1", 0)], []) == (play.run.status, play.run.resumes, asked(found), dispatched(found))
    assert 1 == len(only(RemoveDeadLetters, found))
    assert play.run == from_snapshot(to_snapshot(play.run))
    found = play.let_in(only(RequestSlot, found)[0])
    assert ("running", 1, [("a", 2)]) == (play.run.status, play.run.resumes, dispatched(found))
    assert [] == only(RemoveDeadLetters, found)
    play.complete("a", attempt=2)
    assert [("1", "run#0")] == given_back(play.settle())


def test_a_resumed_run_that_waits_may_fail_again() -> None:
    play = failed()
    play.resume()
    play.refuse("no such key", resumes=0)
    assert "pending" == play.run.status
    play.refuse("no such key", resumes=1)
    assert ("failed", None) == (play.run.status, play.run.resuming)
    assert [("2", 0)] == asked(play.resume())


def test_what_is_completed_by_hand_after_a_failure_counts_when_the_slots_are_there() -> None:
    play = failed()
    resumed = WorkflowResumed(run_id=RUN_ID, payload=Resumed(holds="a"))
    found = play.tell(resumed)
    assert "pending" == begun_soon(play.workflow, play.run, play.log[-1]).steps["a"].status
    play.tell(StepOverridden(run_id=RUN_ID, step_id="a", payload=Override(raw({"x": 1}), "ada")))
    assert "failed" == play.step("a").status
    found = play.let_all_in(found)
    assert ("completed", True) == (play.step("a").status, play.step("a").overridden)
    assert ["workflow.completed"] == appended(found)
    assert play.run.seq == len(play.log)


def test_a_rerun_takes_over_when_it_has_its_slots() -> None:
    play = limited(step("a"), step("b", "a"), concurrency=ONE)
    payload = Started("w", "1", play.workflow.digest, rerun_of="q" * 32, takes=Taking(("a",)))
    found = play.tell(WorkflowStarted(run_id=RUN_ID, payload=payload))
    assert ([], [("0", 0)]) == (only(TakeOver, found), asked(found))
    assert play.run == from_snapshot(to_snapshot(play.run))
    found = play.let_all_in(found)
    assert 1 == len(only(TakeOver, found))
    taken = StepTakenOver(run_id=RUN_ID, step_id="a", payload=TakenStep("completed", raw(1)))
    assert [("b", 1)] == dispatched(play.tell(taken))


def test_what_is_given_to_a_rerun_while_it_waits_for_its_slots_counts() -> None:
    play = limited(step("a"), step("b"), step("c", "a", "b"), concurrency=ONE)
    payload = Started("w", "1", play.workflow.digest, rerun_of="q" * 32, takes=Taking(("a", "b")))
    found = play.tell(WorkflowStarted(run_id=RUN_ID, payload=payload))
    given, taken = [
        StepTakenOver(run_id=RUN_ID, step_id=one, payload=TakenStep("completed", raw(one))) for one in ("a", "b")
    ]
    assert [] == play.tell(given)
    assert Taking(("b",)) == play.run.taking
    found = play.let_all_in(found)
    assert ("running", 1) == (play.run.status, len(only(TakeOver, found)))
    assert [("c", 1)] == dispatched(play.tell(taken))


def test_a_rerun_to_which_all_was_given_while_it_waited_goes_on_from_there() -> None:
    play = limited(step("a"), step("b", "a"), concurrency=ONE)
    payload = Started("w", "1", play.workflow.digest, rerun_of="q" * 32, takes=Taking(("a",)))
    found = play.tell(WorkflowStarted(run_id=RUN_ID, payload=payload))
    assert [] == play.tell(StepTakenOver(run_id=RUN_ID, step_id="a", payload=TakenStep("completed", raw(1))))
    assert ("pending", None) == (play.run.status, play.run.taking)
    found = play.let_all_in(found)
    assert ("running", [], [("b", 1)]) == (play.run.status, only(TakeOver, found), dispatched(found))


def test_slots_of_runs_and_of_their_steps_are_taken_one_after_the_other() -> None:
    play = limited(step("a", concurrency=ONE), concurrency=ONE)
    found = play.start()
    assert [("0", 0)] == asked(found)
    found = play.let_in(only(RequestSlot, found)[0])
    assert ("running", [("a.0.1", 0)], []) == (play.run.status, asked(found), dispatched(found))


def test_an_inherited_slot_is_not_given_back() -> None:
    play = limited(step("a"), concurrency=ONE)
    (request,) = only(RequestSlot, play.start())
    play.let_in(request, inherited=True)
    play.complete("a")
    assert [] == given_back(play.settle())
    assert "completed" == play.run.status


def test_a_child_runs_under_the_slots_of_its_ancestors_unless_it_is_detached() -> None:
    children = [
        {"id": "c", "type": "sub_workflow", "config": {"workflow": "x"}},
        {"id": "d", "type": "sub_workflow", "config": {"workflow": "x", "detach": True}},
    ]
    play = limited(*children, **BOTH)
    payload = Started("w", "1", play.workflow.digest, parent=ParentRef("p" * 32, "c"), under=("above",))
    found = play.let_all_in(play.tell(WorkflowStarted(run_id=RUN_ID, payload=payload)))
    starts = only(StartChild, play.carry_out(found))
    assert [("c", ("above", "run#0")), ("d", ())] == [(one.step_id, one.under) for one in starts]


def test_a_child_that_is_resumed_needs_slots_of_its_own() -> None:
    play = limited(step("a"), concurrency=ONE)
    payload = Started("w", "1", play.workflow.digest, parent=ParentRef("p" * 32, "c"), under=("above",))
    play.let_all_in(play.tell(WorkflowStarted(run_id=RUN_ID, payload=payload)))
    assert ("above",) == play.run.under
    play.fail("a", kind="non_retriable")
    play.settle()
    play.resume()
    assert () == play.run.under


def test_a_child_tells_its_parent_that_it_was_turned_away() -> None:
    play = limited(step("a"), **BOTH)
    payload = Started("w", "1", play.workflow.digest, parent=ParentRef("p" * 32, "c"))
    (request,) = only(RequestSlot, play.tell(WorkflowStarted(run_id=RUN_ID, payload=payload)))
    (cancelled,) = only(AppendEvent, play.turn_away(request))
    assert ["child.ended"] == appended(play.tell(cancelled.event))
