"""What a run that undoes its steps waits for, and what it withdraws."""

from __future__ import annotations

import pytest

from penstock.config.limits import COMPENSATION_WAIT_S, DEDUP_WINDOW_S
from penstock.engine.run.commands import (
    BeginStep,
    CancelChild,
    CancelTask,
    DeadLetterTask,
    SetTimer,
    WithdrawTask,
    WithdrawTimer,
)
from penstock.engine.run.state import RunStatus, StepStatus
from penstock.engine.run.still_due import still_due
from tests.engine.build import (
    EPOCH,
    approval,
    dispatched,
    only,
    started,
    step,
    workflow,
)
from tests.engine.undoing import child, compensating, undo_all, undoable


def test_a_running_step_is_waited_for_and_undone_first_when_it_completes() -> None:
    play = started(workflow(undoable("a"), undoable("b", timeout="1h"), step("c", "a")))
    play.complete("a")
    play.begin("b")

    commands = play.carry_out(play.fail("c"))

    assert (dispatched(commands), play.step("b").status) == ([], StepStatus.RUNNING)
    assert play.begin("b", delivery=2) == []
    assert undo_all(play, play.complete("b", "late")) == ["b.compensate", "a.compensate"]
    assert play.run.status is RunStatus.FAILED


@pytest.mark.parametrize(("fields", "wait_s"), [({"timeout": "10s"}, 10.0), ({}, COMPENSATION_WAIT_S)])
def test_it_is_waited_for_until_its_timeout_and_without_one_for_five_minutes(
    fields: dict[str, object], wait_s: float
) -> None:
    play = started(workflow(undoable("a"), undoable("b", **fields), step("c", "a")))
    play.complete("a")
    play.begin("b")
    begun = play.now
    commands = play.carry_out(play.fail("c"))

    assert {one.timer: one.due for one in only(SetTimer, commands)} == {"timeout.b": begun + wait_s}
    commands = play.carry_out(play.fire("timeout.b", "b", 1, after=wait_s))
    assert (dispatched(commands), play.step("b").status) == ([("a.compensate", 1)], StepStatus.CANCELLED)
    assert only(DeadLetterTask, commands) == []


def test_a_task_that_is_not_waited_for_any_more_is_withdrawn_and_its_worker_notified() -> None:
    play = started(workflow(undoable("a"), undoable("b", timeout="10s"), step("c", "a")))
    play.complete("a")
    play.begin("b", worker="one")
    play.carry_out(play.fail("c"))

    commands = play.fire("timeout.b", "b", 1, after=10)

    assert commands[:2] == [
        CancelTask("b", 1, 0, "one", reason="the run has undone its steps without it"),
        WithdrawTask("B", of_step="b"),
    ]
    undo_all(play, commands)
    assert (play.run.status, still_due(play.run, commands[1])) == (RunStatus.FAILED, True)


def test_a_step_whose_task_nobody_holds_any_more_is_not_waited_for_and_its_timeout_withdrawn() -> None:
    play = started(workflow(undoable("a"), undoable("b", timeout="10s"), step("c", "a")))
    play.complete("a")
    play.begin("b")
    play.carry_out(play.fail("c"))

    commands = play.fire("restored.b", "b", 1, after=1)

    assert only(WithdrawTimer, commands) == [WithdrawTimer("timeout.b", EPOCH + 10)]
    assert (play.step("b").status, undo_all(play, commands)) == (StepStatus.CANCELLED, ["a.compensate"])


def test_an_element_that_is_not_waited_for_any_more_is_withdrawn_alone() -> None:
    config = {"items": [1, 2]}
    play = started(workflow(undoable("m", type="map", config=config, timeout="10s"), step("c")))
    play.carry_out([BeginStep("m", 1, 0, play.now)])
    play.begin("m.0")
    play.begin("m.1")
    play.carry_out(play.fail("c"))

    commands = play.fire("timeout.m.0", "m.0", 1, after=10)

    assert only(WithdrawTask, commands) == [WithdrawTask("M", of_step="m.0")]
    play.carry_out(play.fire("timeout.m.1", "m.1", 1))
    assert (play.run.status, still_due(play.run, commands[-1])) == (RunStatus.FAILED, True)


def test_a_child_that_is_not_waited_for_any_more_was_cancelled_when_the_wait_began() -> None:
    play = started(workflow(undoable("a"), child("b", compensate={"task": "U"}, timeout="10s"), step("c", "a")))
    play.carry_out([BeginStep("b", 1, 0, play.now)])
    play.complete("a")
    assert len(only(CancelChild, play.carry_out(play.fail("c")))) == 1
    assert only(CancelChild, play.fire("timeout.b", "b", 1, after=10)) == []
    assert play.step("b").status is StepStatus.CANCELLED


def test_a_step_that_completes_after_that_is_undone_next() -> None:
    play = started(workflow(undoable("z"), undoable("a", "z"), undoable("b", timeout="1s"), step("c", "a")))
    play.complete("z")
    play.complete("a")
    play.begin("b")
    play.carry_out(play.fail("c"))
    play.carry_out(play.fire("timeout.b", "b", 1, after=1))
    assert play.begin("b") == []  # it is waited for once

    play.carry_out(play.complete("b", "very late"))

    assert compensating(play) == [("a.compensate", 1)]
    assert undo_all(play, play.complete("a.compensate")) == ["b.compensate", "z.compensate"]


