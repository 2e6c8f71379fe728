"""Agent loops: iterations, what they hand on, and answers that come too late."""

from __future__ import annotations

import sys

import pytest

from penstock.engine.run.commands import (
    AppendEvent,
    DeadLetterTask,
    DispatchTask,
    SetTimer,
    WithdrawTask,
    WithdrawTimer,
)
from penstock.engine.run.events import StepContinue, decode
from penstock.engine.run.execution.cancelling import silently
from penstock.engine.run.state import RunStatus, from_snapshot, to_snapshot
from penstock.engine.run.still_due import still_due
from penstock.engine.run.timers import live_timers
from tests.engine.build import (
    EPOCH,
    Play,
    appended,
    approval,
    dispatched,
    dispatched_iterations,
    loop,
    only,
    skip_if,
    started,
    step,
    value,
    workflow,
)

THREE = {"max_iterations": 3}
RETRIED = {"max_attempts": 1, "initial_delay": "5s"}


def looping(config: dict[str, object] = THREE, *, given: object = None, **fields: object) -> Play:
    """A run whose one step is a loop, just started."""
    return started(workflow(loop("a", config=config, **fields)), given)


def test_the_first_iteration_is_number_0_and_receives_the_input_of_the_step() -> None:
    play = Play(workflow(loop("a", config=THREE)))
    [task] = only(DispatchTask, play.start({"page": 1}))
    assert (task.iteration, task.attempt, task.step_type, value(task.input)) == (0, 1, "agent_loop", {"page": 1})


def test_a_task_says_whether_it_may_go_on() -> None:
    play = Play(workflow(loop("a", config=THREE), step("b")))
    assert [task.step_type for task in only(DispatchTask, play.start())] == ["agent_loop", "normal"]


def test_going_on_dispatches_the_next_iteration_with_what_was_handed_on() -> None:
    play = looping(given={"page": 1})
    play.begin("a")
    [task] = play.go_on("a", {"page": 2})
    assert isinstance(task, DispatchTask)
    assert (task.iteration, task.attempt, value(task.input)) == (1, 1, {"page": 2})
    a = play.step("a")
    assert (a.status, a.iteration, a.attempts, value(a.carried)) == ("queued", 1, 1, {"page": 2})
    [task] = play.go_on("a", [3], iteration=1)
    assert isinstance(task, DispatchTask)
    assert (task.iteration, value(task.input)) == (2, [3])


def test_nothing_handed_on_is_null_and_not_the_input_again() -> None:
    play = looping(given={"page": 1})
    [task] = play.tell(StepContinue(run_id=play.run_id, step_id="a"))
    assert isinstance(task, DispatchTask)
    assert value(task.input) is None


def test_a_loop_that_never_said_it_started_goes_on_all_the_same() -> None:
    play = looping()
    assert dispatched_iterations(play.go_on("a")) == [("a", 1, 1)]


def test_a_loop_may_complete_without_going_on() -> None:
    play = looping()
    assert appended(play.complete("a", 1)) == ["workflow.completed"]


def test_a_skipped_loop_is_never_dispatched() -> None:
    play = started(
        workflow(step("a"), loop("b", "a", config=THREE, skip_if=skip_if("a", "x", "==", 1)), step("c", "b"))
    )
    play.complete("a", {"x": 1})
    assert dispatched(play.settle()) == [("c", 1)]


def test_a_dead_letter_of_a_loop_holds_its_iteration_and_what_that_received() -> None:
    play = looping(retry={"max_attempts": 1})
    play.go_on("a", {"page": 2})
    play.fail("a", 1, iteration=1)
    [dead_letter] = only(DeadLetterTask, play.fail("a", 2, iteration=1, error="no disk"))
    assert (dead_letter.iteration, dead_letter.attempt, value(dead_letter.input), dead_letter.error) == (
        1,
        2,
        {"page": 2},
        "no disk",
    )


def test_each_iteration_has_all_of_the_retries() -> None:
    play = looping(retry={"max_attempts": 1})
    assert dispatched_iterations(play.fail("a", 1)) == [("a", 0, 2)]
    assert dispatched_iterations(play.go_on("a", "x", 2)) == [("a", 1, 1)]
    [again] = play.fail("a", 1, iteration=1)
    assert isinstance(again, DispatchTask)
    assert (again.iteration, again.attempt, value(again.input)) == (1, 2, "x")
    assert appended(play.fail("a", 2, iteration=1)) == ["workflow.failed"]


def test_going_on_forgets_the_error_of_the_attempt_before() -> None:
    play = looping(retry={"max_attempts": 1})
    play.fail("a", 1)
    play.go_on("a", None, 2)
    assert play.step("a").error is None


def test_an_answer_with_an_attempt_and_no_iteration_means_iteration_0() -> None:
    play = looping()
    play.begin("a", 1)
    play.go_on("a", None, 1)
    before = play.run
    late = [play.begin("a", 1), play.complete("a", 1, 1), play.fail("a", 1), play.go_on("a", None, 1)]
    assert [silently(each) for each in late] == [[]] * 4
    assert play.run is before


def test_an_answer_of_another_iteration_is_late_whatever_its_attempt() -> None:
    play = looping(retry={"max_attempts": 3})
    play.go_on("a")
    play.fail("a", 1, iteration=1)
    before = play.run
    for iteration, attempt in [(0, 1), (0, 2), (1, 1), (1, 3), (2, 1), (2, 2), (0, None), (2, None), (-1, None)]:
        assert silently(play.begin("a", attempt, iteration=iteration)) == []
        assert play.complete("a", 1, attempt, iteration=iteration) == []
        assert play.fail("a", attempt, iteration=iteration) == []
        assert play.go_on("a", None, attempt, iteration=iteration) == []
    assert play.run is before
    assert appended(play.complete("a", 1, 2, iteration=1)) == ["workflow.completed"]


