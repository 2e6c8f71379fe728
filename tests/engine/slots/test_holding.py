"""Executions wait until they have the slots of all their limits, and give them back when they are over."""

from __future__ import annotations

import msgspec
import pytest

from penstock.engine.run.commands import BeginStep, DispatchTask, RequestSlot, SetTimer
from penstock.engine.run.event_payloads import Override
from penstock.engine.run.events import LimitGranted, StepOverridden, StepSkipped
from penstock.engine.run.slots.holders import awaits_slots, holds
from penstock.engine.run.state import from_snapshot, to_snapshot
from penstock.engine.run.still_due import still_due
from tests.engine.build import RUN_ID, dispatched, loop, only, raw, started, step, workflow
from tests.engine.slots.granting import ONE, RATE, Limited, asked, given_back, limit_of, limited, one_step

BOTH = {"concurrency": [{"limit": 1, "scope": "z"}, {"limit": 2, "scope": "b"}], "rate_limit": RATE}


def test_slots_are_taken_by_scope_and_rates_last_and_only_then_the_task_is_ordered() -> None:
    play = limited(step("a", **BOTH))
    found = play.start()
    scopes = []
    for number in range(3):
        assert ([("a.0.1", number)], []) == (asked(found), dispatched(found))
        assert awaits_slots(play.workflow, play.run, "a")
        found = play.let_in(only(RequestSlot, found)[0])
        scopes.append(play.run.slots["a"].granted[-1].scope)
    assert ["b", "z", "w.a"] == scopes
    assert [("a", 1)] == dispatched(found)
    assert not awaits_slots(play.workflow, play.run, "a")
    assert holds(play.run, f"{RUN_ID}.a.0.1")


def test_what_has_ended_gives_back_its_slots_but_no_tokens() -> None:
    play = limited(step("a", **BOTH), step("b", "a"))
    play.let_all_in(play.start())
    play.begin("a")
    found = play.complete("a", 1)
    assert [("a.0.1", "a#0"), ("a.0.1", "a#1")] == given_back(found)
    assert [("b", 1)] == dispatched(found)
    assert {} == play.run.slots


def test_a_retry_is_another_acquisition_and_nothing_is_held_while_it_is_waited_for() -> None:
    play = limited(step("a", concurrency=ONE, retry={"max_attempts": 1, "initial_delay": "10s"}))
    play.let_all_in(play.start())
    assert [("a.0.1", "a#0")] == given_back(play.fail("a"))
    assert {} == play.run.slots
    assert [("a.0.2", 0)] == asked(play.fire("retry.a", "a", 2, after=10))


def test_a_retry_without_delay_gives_back_before_it_asks() -> None:
    play = limited(step("a", concurrency=ONE, retry={"max_attempts": 1, "initial_delay": "0s"}))
    play.let_all_in(play.start())
    found = play.fail("a")
    assert ([("a.0.1", "a#0")], [("a.0.2", 0)], []) == (given_back(found), asked(found), dispatched(found))


def test_a_repeated_grant_changes_nothing_and_one_that_nobody_wants_is_given_back() -> None:
    play = limited(step("a", concurrency=ONE), step("b", "a"))
    (request,) = only(RequestSlot, play.start())
    play.let_in(request)
    before = play.run
    assert [] == play.let_in(request)
    assert before is play.run
    play.complete("a")
    assert [("a.0.1", "a#0")] == given_back(play.let_in(request))
    late = msgspec.structs.replace(request, holder=f"{RUN_ID}.a.0.7")
    assert [("a.0.7", "a#0")] == given_back(play.let_in(late))
    assert [] == play.let_in(late, inherited=True)


def test_a_token_that_nobody_wants_is_not_given_back() -> None:
    play = limited(step("a", rate_limit=RATE), step("b", "a"))
    (request,) = only(RequestSlot, play.start())
    play.let_in(request)
    play.complete("a")
    assert [] == play.let_in(request)


def test_a_grant_after_the_end_of_the_run_is_given_back() -> None:
    play = limited(step("a", concurrency=ONE))
    (request,) = only(RequestSlot, play.start())
    assert [("a.0.1", 0)] == given_back(play.cancel())
    assert {} == play.run.slots
    before = play.run
    assert [("a.0.1", "a#0")] == given_back(play.let_in(request))
    assert before is play.run


def test_a_run_without_limits_gives_back_what_it_is_granted_by_mistake() -> None:
    play = Limited(workflow(step("a")))
    play.start()
    wrong = Limited(one_step())
    (request,) = only(RequestSlot, wrong.start())
    wrong.let_in(request)
    granted = wrong.log[-1].event
    assert isinstance(granted, LimitGranted)
    assert [("a.0.1", limit_of(request))] == given_back(play.tell(granted))


