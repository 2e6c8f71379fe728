"""Failures: which are tried again, when, and what happens when no try is left."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.run.commands import (
    AppendEvent,
    Command,
    DeadLetterTask,
    DispatchTask,
    SetTimer,
    WithdrawTask,
    WithdrawTimer,
)
from penstock.engine.run.event_payloads import Failure
from penstock.engine.run.events import WorkflowFailed
from penstock.engine.run.execution.cancelling import silently
from penstock.engine.run.execution.retry import DELAY_S_MAX, delay_s, retry_after_s
from penstock.engine.run.state import RunStatus
from penstock.engine.run.workflow import RetryPolicy
from tests.engine.build import EPOCH, RUN_ID, Play, appended, dispatched, only, started, step, value, workflow

TWICE = {"max_attempts": 2, "initial_delay": "10s"}
YEARS = 365 * 86_400


def base_s(strategy: str, attempt: int, **fields: float) -> float:
    """The delay without its jitter, which the same key always has."""
    policy = RetryPolicy(retries=9, strategy=strategy, **fields)
    jitter = delay_s(RetryPolicy(retries=9, initial_s=1.0), RUN_ID, "a", attempt)
    return delay_s(policy, RUN_ID, "a", attempt) / jitter


def wait_s(commands: list[Command]) -> float:
    """How long after the epoch the only timer ordered is due."""
    [timer] = only(SetTimer, commands)
    return timer.due - EPOCH


def test_a_failed_attempt_with_retries_left_waits_in_the_queue_for_its_timer() -> None:
    play = started(workflow(step("a", retry=TWICE)))
    play.begin("a")
    [timer] = play.fail("a", error="no disk")
    due = EPOCH + delay_s(RetryPolicy(retries=2, initial_s=10.0), RUN_ID, "a", 1)
    assert timer == SetTimer("retry.a", due, "a", 2)
    a = play.step("a")
    assert (a.status, a.attempts, a.error, a.due, a.finished_at) == ("queued", 2, "no disk", due, None)


def test_the_retry_timer_dispatches_the_next_attempt() -> None:
    play = started(workflow(step("a", retry=TWICE)), {"n": 1})
    play.fail("a")
    [task] = play.fire("retry.a", "a", 2, after=11)
    assert isinstance(task, DispatchTask)
    assert (task.attempt, value(task.input)) == (2, {"n": 1})
    assert play.step("a").due is None
    assert play.fire("retry.a", "a", 2) == []


def test_the_delay_is_the_same_on_every_replay_and_another_for_other_runs_steps_and_attempts() -> None:
    policy = RetryPolicy(retries=9, initial_s=10.0)
    keys = [("r1", "a", 1), ("r2", "a", 1), ("r1", "b", 1), ("r1", "a", 2)]
    delays = [delay_s(policy, *key) for key in keys]
    assert delays == [delay_s(policy, *key) for key in keys]
    assert len(set(delays)) == len(keys)


@given(st.text(), st.text(), st.integers(1, 100_001))
def test_jitter_stays_within_ten_percent(run_id: str, step_id: str, attempt: int) -> None:
    assert 9.0 <= delay_s(RetryPolicy(retries=1, initial_s=10.0), run_id, step_id, attempt) <= 11.0


def test_jitter_uses_the_whole_of_its_range() -> None:
    delays = [delay_s(RetryPolicy(retries=1, initial_s=10.0), RUN_ID, "a", attempt) for attempt in range(1, 200)]
    assert min(delays) < 9.1
    assert max(delays) > 10.9


@pytest.mark.parametrize(
    ("strategy", "delays"),
    [("fixed", [3, 3, 3, 3, 3]), ("linear", [3, 6, 9, 12, 15]), ("exponential", [3, 6, 12, 24, 48])],
)
def test_delays_grow_as_the_strategy_says(strategy: str, delays: list[float]) -> None:
    assert [base_s(strategy, attempt, initial_s=3.0) for attempt in range(1, 6)] == pytest.approx(delays)


def test_the_multiplier_is_the_base_of_exponential_growth() -> None:
    assert base_s("exponential", 4, initial_s=2.0, multiplier=3.0) == pytest.approx(54)


@pytest.mark.parametrize("strategy", ["fixed", "linear", "exponential"])
def test_no_delay_exceeds_max_delay_but_by_its_jitter(strategy: str) -> None:
    assert base_s(strategy, 50, initial_s=3.0, max_s=2.5) == pytest.approx(2.5)


def test_growth_without_max_delay_ends_at_ten_years() -> None:
    assert base_s("exponential", 100_000, initial_s=1.0) == pytest.approx(DELAY_S_MAX) == pytest.approx(10 * YEARS)
    assert base_s("linear", 100_000, initial_s=1.0 * YEARS) == pytest.approx(DELAY_S_MAX)


def test_no_delay_stays_no_delay_however_often_it_is_doubled() -> None:
    assert delay_s(RetryPolicy(retries=100_000, strategy="exponential"), RUN_ID, "a", 100_000) == 0


def test_without_delay_the_next_attempt_is_dispatched_at_once() -> None:
    play = started(workflow(step("a", retry={"max_attempts": 1})))
    assert dispatched(play.fail("a")) == [("a", 2)]
    assert play.step("a").due is None


def test_attempts_end_with_the_policy() -> None:
    play = started(workflow(step("a", retry={"max_attempts": 2})))
    assert dispatched(play.fail("a", 1)) == [("a", 2)]
    assert dispatched(play.fail("a", 2)) == [("a", 3)]
    assert dispatched(play.fail("a", 3)) == []
    assert (play.step("a").status, play.step("a").attempts) == ("failed", 3)


def test_a_retry_that_succeeds_leaves_no_error() -> None:
    play = started(workflow(step("a", retry={"max_attempts": 1})))
    play.fail("a")
    assert play.step("a").error == "boom"
    assert appended(play.complete("a", attempt=2)) == ["workflow.completed"]
    assert (play.step("a").error, play.step("a").attempts) == (None, 2)


def test_retry_after_is_waited_for_exactly_and_uses_up_a_retry() -> None:
    play = started(workflow(step("a", retry={"max_attempts": 1, "initial_delay": "10s"})))
    assert wait_s(play.fail("a", kind="retry_after", ms=90_500)) == 90.5
    play.fire("retry.a", "a", 2, after=91)
    assert appended(play.fail("a", 2, kind="retry_after", ms=1)) == ["workflow.failed"]


@pytest.mark.parametrize("ms", [0, -5])
def test_retry_after_nothing_is_at_once(ms: int) -> None:
    play = started(workflow(step("a", retry=TWICE)))
    assert dispatched(play.fail("a", kind="retry_after", ms=ms)) == [("a", 2)]


@pytest.mark.parametrize("ms", [10**15, 10**400], ids=["long", "longer than a float"])
def test_retry_after_is_at_most_ten_years(ms: int) -> None:
    assert retry_after_s(Failure(failure_type="retry_after", retry_after_ms=ms)) == 10 * YEARS


def test_retry_after_ms_of_another_failure_counts_for_nothing() -> None:
    play = started(workflow(step("a", retry=TWICE)))
    assert 9 <= wait_s(play.fail("a", ms=90_500)) <= 11


def test_a_non_retriable_failure_is_not_tried_again() -> None:
    play = started(workflow(step("a", retry=TWICE)))
    commands = play.fail("a", kind="non_retriable")
    assert [type(command) for command in commands] == [DeadLetterTask, AppendEvent]
    assert play.step("a").status == "failed"


@pytest.mark.parametrize("kind", ["", "Non_Retriable", "fatal", "retry-after"])
def test_an_unknown_failure_type_is_retriable(kind: str) -> None:
    play = started(workflow(step("a", retry={"max_attempts": 1})))
    assert dispatched(play.fail("a", kind=kind, ms=90_500)) == [("a", 2)]


def test_a_failure_for_good_is_dead_lettered_before_it_fails_the_run() -> None:
    play = started(workflow(step("a", task="resize", worker_group="gpu", metadata={"k": "v"})), {"n": 1})
    play.begin("a")
    dead_letter, end = play.fail("a", error="no disk")
    assert isinstance(dead_letter, DeadLetterTask)
    assert (dead_letter.step_id, dead_letter.task, dead_letter.group, dead_letter.metadata) == (
        "a",
        "resize",
        "gpu",
        {"k": "v"},
    )
    assert (dead_letter.attempt, dead_letter.iteration, value(dead_letter.input), dead_letter.error) == (
        1,
        0,
        {"n": 1},
        "no disk",
    )
    assert isinstance(end, AppendEvent)
    assert isinstance(end.event, WorkflowFailed)
    assert (end.event.payload.error, end.event.payload.step_id) == ('step "a" failed: no disk', "a")


def test_a_failed_run_says_why_and_has_what_was_out_taken_back() -> None:
    steps = [step("a"), step("b", task="T", timeout="1m"), step("c", task="T"), step("d", "b"), step("e", retry=TWICE)]
    play = started(workflow(*steps, timeout="1h"))
    play.begin("b")
    [retry] = play.fail("e")
    play.fail("a", error="no disk")
    commands = play.settle()
    assert isinstance(retry, SetTimer)
    assert set(only(WithdrawTimer, commands)) == {
        WithdrawTimer("workflow", EPOCH + 3600),
        WithdrawTimer("timeout.b", EPOCH + 60),
        WithdrawTimer("retry.e", retry.due),
    }
    assert only(WithdrawTask, commands) == [WithdrawTask("T"), WithdrawTask("E")]
    assert (play.run.status, play.run.error) == (RunStatus.FAILED, 'step "a" failed: no disk')
    assert play.statuses() == {"a": "failed", "b": "cancelled", "c": "cancelled", "d": "cancelled", "e": "cancelled"}


def failing() -> Play:
    """Step `a` has failed the run, whose end is not in the log yet; b is out, c waits for its retry, d for b."""
    play = started(
        workflow(step("a"), step("b", timeout="1m", retry=TWICE), step("c", retry=TWICE), step("d", "b"), timeout="1h")
    )
    play.begin("b")
    play.fail("c")
    play.fail("a")
    return play


def test_a_failing_run_dispatches_nothing_more() -> None:
    play = failing()
    assert play.fire("retry.c", "c", 2, after=11) == []
    assert play.complete("b") == [WithdrawTimer("timeout.b", EPOCH + 60)]
    assert play.statuses() == {"a": "failed", "b": "completed", "c": "queued", "d": "pending"}


def test_another_failure_of_a_failing_run_is_dead_lettered_but_ends_nothing_twice() -> None:
    play = failing()
    commands = play.fail("b", error="too")
    assert [type(command) for command in commands] == [WithdrawTimer, DeadLetterTask]
    assert play.step("b").status == "failed"
    play.settle()
    assert play.run.error == 'step "a" failed: boom'


def test_no_timeout_counts_in_a_failing_run() -> None:
    play = failing()
    before = play.run
    assert play.fire("workflow", after=3600) == []
    assert play.fire("timeout.b", "b", 1) == []
    assert play.run is before


def test_an_answer_of_another_attempt_is_late() -> None:
    play = started(workflow(step("a", retry={"max_attempts": 1})))
    play.begin("a")
    play.fail("a")
    before = play.run
    late = [play.begin("a", 1), play.complete("a", "old", 1), play.fail("a", 1), play.fail("a", 3)]
    assert [silently(each) for each in late] == [[]] * 4
    assert play.run is before
    play.complete("a", "new", 2)
    assert value(play.step("a").output) == "new"


def test_an_answer_without_attempt_means_the_one_that_is_out() -> None:
    play = started(workflow(step("a", retry={"max_attempts": 1})))
    play.begin("a", None)
    assert dispatched(play.fail("a", None)) == [("a", 2)]
    play.begin("a", None)
    assert appended(play.complete("a", attempt=None)) == ["workflow.completed"]


def test_an_answer_without_attempt_is_late_while_the_step_waits_for_its_retry() -> None:
    """None is out then; taken for the next attempt, a late start would forget the timer that dispatches it."""
    play = started(workflow(step("a", retry=TWICE)))
    play.fail("a", None)
    before = play.run
    assert [play.begin("a", None), play.complete("a", attempt=None), play.fail("a", None)] == [[]] * 3
    assert play.run is before
    assert dispatched(play.fire("retry.a", "a", 2, after=11)) == [("a", 2)]


def test_attempts_that_nobody_has_begun_are_not_among_those_begun() -> None:
    play = started(workflow(step("a", retry={"max_attempts": 2}), step("b")))
    assert (1, 0) == (play.step("a").attempts, play.step("a").begun)
    play.begin("a")
    assert (1, 1) == (play.step("a").attempts, play.step("a").begun)
    play.fail("a")
    assert (2, 1) == (play.step("a").attempts, play.step("a").begun)
    play.fail("a", 2)
    play.fail("a", 3)
    play.settle()
    assert [("failed", 3), ("cancelled", 0)] == [(step.status, step.begun) for step in play.run.steps.values()]
    play.resume()
    assert [("queued", 3), ("queued", 0)] == [(step.status, step.begun) for step in play.run.steps.values()]
    play.complete("b", attempt=2)
    assert ("completed", 1) == (play.step("b").status, play.step("b").begun)


def test_a_step_that_is_cancelled_when_somebody_has_begun_it_has_that_attempt() -> None:
    play = started(workflow(step("a"), step("b", "a")))
    play.begin("a")
    play.cancel()
    assert [1, 0] == [step.begun for step in play.run.steps.values()]