@pytest.mark.parametrize(("attempt", "iteration"), [(2, 1), (None, 1), (None, None)])
def test_an_answer_of_the_execution_that_is_out_counts_however_it_is_numbered(
    attempt: int | None, iteration: int | None
) -> None:
    play = looping(retry={"max_attempts": 3})
    play.go_on("a")
    play.fail("a", 1, iteration=1)
    play.begin("a", attempt, iteration=iteration)
    assert play.step("a").status == "running"
    assert dispatched_iterations(play.go_on("a", None, attempt, iteration=iteration)) == [("a", 2, 1)]


def test_a_second_event_of_the_same_iteration_changes_nothing() -> None:
    play = looping({"max_iterations": 9})
    play.go_on("a", "first", iteration=0)
    before = play.run
    assert [play.go_on("a", "second", iteration=0), play.complete("a", 1, iteration=0)] == [[], []]
    assert play.run is before


@pytest.mark.parametrize("answer", [Play.complete, Play.fail])
def test_going_on_after_another_answer_comes_too_late(answer: object) -> None:
    play = looping(retry=RETRIED)
    assert callable(answer)
    answer(play, "a")
    before = play.run
    assert play.go_on("a") == []
    assert play.run is before


def test_going_on_is_nothing_for_a_person_a_step_that_is_not_out_or_an_unknown_one() -> None:
    play = started(workflow(step("a"), approval("b"), loop("c", "a", config=THREE)))
    play.begin("a")
    play.ask("b")
    before = play.run
    assert [play.go_on(step_id) for step_id in ("b", "c", "nowhere")] == [[]] * 3
    assert play.run is before
    play.cancel()
    assert [play.go_on("a"), play.go_on("c")] == [[], []]


def test_who_goes_on_in_a_step_that_is_no_loop_must_have_begun_it_or_say_of_which_attempt_he_speaks() -> None:
    play = started(workflow(step("a")))
    before = play.run
    assert [play.go_on("a", 1, None), play.go_on("a", 1, 2)] == [[], []]
    assert play.run is before
    assert appended(play.go_on("a", 1, 1)) == ["workflow.failed"]


def test_a_worker_that_goes_on_in_a_step_that_is_no_loop_fails_it_for_good() -> None:
    """Unheard, its answer would leave the run waiting for ever: no other comes."""
    play = started(workflow(step("a", timeout="1m", retry=RETRIED)))
    play.begin("a")
    timer, dead_letter, end = play.go_on("a", "next", None)
    assert timer == WithdrawTimer("timeout.a", EPOCH + 60)
    assert isinstance(dead_letter, DeadLetterTask)
    assert dead_letter.error == "its worker asked for another iteration, which only a step of type agent_loop has"
    assert isinstance(end, AppendEvent)
    play.settle()
    assert (play.run.status, play.statuses()) == (RunStatus.FAILED, {"a": "failed"})


def test_a_failing_run_begins_no_further_iteration() -> None:
    play = started(workflow(loop("a", config=THREE), step("b")))
    play.fail("b")
    before = play.run
    assert play.go_on("a") == []
    assert play.run is before
    assert WithdrawTask("A") in play.settle()
    assert play.statuses() == {"a": "cancelled", "b": "failed"}


def test_an_answer_is_late_while_the_loop_waits() -> None:
    play = looping({"max_iterations": 3, "loop_delay": "10s"})
    play.go_on("a")
    before = play.run
    for attempt, iteration in [(None, None), (1, 1), (None, 1), (1, None), (1, 0)]:
        assert silently(play.begin("a", attempt, iteration=iteration)) == []
        assert play.complete("a", 1, attempt, iteration=iteration) == []
        assert play.go_on("a", 1, attempt, iteration=iteration) == []
    assert play.run is before
    assert dispatched_iterations(play.fire("retry.a~1", "a", 1, after=10)) == [("a", 1, 1)]


def test_loops_side_by_side_keep_apart() -> None:
    play = started(workflow(loop("a", config=THREE, timeout="1m"), loop("b", config=THREE, timeout="1m")))
    play.begin("a")
    play.go_on("b")
    assert only(SetTimer, play.begin("b", iteration=1)) == [SetTimer("timeout.b~1", EPOCH + 60, "b", 1)]
    assert (play.step("a").iteration, play.step("b").iteration) == (0, 1)
    assert [timer.timer for timer in live_timers(play.run)] == ["timeout.a", "timeout.b~1"]


def test_tasks_of_former_iterations_are_not_due() -> None:
    play = Play(workflow(loop("a", config=THREE, retry={"max_attempts": 1})))
    commands = play.start()
    commands += play.go_on("a")
    assert dispatched_iterations([command for command in commands if still_due(play.run, command)]) == [("a", 1, 1)]
    commands += play.fail("a", 1, iteration=1)
    assert dispatched_iterations([command for command in commands if still_due(play.run, command)]) == [("a", 1, 2)]


def test_a_run_in_the_midst_of_a_loop_has_a_snapshot_that_is_read_back() -> None:
    play = looping({"max_iterations": 9, "max_duration": "1h", "loop_delay": "5s"})
    play.begin("a")
    play.go_on("a", {"page": "ü"})
    assert from_snapshot(to_snapshot(play.run)) == play.run


def test_a_run_does_not_keep_the_message_in_which_something_was_handed_on() -> None:
    play = looping()
    body = b'{"type":"step.continue","run_id":"r","step_id":"a","payload":"mine"}'
    holders = sys.getrefcount(body)
    play.tell(decode(body))
    play.log.clear()
    assert (value(play.step("a").carried), sys.getrefcount(body)) == ("mine", holders)