def test_a_skipped_step_has_asked_nobody() -> None:
    play = limited(step("a", concurrency=ONE, when="input == 1"), step("b", "a"))
    (request,) = only(RequestSlot, play.start(2))
    assert request.number == 0
    skipped = StepSkipped(run_id=RUN_ID, step_id="a", attempt_number=1)
    found = play.tell(skipped)
    assert ([], [("b", 1)]) == (given_back(found), dispatched(found))
    assert {} == play.run.slots


def test_a_step_whose_limits_cannot_be_worked_out_fails_and_holds_nothing() -> None:
    play = limited(step("a", concurrency=[{"limit": 1, "key": "input.x"}]))
    play.start({})
    found = play.fail("a", error="no such key", kind="non_retriable")
    assert [("a.0.1", 0)] == given_back(found)
    assert "failed" == play.step("a").status


def test_each_iteration_of_a_loop_takes_its_own_slot() -> None:
    play = limited(loop("a", config={"max_iterations": 3}, concurrency=ONE))
    play.let_all_in(play.start())
    play.begin("a")
    found = play.go_on("a", {"n": 1})
    assert ([("a.0.1", "a#0")], [("a.1.1", 0)], []) == (given_back(found), asked(found), dispatched(found))


def test_an_expression_is_evaluated_after_the_slots_are_there() -> None:
    play = limited(step("a", concurrency=ONE, **{"with": {"x": "${{ input }}"}}))
    (request,) = only(RequestSlot, play.start(7))
    assert [("a", 1)] == [(one.step_id, one.attempt) for one in only(BeginStep, play.let_in(request))]


def test_an_http_step_waits_as_well() -> None:
    request = {"id": "a", "type": "http", "config": {"url": "http://x.test"}, "rate_limit": RATE}
    play = limited(request)
    found = play.start()
    assert ([("a.0.1", 0)], []) == (asked(found), only(BeginStep, found))
    assert [("a", 1)] == [(one.step_id, one.attempt) for one in only(BeginStep, play.let_all_in(found))]


def test_each_element_of_a_map_takes_a_slot_and_the_map_takes_none() -> None:
    play = limited(step("m", type="map", config={"items": [1, 2, 3], "max_concurrency": 2}, concurrency=ONE))
    found = play.carry_out(play.start())
    assert [("m.0.0.1", 0), ("m.1.0.1", 0)] == asked(found)
    tasks = play.carry_out(play.let_all_in(found))
    assert [("m.0", 1), ("m.1", 1)] == dispatched(tasks)
    found = play.complete("m.0", 1)
    assert ([("m.0.0.1", "m.0#0")], [("m.2.0.1", 0)]) == (given_back(found), asked(found))


def test_a_map_that_fails_gives_back_the_slots_of_all_its_elements() -> None:
    play = limited(step("m", type="map", config={"items": [1, 2, 3]}, concurrency=ONE))
    first, *_ = only(RequestSlot, play.carry_out(play.start()))
    play.let_in(first)
    found = play.fail("m.0", kind="non_retriable")
    assert [("m.0.0.1", "m.0#0"), ("m.1.0.1", 0), ("m.2.0.1", 0)] == given_back(found)
    assert {} == play.run.slots


def test_a_planner_holds_its_slot_until_its_worker_has_answered_and_planned_steps_take_theirs() -> None:
    play = limited(step("p", type="planner", concurrency=[{"limit": 1, "scope": "s"}]))
    play.let_all_in(play.start())
    plan = {"steps": [{"id": "x", "task": "X", "concurrency": [{"limit": 1, "scope": "s"}]}]}
    found = play.carry_out(play.complete("p", plan))
    assert ([("p.0.1", "p#0")], [("p.x.0.1", 0)], []) == (given_back(found), asked(found), dispatched(found))
    assert [("p.x", 1)] == dispatched(play.let_all_in(found))


def test_planned_steps_have_limits_also_in_a_workflow_without_any() -> None:
    play = limited(step("p", type="planner"))
    play.start()
    found = play.carry_out(play.complete("p", {"steps": [{"id": "x", "task": "X", "concurrency": ONE}]}))
    assert ([("p.x.0.1", 0)], []) == (asked(found), dispatched(found))
    assert ["w.p.x"] == [held.scope for held in play.run.slots["p.x"].granted] or play.let_all_in(found)
    assert "w.p.x" == play.run.slots["p.x"].granted[0].scope
    assert b'{"v":3,' == to_snapshot(play.run)[:7]
    assert 3 == next(one.event.v for one in play.log if one.event.v > 1)


