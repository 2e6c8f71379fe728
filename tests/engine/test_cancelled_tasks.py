"""Executions that are given up while a worker carries them out: who is told, and what anybody may find out later."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from penstock.engine.run.commands import CancelTask, Command
from penstock.engine.run.event_payloads import Cancellation, Override
from penstock.engine.run.events import StepOverridden, WorkflowCancelled
from penstock.engine.run.execution.cancelling import REPLACED, WITHDRAWN, given_up, may_be_undone
from penstock.engine.run.still_due import still_due
from tests.engine.build import Play, only, started, step, workflow

UNDO: dict[str, Any] = {"compensate": {"task": "UNDO"}}


def told(commands: list[Command]) -> list[tuple[str, int, str]]:
    return [(one.step_id, one.attempt, one.reason) for one in only(CancelTask, commands)]


def test_only_workers_of_steps_that_run_are_told_and_before_anything_is_withdrawn() -> None:
    play = started(workflow(step("done"), step("runs"), step("queued"), step("waits", retry={"max_attempts": 2})))
    play.complete("done")
    play.begin("runs", worker="w7")
    play.begin("waits")
    play.fail("waits")
    commands = play.cancel("enough of it")
    assert commands[0] == CancelTask("runs", 1, 0, "w7", reason="enough of it")
    assert told(commands[1:]) == []


def test_a_worker_that_gave_no_id_cannot_be_told() -> None:
    play = started(workflow(step("a")))
    play.begin("a", worker=None)
    assert told(play.cancel()) == []


def test_the_failure_of_one_step_is_told_to_the_workers_of_the_others() -> None:
    play = started(workflow(step("a"), step("b")))
    play.begin("a")
    play.begin("b")
    assert told(play.fail("a", kind="non_retriable")) == []  # the run has not failed before its log says so
    [(step_id, attempt, reason)] = told(play.settle())
    assert (step_id, attempt) == ("b", 1)
    assert reason.startswith('the run has failed: step "a" failed: boom')


def test_a_timeout_is_told_for_its_own_attempt_and_the_next_one_is_left_alone() -> None:
    play = started(workflow(step("a", timeout="1m", retry={"max_attempts": 1})))
    play.begin("a")
    assert told(play.fire("timeout.a", "a", 1, after=60)) == [("a", 1, "step timeout exceeded (1m)")]
    assert told(play.settle()) == []
    assert given_up(play.run, "a", 1, 0) == REPLACED
    assert given_up(play.run, "a", 2, 0) is None


def test_a_worker_that_begins_after_the_end_of_the_run_is_told_then() -> None:
    play = started(workflow(step("a")))
    play.cancel("changed my mind")
    before = play.run
    assert told(play.begin("a")) == [("a", 1, "changed my mind")]
    assert play.run is before


def test_a_worker_that_begins_an_attempt_that_was_replaced_is_told_then() -> None:
    play = started(workflow(step("a", timeout="1m", retry={"max_attempts": 1})))
    play.begin("a")
    play.fire("timeout.a", "a", 1, after=60)
    play.settle()
    assert told(play.begin("a", 1)) == [("a", 1, REPLACED)]
    assert told(play.begin("a", 2)) == []


def test_an_attempt_that_the_state_does_not_know_yet_is_wanted() -> None:
    play = started(workflow(step("a")))
    play.begin("a")
    for attempt, iteration in [(1, 0), (2, 0), (1, 1)]:
        assert given_up(play.run, "a", attempt, iteration) is None
    assert given_up(play.run, "later", 1, 0) is None


def test_an_attempt_of_a_resumed_run_is_wanted_though_the_state_is_from_before() -> None:
    play = started(workflow(step("a"), step("b")))
    play.begin("b")
    play.fail("a", kind="non_retriable")
    play.settle()
    assert given_up(play.run, "b", 1, 0) == 'the run has failed: step "a" failed: boom'
    assert given_up(play.run, "b", 2, 0) is None


@pytest.mark.parametrize(("fails", "reason"), [(False, "the step is completed"), (True, "the step is failed")])
def test_an_execution_that_has_ended_is_not_wanted(fails: bool, reason: str) -> None:
    play = started(workflow(step("a", on_failure={"task": "MEND"}), step("b", "a"), step("c")))
    play.begin("a")
    _ = play.fail("a", kind="non_retriable") if fails else play.complete("a")
    assert given_up(play.run, "a", 1, 0) == reason


def test_what_may_still_be_undone_is_waited_for_and_not_told() -> None:
    plan = workflow(step("a", **UNDO), step("b", **UNDO), step("c"))
    play = started(plan)
    play.complete("a")
    play.begin("b")
    play.begin("c")
    commands = play.tell(WorkflowCancelled(run_id=play.run_id, payload=Cancellation("stop", compensate=True)))
    assert told(commands) == [("c", 1, "stop")]
    assert [given_up(play.run, each, 1, 0) for each in ("b", "c")] == [None, WITHDRAWN]
    assert not may_be_undone(plan, play.run, "c")


def test_a_step_that_is_waited_for_no_longer_is_told() -> None:
    play = started(workflow(step("a", **UNDO), step("b", timeout="1m", **UNDO)))
    play.complete("a")
    play.begin("b")
    play.tell(WorkflowCancelled(run_id=play.run_id, payload=Cancellation(compensate=True)))
    assert told(play.fire("timeout.b", "b", 1, after=60)) == [("b", 1, "the run has undone its steps without it")]
    assert given_up(play.run, "b", 1, 0) == WITHDRAWN


@pytest.mark.parametrize(("extra", "expected"), [({}, ["m.1", "m.2"]), (UNDO, [])])
def test_elements_of_a_map_that_fails_are_told_unless_they_may_be_undone(
    extra: dict[str, Any], expected: list[str]
) -> None:
    play = Play(workflow(step("m", type="map", on_failure={"task": "MEND"}, **extra)))
    play.carry_out(play.start([1, 2, 3, 4]))
    for number in range(3):
        play.begin(f"m.{number}", worker=f"w{number}")
    commands = only(CancelTask, play.fail("m.0", kind="non_retriable"))
    assert [one.step_id for one in commands] == expected
    assert all(one.worker_id is None and one.begun > 0 for one in commands)
    assert all(one.reason == "the map has failed: element 0 failed: boom" for one in commands)


def test_telling_a_worker_is_due_whatever_became_of_the_run() -> None:
    play = started(workflow(step("a")))
    play.cancel()
    assert still_due(play.run, CancelTask("a", 1, 0, "one"))


def test_a_step_that_is_completed_by_hand_is_cancelled_where_it_runs() -> None:
    play = started(workflow(step("a"), step("b", "a")))
    play.begin("a")
    commands = play.tell(StepOverridden(run_id=play.run_id, step_id="a", payload=Override(Raw(b"1"))))
    assert told(commands) == [("a", 1, "it was completed by hand")]
    assert given_up(play.run, "a", 1, 0) == "the step is completed"