def test_a_timeout_that_had_fired_before_and_comes_again_does_not_end_the_wait() -> None:
    play = started(workflow(undoable("a", timeout="30s"), step("b")))
    play.begin("a")
    play.fire("timeout.a", "a", 1, after=30)  # what it orders is on its way
    [waits] = only(SetTimer, play.refuse())

    play.fire("timeout.a", "a", 1)

    assert (waits.timer, waits.due) == ("timeout.a+1", play.now + COMPENSATION_WAIT_S)
    assert play.step("a").status is StepStatus.RUNNING
    play.fire(waits.timer, "a", 1, after=COMPENSATION_WAIT_S)
    assert play.step("a").status is StepStatus.CANCELLED


def test_a_timeout_that_fires_while_the_run_is_about_to_fail_ends_the_wait_under_another_name() -> None:
    """The broker would drop the same one as a repeat, and the run would wait for ever."""
    play = started(workflow(undoable("a", timeout="30s"), step("b")))
    play.fail("b")  # what it orders is on its way
    play.begin("a")
    assert play.fire("timeout.a", "a", 1, after=30) == []

    [waits] = only(SetTimer, play.settle())

    assert (waits.timer, waits.due) == ("timeout.a+1", EPOCH + 30)
    play.fire("timeout.a+1", "a", 1)
    assert play.step("a").status is StepStatus.CANCELLED


def test_that_of_an_element_is_set_when_the_broker_has_forgotten_the_first() -> None:
    definition = workflow(undoable("m", type="map", config={"items": [1]}, timeout="2s"), step("b"))
    play = started(definition)
    play.carry_out([BeginStep("m", 1, 0, play.now)])
    play.fail("b")
    play.begin("m.0")
    assert play.fire("timeout.m.0", "m.0", 1, after=2) == []

    [waits] = only(SetTimer, play.settle())

    assert (waits.timer, waits.due) == ("timeout.m.0", play.now + DEDUP_WINDOW_S + 1)


def test_a_step_whose_task_a_worker_had_taken_just_before_is_waited_for_too() -> None:
    play = started(workflow(undoable("z"), undoable("a", "z"), undoable("b"), step("c", "a")))
    play.complete("z")
    play.complete("a")
    commands = play.carry_out(play.fail("c"))
    assert WithdrawTask("B", of_step="b") in commands
    assert play.step("b").status is StepStatus.CANCELLED

    assert [one.timer for one in only(SetTimer, play.begin("b"))] == ["timeout.b"]

    assert play.carry_out(play.complete("a.compensate")) == []
    assert undo_all(play, play.complete("b")) == ["b.compensate", "z.compensate"]


def test_a_running_step_that_fails_or_asks_for_another_iteration_ends_the_wait() -> None:
    for ends in ("fail", "go_on"):
        play = started(workflow(undoable("a"), undoable("b", **LOOP), step("c", "a")))
        play.complete("a")
        play.begin("b")
        play.carry_out(play.fail("c"))
        commands = play.carry_out(play.fail("b") if ends == "fail" else play.go_on("b"))
        assert dispatched(commands) == [("a.compensate", 1)]
        assert play.step("b").status is StepStatus.CANCELLED
        assert play.step("b").error is not None
        assert only(DeadLetterTask, commands) == []
        assert play.complete("b") == play.begin("b", delivery=2) == []


LOOP = {"type": "agent_loop", "config": {"max_iterations": 5}, "retries": 3}


def test_what_does_not_run_yet_or_has_nothing_to_undo_is_cancelled_at_once() -> None:
    play = started(workflow(undoable("a"), step("b"), undoable("q"), approval("ok"), step("c", "a"), step("d", "b")))
    play.ask("ok")
    play.complete("a")
    play.begin("b")

    commands = play.carry_out(play.fail("c"))

    assert play.statuses() == {
        "a": "completed",
        "b": "cancelled",
        "q": "cancelled",
        "ok": "cancelled",
        "c": "failed",
        "d": "cancelled",
        "a.compensate": "queued",
    }
    assert [one.timer for one in only(WithdrawTimer, commands)] == ["approval.ok"]
    assert set(only(WithdrawTask, commands)) == {WithdrawTask("B", of_step="b"), WithdrawTask("Q", of_step="q")}
    before = play.run
    assert play.complete("b") == play.grant("ok") == play.begin("b") == []
    assert play.run == before


def test_tasks_of_compensations_are_not_withdrawn_with_those_of_steps_again() -> None:
    """A shard that takes over repeats withdrawals: they are of one step each."""
    play = started(workflow(undoable("a"), undoable("q"), step("c", "a")))
    play.complete("a")
    commands = play.fail("c")

    withdrawals = only(WithdrawTask, commands)
    assert [one.of_step for one in withdrawals] == ["q"]
    assert all(still_due(play.run, command) for command in commands)
