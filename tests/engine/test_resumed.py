"""Resumed runs: what was ordered before does no harm, and loops, approvals and sticky runs begin again as they
should."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.engine.run.commands import (
    AppendEvent,
    Command,
    DeadLetterTask,
    DispatchTask,
    OpenApproval,
    RequestApproval,
    SetTimer,
    WithdrawTask,
    WithdrawTimer,
)
from penstock.engine.run.events import WorkflowFailed
from penstock.engine.run.kinds.approval import token_hash
from penstock.engine.run.state import RunStatus
from penstock.engine.run.still_due import still_due
from tests.engine.build import (
    EPOCH,
    Play,
    appended,
    approval,
    dispatched,
    dispatched_iterations,
    inputs,
    loop,
    only,
    started,
    step,
    workflow,
)
from tests.engine.test_resume import CHAIN, TWICE, failed_at, failed_chain


@pytest.mark.parametrize("resumes", [0, 2])
def test_the_end_of_another_life_does_not_end_this_one(resumes: int) -> None:
    play = failed_chain()
    play.resume()
    before = play.run
    assert play.refuse(resumes=resumes) == []
    assert play.run is before
    play.refuse("this one does", resumes=1)
    assert (play.run.status, play.run.error) == (RunStatus.FAILED, "this one does")


def test_no_order_from_before_is_due_in_a_resumed_run_but_what_withdraws_timers() -> None:
    steps = (
        step("a", timeout="1m"),
        step("b", timeout="1m", retry={**TWICE, "initial_delay": "9s"}),
        approval("c"),
        step("d"),
    )
    play = Play(workflow(*steps, timeout="1h"))
    commands = [*play.start(), *play.begin("a"), *play.begin("b"), *play.ask("c")]
    commands += [*play.fail("a", error="first"), *play.fail("b"), *play.settle()]
    kinds = {type(command) for command in commands}
    assert kinds == {
        SetTimer,
        DispatchTask,
        RequestApproval,
        OpenApproval,
        WithdrawTimer,
        DeadLetterTask,
        AppendEvent,
        WithdrawTask,
    }
    resumed = play.resume()
    assert [command for command in resumed if not still_due(play.run, command)] == []
    assert {type(command) for command in commands if still_due(play.run, command)} == {WithdrawTimer}


def test_taking_tasks_back_is_due_again_once_the_resumed_run_fails_or_ends() -> None:
    play = started(CHAIN)
    play.begin("a")
    failed_at(play, "a")
    withdrawn = WithdrawTask("A")
    assert still_due(play.run, withdrawn)
    play.resume()
    assert not still_due(play.run, withdrawn)
    play.fail("a", 2)
    assert still_due(play.run, withdrawn)
    play.settle()
    assert still_due(play.run, withdrawn)


def test_a_dead_letter_is_due_only_for_the_very_execution_that_failed_the_step() -> None:
    play = started(workflow(loop("a", config={"max_iterations": 9})))
    play.go_on("a")
    [dead_letter] = only(DeadLetterTask, play.fail("a", 1, iteration=1))
    play.settle()
    assert still_due(play.run, dead_letter)
    play.resume()
    assert not still_due(play.run, dead_letter)
    play.go_on("a", None, 2, iteration=1)
    [newer] = only(DeadLetterTask, play.fail("a", 1, iteration=2))
    assert (dead_letter.attempt, newer.attempt) == (1, 1)
    assert [still_due(play.run, one) for one in (dead_letter, newer)] == [False, True]


def test_of_two_ends_of_a_run_only_that_of_its_life_is_due() -> None:
    play = failed_chain()
    old = AppendEvent(WorkflowFailed(run_id=play.run_id))
    play.resume()
    new = only(AppendEvent, play.fail("b", 2))
    assert [still_due(play.run, command) for command in (old, *new)] == [False, True]


def test_a_resumed_loop_goes_on_in_the_iteration_that_failed_with_what_that_received() -> None:
    play = started(workflow(loop("a", config={"max_iterations": 5})))
    play.go_on("a", {"page": 2})
    failed_at(play, "a", 1, iteration=1)
    commands = play.resume()
    assert dispatched_iterations(commands) == [("a", 1, 2)]
    assert inputs(commands) == {"a": {"page": 2}}
    assert dispatched_iterations(play.go_on("a", "next", 2, iteration=1)) == [("a", 2, 1)]


def test_a_resumed_loop_has_its_retries_again() -> None:
    play = started(workflow(loop("a", config={"max_iterations": 5}, retry={"max_attempts": 1})))
    play.go_on("a")
    failed_at(play, "a", 1, iteration=1)
    play.resume()
    assert dispatched_iterations(play.fail("a", 2, iteration=1)) == [("a", 1, 3)]
    assert appended(play.fail("a", 3, iteration=1)) == ["workflow.failed"]


def test_a_loop_that_reached_its_bound_may_finish_its_last_iteration_but_gets_no_further() -> None:
    play = started(workflow(loop("a", config={"max_iterations": 2})))
    play.go_on("a", "last")
    for attempt in (1, 2):
        assert appended(play.go_on("a", "beyond", attempt, iteration=1)) == ["workflow.failed"]
        play.settle()
        commands = play.resume()
        assert dispatched_iterations(commands) == [("a", 1, attempt + 1)]
        assert inputs(commands) == {"a": "last"}
    assert appended(play.complete("a", 1, 3, iteration=1)) == ["workflow.completed"]


def test_a_resumed_loop_has_all_of_its_duration_again() -> None:
    play = started(workflow(loop("a", config={"max_duration": "1h"})))
    [first] = only(SetTimer, play.begin("a"))
    play.fire("loop.a", "a", first.attempt, after=3600)
    play.settle()
    assert only(SetTimer, play.resume(after=100)) == []
    [second] = only(SetTimer, play.begin("a", 2, after=100))
    assert (second.timer, second.due) == ("loop.a", EPOCH + 7400)
    assert first.attempt != second.attempt


def test_the_last_moment_from_before_does_not_end_the_resumed_loop() -> None:
    play = started(workflow(loop("a", config={"max_duration": "1h"})))
    [first] = only(SetTimer, play.begin("a"))
    failed_at(play, "a")
    play.resume()
    [second] = only(SetTimer, play.begin("a", 2))
    before = play.run
    assert play.fire("loop.a", "a", first.attempt) == []
    assert play.run is before
    assert appended(play.fire("loop.a", "a", second.attempt, after=3600)) == ["workflow.failed"]


def test_a_delay_between_iterations_is_not_waited_for_again() -> None:
    play = started(workflow(loop("a", config={"max_iterations": 5, "loop_delay": "1m"}), step("z")))
    play.go_on("a", "next")
    failed_at(play, "z")
    commands = play.resume()
    assert dispatched_iterations(commands) == [("a", 1, 2), ("z", 0, 2)]
    assert inputs(commands)["a"] == "next"
    assert play.fire("retry.a~1", "a", 1, after=60) == []


@pytest.mark.parametrize("decide", [Play.reject, Play.expire])
def test_a_resumed_approval_is_asked_again_with_another_token(decide: Callable[..., list[Command]]) -> None:
    play = started(workflow(approval("a", config={"timeout": "1h"})))
    play.ask("a", "old")
    decide(play, "a")
    play.settle()
    assert play.resume(after=60) == [RequestApproval("a", 2, EPOCH + 3660)]
    assert play.step("a").token is None
    before = play.run
    assert [play.ask("a", "old", 1), play.grant("a", 1), play.fire("approval.a", "a", 1)] == [[]] * 3
    assert play.run is before
    assert only(SetTimer, play.ask("a", "new", 2, after=5)) == [SetTimer("approval.a", EPOCH + 3665, "a", 2)]
    assert play.step("a").token == token_hash("new")
    before = play.run
    assert [play.grant("a", 1), play.reject("a", 1), play.expire("a", 1), play.fire("approval.a", "a", 1)] == [[]] * 4
    assert play.run is before
    assert appended(play.grant("a", 2)) == ["workflow.completed"]


def test_an_approval_that_another_step_called_off_is_asked_again() -> None:
    play = started(workflow(approval("a"), step("b")))
    play.ask("a", "old")
    failed_at(play, "b")
    assert play.step("a").status == "cancelled"
    commands = play.resume()
    assert [command.attempt for command in only(RequestApproval, commands)] == [2]
    assert dispatched(commands) == [("b", 2)]


@pytest.mark.parametrize("sticky", ["soft", "hard"])
def test_a_resumed_run_keeps_to_its_worker(sticky: str) -> None:
    play = started(workflow(step("a"), step("b", "a"), sticky=sticky))
    play.complete("a", worker="w1")
    failed_at(play, "b")
    commands = play.resume(after=60)
    [task] = only(DispatchTask, commands)
    assert (task.attempt, task.worker, play.run.bound) == (2, "w1", "w1")
    assert only(SetTimer, commands) == ([SetTimer("sticky.b", EPOCH + 65, "b", 2)] if sticky == "soft" else [])


def test_the_wait_for_a_worker_from_before_does_not_count() -> None:
    play = started(workflow(step("a"), step("b", "a"), step("z"), sticky="soft"))
    play.complete("a", worker="w1")
    failed_at(play, "z")
    play.resume()
    before = play.run
    assert play.fire("sticky.b", "b", 1, after=5) == []
    assert play.run is before
    [task] = only(DispatchTask, play.fire("sticky.b", "b", 2))
    assert (task.attempt, task.worker) == (2, None)