def test_handlers_and_compensations_take_no_slots() -> None:
    play = limited(step("a", concurrency=ONE, on_failure={"task": "H"}))
    play.let_all_in(play.start())
    found = play.fail("a", kind="non_retriable")
    assert [] == asked(found)
    assert ["a.on_failure"] == [one.step_id for one in only(BeginStep, found)]


def test_a_bound_run_waits_for_its_worker_only_when_the_slots_are_there() -> None:
    play = limited(step("a"), step("b", "a", concurrency=ONE), sticky="soft")
    play.start()
    found = play.complete("a", worker="w1")
    assert ([], None, None) == (only(SetTimer, found), play.step("b").sticky, play.step("b").fallback)
    found = play.let_all_in(found)
    assert [("w1", True)] == [(one.worker, one.or_anyone) for one in only(DispatchTask, found)]
    assert ["sticky.b"] == [one.timer for one in only(SetTimer, found)]


def test_what_waits_gives_up_in_a_pause_and_asks_under_another_name_then() -> None:
    play = limited(step("a", **BOTH))
    (request,) = only(RequestSlot, play.start())
    play.let_in(request)
    assert [("a.0.1", "a#0"), ("a.0.1", 1)] == given_back(play.pause_run())
    assert [("a.0.1", "a#0")] == given_back(play.let_in(request))
    found = play.unpause_run()
    assert ([("a.0.1+1", 0)], []) == (asked(found), dispatched(found))


def test_what_has_its_slots_keeps_them_in_a_pause() -> None:
    play = limited(step("a", concurrency=ONE))
    play.let_all_in(play.start())
    assert [] == given_back(play.pause_run())
    found = play.unpause_run()
    assert ([], [("a", 1)]) == (asked(found), dispatched(found))
    assert [("a.0.1", "a#0")] == given_back(play.complete("a"))


def test_a_step_that_is_completed_by_hand_waits_no_more() -> None:
    play = limited(step("a", concurrency=ONE), step("b", "a"))
    play.start()
    found = play.tell(StepOverridden(run_id=RUN_ID, step_id="a", payload=Override(raw(1), "ada")))
    assert ([("a.0.1", 0)], [("b", 1)]) == (given_back(found), dispatched(found))


def test_a_timeout_gives_the_slot_back() -> None:
    play = limited(step("a", concurrency=ONE, timeout="10s"))
    play.let_all_in(play.start())
    play.begin("a")
    play.fire("timeout.a", "a", 1, after=10)
    assert [("a.0.1", "a#0")] == given_back(play.settle())


def test_a_run_that_undoes_its_steps_gives_back_what_waits_and_keeps_what_runs() -> None:
    play = limited(
        step("a", concurrency=ONE, compensate={"task": "U"}),
        step("b", concurrency=ONE),
        step("c"),
    )
    first, _ = only(RequestSlot, play.start())
    play.let_in(first)
    play.begin("a")
    assert [("b.0.1", 0)] == given_back(play.fail("c", kind="non_retriable"))
    assert [("a.0.1", "a#0")] == given_back(play.complete("a"))


def test_a_request_is_repeated_by_who_takes_over_as_long_as_it_waits() -> None:
    play = limited(step("a", **BOTH))
    (first,) = only(RequestSlot, play.start())
    assert still_due(play.run, first)
    (second,) = only(RequestSlot, play.let_in(first))
    assert (False, True) == (still_due(play.run, first), still_due(play.run, second))
    (given, _) = play.cancel()[-2:]
    assert (False, True) == (still_due(play.run, second), still_due(play.run, given))


def test_nothing_more_is_asked_for_in_a_run_that_is_about_to_fail() -> None:
    play = limited(step("a", **BOTH), step("b"))
    (first,) = only(RequestSlot, play.start())
    play.fail("b", kind="non_retriable")
    assert [] == asked(play.let_in(first))
    assert [("a.0.1", "a#0"), ("a.0.1", 1)] == given_back(play.settle())


def test_a_snapshot_with_slots_is_for_versions_that_know_them() -> None:
    play = limited(step("a", concurrency=ONE))
    play.start()
    assert b'{"v":3,' == to_snapshot(play.run)[:7]
    assert play.run == from_snapshot(to_snapshot(play.run))
    play.cancel()
    assert b'{"run_id"' == to_snapshot(play.run)[:9]


@pytest.mark.parametrize("fields", [{}, {"timeout": "1m"}, {"sticky": "soft"}])
def test_a_workflow_without_limits_is_advanced_as_before(fields: dict[str, object]) -> None:
    play = started(workflow(step("a"), step("b", "a", retries=1), **fields))
    play.complete("a", worker="w1")
    assert ({}, False) == (play.run.slots, play.workflow.slots_used)
    assert b"slots" not in to_snapshot(play.run)
