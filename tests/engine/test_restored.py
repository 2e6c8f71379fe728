"""A service that is restored from a backup has no tasks: each execution that was out is ordered again, as the same
attempt."""

from __future__ import annotations

import pytest

from penstock.engine.run.commands import SetTimer, WithdrawTimer
from penstock.engine.run.state import RunStatus, StepStatus, from_snapshot, to_snapshot
from penstock.engine.run.workflow import Workflow
from tests.engine.build import Play, dispatched, loop, only, step, workflow

PLAIN = workflow(step("a", timeout="1m", retry={"max_attempts": 2, "initial_delay": "1s"}), step("b", "a"))
LOOP = workflow(loop("a", config={"max_iterations": 3}))


def begun(definition: Workflow = PLAIN) -> Play:
    play = Play(definition)
    play.start()
    play.begin("a", worker="w")
    return play


@pytest.mark.parametrize("definition", [PLAIN, LOOP], ids=["normal", "loop"])
def test_what_a_worker_had_in_hand_is_ordered_again(definition: Workflow) -> None:
    play = begun(definition)
    commands = play.fire("restored.a", "a", 1)
    assert dispatched(commands) == [("a", 1)]
    assert (play.step("a").status, play.step("a").worker_id) == (StepStatus.QUEUED, None)
    assert from_snapshot(to_snapshot(play.run)) == play.run


def test_its_timeout_begins_anew_with_the_next_worker() -> None:
    play = begun()
    commands = play.fire("restored.a", "a", 1)
    assert [command.timer for command in only(WithdrawTimer, commands)] == ["timeout.a"]
    assert [command.timer for command in only(SetTimer, play.begin("a", worker="x"))] == ["timeout.a"]


def test_what_waited_for_a_worker_is_ordered_again() -> None:
    play = Play(PLAIN)
    play.start()
    assert dispatched(play.fire("restored.a", "a", 1)) == [("a", 1)]


def test_the_former_worker_may_still_end_it() -> None:
    play = begun()
    play.fire("restored.a", "a", 1)
    play.complete("a", 1, worker="w")
    assert play.step("a").status is StepStatus.COMPLETED


def test_each_element_of_a_map_is_ordered_again() -> None:
    play = Play(workflow(step("m", type="map", config={"items": "${{ [1, 2] }}"})))
    play.carry_out(play.start())
    play.begin("m.1", worker="w")
    again = [*play.carry_out(play.fire("restored.m.0", "m.0", 1)), *play.carry_out(play.fire("restored.m.1", "m.1", 1))]
    assert dispatched(again) == [("m.0", 1), ("m.1", 1)]


@pytest.mark.parametrize("is_held", [True, False], ids=["in hand", "queued"])
def test_what_a_paused_run_had_out_is_ordered_once_when_it_goes_on(is_held: bool) -> None:
    play = begun() if is_held else Play(PLAIN)
    if not is_held:
        play.start()
    play.pause_run()
    assert [] == dispatched(play.fire("restored.a", "a", 1))
    assert [("a", 1)] == dispatched(play.unpause_run())
    play.begin("a", worker="x")
    play.complete("a", 1, worker="x")
    assert play.step("a").status is StepStatus.COMPLETED


def test_each_element_of_a_paused_map_is_ordered_once_when_it_goes_on() -> None:
    play = Play(workflow(step("m", type="map", config={"items": "${{ [1, 2] }}"})))
    play.carry_out(play.start())
    play.begin("m.1", worker="w")
    play.carry_out(play.pause_run())
    for element in ("m.0", "m.1"):
        assert [] == dispatched(play.carry_out(play.fire(f"restored.{element}", element, 1)))
    assert [("m.0", 1), ("m.1", 1)] == sorted(dispatched(play.carry_out(play.unpause_run())))


def test_what_is_not_out_stays_as_it_is() -> None:
    play = begun()
    before = play.run
    for timer, step_id, attempt in (("restored.a", "a", 2), ("restored.b", "b", 1), ("restored.c", "c", 1)):
        assert play.fire(timer, step_id, attempt) == []
    assert play.run == before
    play.fail("a", 1)
    assert play.fire("restored.a", "a", 2) == []  # it waits for its next attempt


def test_a_paused_run_that_is_going_to_fail_orders_nothing_again() -> None:
    """Its end is on its way: also what was reported before it failed stays as it is."""
    play = Play(workflow(step("a"), step("b"), step("c", "a")))
    play.start()
    play.begin("a", worker="w")
    play.begin("b", worker="w")
    play.pause_run()
    assert [] == dispatched(play.fire("restored.a", "a", 1))
    play.fail("b", kind="non_retriable")
    assert play.run.failing
    assert [] == dispatched(play.fire("restored.a", "a", 1))
    assert [] == dispatched(play.unpause_run())
    play.settle()
    assert (RunStatus.FAILED, None) == (play.run.status, play.run.pause)


@pytest.mark.parametrize("lost", ["a.compensate", "b"], ids=["what undoes", "what it waits for"])
def test_a_paused_run_that_undoes_its_steps_goes_on_without_what_it_had_out(lost: str) -> None:
    play = Play(workflow(step("a", compensate={"task": "undo"}), step("b"), step("c", "a")))
    play.start()
    play.begin("a")
    play.complete("a")
    play.begin("b", worker="w")
    play.begin("c")
    play.carry_out(play.fail("c", kind="non_retriable"))
    assert RunStatus.COMPENSATING is play.run.status
    if lost == "a.compensate":
        play.carry_out(play.complete("b"))
        play.begin("a.compensate", worker="w")
    play.carry_out(play.pause_run())
    assert [] == dispatched(play.carry_out(play.fire(f"restored.{lost}", lost, 1)))
    assert [("a.compensate", 1)] == dispatched(play.carry_out(play.unpause_run()))
    play.begin("a.compensate", worker="x")
    play.carry_out(play.complete("a.compensate"))
    assert RunStatus.FAILED is play.run.status
