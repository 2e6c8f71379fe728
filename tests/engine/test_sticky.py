"""Sticky runs: bound to the first worker that completes a step, softly (for a while) or hard (for good)."""

from __future__ import annotations

import pytest

from penstock.engine.run.commands import (
    AppendEvent,
    BindWorker,
    Command,
    DeadLetterTask,
    DispatchTask,
    RequestApproval,
    SetTimer,
    WithdrawSticky,
    WithdrawTask,
    WithdrawTimer,
)
from penstock.engine.run.state import from_snapshot, to_snapshot
from penstock.engine.run.still_due import still_due
from penstock.engine.run.timers import live_timers
from penstock.engine.run.workflow import Workflow
from tests.engine.build import EPOCH, Play, approval, inputs, loop, only, skip_if, started, step, workflow

CHAIN = tuple(step(one, *before, worker_group="gpu", **more) for one, before, more in (
    ("a", (), {}), ("b", ("a",), {"retry": {"max_attempts": 2}}), ("c", ("b",), {})
))  # fmt: skip
SOFT = workflow(*CHAIN, sticky="soft")
HARD = workflow(*CHAIN, sticky="hard")
EITHER = pytest.mark.parametrize("definition", [SOFT, HARD], ids=["soft", "hard"])


def bound(definition: Workflow, worker: str = "w1") -> Play:
    """A run whose step `a` was completed by this worker."""
    play = started(definition)
    play.complete("a", 1, worker=worker)
    return play


def orders(commands: list[Command]) -> list[tuple[str, int, str | None]]:
    """Step, attempt and worker of every task ordered."""
    return [(command.step_id, command.attempt, command.worker) for command in only(DispatchTask, commands)]


@EITHER
def test_the_first_tasks_of_a_run_are_for_everyone(definition: Workflow) -> None:
    play = Play(definition)
    commands = play.start()
    assert orders(commands) == [("a", 1, None)]
    assert (only(BindWorker, commands), play.run.bound) == ([], None)


@EITHER
def test_the_first_worker_that_completes_a_step_is_bound_before_it_gets_the_next(definition: Workflow) -> None:
    play = started(definition)
    play.begin("a", worker="w1")
    commands = play.complete("a", 1, worker="w1")
    assert [type(command) for command in commands[:2]] == [BindWorker, DispatchTask]
    assert only(BindWorker, commands) == [BindWorker("w1")]
    assert orders(commands) == [("b", 1, "w1")]
    assert (play.run.bound, play.step("b").sticky) == ("w1", "w1")


@EITHER
def test_another_worker_that_completes_a_step_is_not_bound(definition: Workflow) -> None:
    play = bound(definition)
    commands = play.complete("b", 2, worker="w2")
    assert only(BindWorker, commands) == []
    assert (play.run.bound, orders(commands)) == ("w1", [("c", 1, "w1")])


@EITHER
@pytest.mark.parametrize("worker", [None, "", "a b", "x.*", "w" * 129, ".w"])
def test_a_completion_without_a_usable_worker_id_binds_nobody(definition: Workflow, worker: str | None) -> None:
    play = started(definition)
    commands = play.complete("a", 1, worker=worker)
    assert (only(BindWorker, commands), play.run.bound, orders(commands)) == ([], None, [("b", 1, None)])
    assert only(BindWorker, play.complete("b", 2, worker="w2")) == [BindWorker("w2")]


@EITHER
def test_who_starts_fails_or_goes_on_is_not_bound(definition: Workflow) -> None:
    steps = (loop("a", config={"max_iterations": 3}, retry={"max_attempts": 1}),)
    play = started(workflow(*steps, sticky=definition.sticky))
    commands = [
        *play.begin("a", worker="w1"),
        *play.fail("a"),
        *play.begin("a", 2, worker="w1"),
        *play.go_on("a", 1, 2),
    ]
    assert (only(BindWorker, commands), play.run.bound) == ([], None)
    assert orders(commands) == [("a", 2, None), ("a", 1, None)]


@EITHER
@pytest.mark.parametrize("group", [None, "gpu"])
def test_a_step_of_another_group_than_the_binding_goes_to_the_queue(definition: Workflow, group: str | None) -> None:
    """Whoever completed the first step of a group takes tasks of that group alone; and one that takes all does not take
    those."""
    steps = (step("a", worker_group=group), step("b", "a", worker_group="tpu"), step("c", "b", worker_group=group))
    play = started(workflow(*steps, sticky=definition.sticky))
    assert orders(play.complete("a", worker="w1")) == [("b", 1, None)]
    assert (play.run.bound, play.run.bound_group, play.step("b").sticky, live_timers(play.run)) == (
        "w1",
        group,
        None,
        [],
    )
    assert orders(play.complete("b", 2, worker="w2")) == [("c", 1, "w1")]


def test_only_a_soft_task_may_go_to_anyone_where_its_worker_takes_none_of_its_type() -> None:
    commands = [started(definition).complete("a", worker="w1") for definition in (SOFT, HARD)]
    assert [[task.or_anyone for task in only(DispatchTask, each)] for each in commands] == [[True], [False]]
    [task] = only(DispatchTask, bound(SOFT).fire("sticky.b", "b", 1, after=5))
    assert (task.worker, task.or_anyone) == (None, False)


def test_a_run_that_is_not_sticky_binds_nobody() -> None:
    play = bound(workflow(*CHAIN))
    assert (play.run.bound, play.step("b").sticky, live_timers(play.run)) == (None, None, [])


def test_a_soft_task_waits_five_seconds_for_its_worker() -> None:
    play = started(SOFT)
    commands = play.complete("a", 1, worker="w1", after=1)
    assert commands[-1] == SetTimer("sticky.b", EPOCH + 6, "b", 1)
    assert live_timers(play.run) == [SetTimer("sticky.b", EPOCH + 6, "b", 1)]


def test_a_hard_task_waits_for_its_worker_for_good() -> None:
    play = bound(HARD)
    assert live_timers(play.run) == []
    before = play.run
    assert play.fire("sticky.b", "b", 1, after=5) == []
    assert play.run is before


def test_a_soft_task_that_nobody_began_is_withdrawn_before_it_is_for_everyone() -> None:
    play = bound(SOFT)
    withdrawn, task = play.fire("sticky.b", "b", 1, after=5)
    assert withdrawn == WithdrawSticky("b", "B", 1, 0, "w1")
    assert isinstance(task, DispatchTask)
    assert (task.step_id, task.attempt, task.worker, task.group) == ("b", 1, None, "gpu")
    b = play.step("b")
    assert (b.status, b.attempts, b.sticky, live_timers(play.run)) == ("queued", 1, None, [])


def test_a_soft_task_falls_back_once() -> None:
    play = bound(SOFT)
    play.fire("sticky.b", "b", 1, after=5)
    before = play.run
    assert play.fire("sticky.b", "b", 1) == []
    assert play.run is before


@pytest.mark.parametrize("answer", ["begin", "complete", "fail"])
def test_an_answer_in_time_ends_the_wait(answer: str) -> None:
    play = bound(SOFT)
    commands = getattr(play, answer)("b")
    assert commands[0] == WithdrawTimer("sticky.b", EPOCH + 5)
    before = play.run
    assert play.fire("sticky.b", "b", 1, after=5) == []
    assert play.run is before


def test_what_a_worker_began_stays_with_it() -> None:
    play = bound(SOFT)
    play.begin("b", worker="w1")
    assert (play.step("b").sticky, play.step("b").fallback) == ("w1", None)
    assert only(WithdrawTask, play.cancel()) == [WithdrawTask("B", "gpu"), WithdrawTask("B", worker="w1")]


def test_a_soft_task_that_its_worker_began_and_lost_is_for_everyone() -> None:
    play = bound(SOFT)
    play.begin("b", worker="w1")
    withdrawn, task = play.fire("lost.b", "b", 1)
    assert withdrawn == WithdrawSticky("b", "B", 1, 0, "w1")
    assert isinstance(task, DispatchTask)
    assert (task.step_id, task.attempt, task.worker, task.group) == ("b", 1, None, "gpu")
    assert ("running", None) == (play.step("b").status, play.step("b").sticky)
    assert orders(play.complete("b", 1, worker="w2")) == [("c", 1, "w1")]


@pytest.mark.parametrize("attempt", [None, 2])
def test_what_is_lost_is_one_execution_that_was_begun_and_is_said_once(attempt: int | None) -> None:
    play = bound(SOFT)
    before = play.run
    assert play.fire("lost.b", "b", 1) == []  # nobody began it yet: it has a timer of its own
    assert play.run is before
    play.begin("b", worker="w1")
    before = play.run
    assert play.fire("lost.b", "b", attempt) == []
    assert play.fire("lost.b~1", "b", 1) == []
    assert play.run is before
    play.fire("lost.b", "b", 1)
    before = play.run
    assert play.fire("lost.b", "b", 1) == []
    assert play.run is before


def test_a_hard_task_that_its_worker_lost_waits_for_it() -> None:
    play = bound(HARD)
    play.begin("b", worker="w1")
    before = play.run
    assert play.fire("lost.b", "b", 1) == []
    assert play.run is before


def test_the_bound_worker_may_still_answer_what_has_fallen_back() -> None:
    play = bound(SOFT)
    play.fire("sticky.b", "b", 1, after=5)
    assert orders(play.complete("b", 2, worker="w1")) == [("c", 1, "w1")]
    before = play.run
    assert play.complete("b", 3, worker="w2") == []
    assert play.run is before


def test_each_attempt_goes_to_the_bound_worker_first() -> None:
    play = bound(SOFT)
    play.fire("sticky.b", "b", 1, after=5)
    commands = play.fail("b")
    assert orders(commands) == [("b", 2, "w1")]
    assert only(SetTimer, commands) == [SetTimer("sticky.b", EPOCH + 10, "b", 2)]
    assert play.fire("sticky.b", "b", 1, after=5) == []
    assert orders(play.fire("sticky.b", "b", 2)) == [("b", 2, None)]


def test_a_retry_that_waits_keeps_nobody_waiting() -> None:
    play = started(workflow(step("a"), step("b", "a", retry={"max_attempts": 1, "initial_delay": "1m"}), sticky="soft"))
    play.complete("a", worker="w1")
    assert [type(command) for command in play.fail("b")] == [WithdrawTimer, SetTimer]
    assert (play.step("b").sticky, play.step("b").fallback) == (None, None)
    [retry] = live_timers(play.run)
    commands = play.fire(retry.timer, "b", retry.attempt, after=70)
    assert orders(commands) == [("b", 2, "w1")]
    assert only(SetTimer, commands) == [SetTimer("sticky.b", EPOCH + 75, "b", 2)]


def test_each_iteration_goes_to_the_bound_worker_first() -> None:
    play = started(
        workflow(step("a"), loop("b", "a", config={"max_iterations": 3, "max_duration": "1h"}), sticky="soft")
    )
    play.complete("a", worker="w1")
    [loop_timer] = [command for command in play.begin("b") if isinstance(command, SetTimer)]
    commands = play.go_on("b", "next")
    assert orders(commands) == [("b", 1, "w1")]
    assert only(SetTimer, commands) == [SetTimer("sticky.b~1", EPOCH + 5, "b", 1)]
    assert set(live_timers(play.run)) == {loop_timer, SetTimer("sticky.b~1", EPOCH + 5, "b", 1)}
    assert play.fire("sticky.b", "b", 1, after=5) == []
    [withdrawn, task] = play.fire("sticky.b~1", "b", 1)
    assert withdrawn == WithdrawSticky("b", "B", 1, 1, "w1")
    assert inputs([task]) == {"b": "next"}


def test_a_person_is_asked_whatever_worker_is_bound() -> None:
    play = started(workflow(step("a"), approval("b", "a"), step("c", "b"), sticky="soft"))
    commands = play.complete("a", worker="w1")
    assert [type(command) for command in commands] == [BindWorker, RequestApproval]
    assert (play.step("b").sticky, play.step("b").fallback) == (None, None)
    play.ask("b")
    assert orders(play.grant("b", by="w2")) == [("c", 1, "w1")]


def test_a_person_who_decides_first_is_not_bound() -> None:
    play = started(workflow(approval("a"), step("b", "a"), sticky="hard"))
    play.ask("a")
    commands = play.grant("a", by="me")
    assert (only(BindWorker, commands), orders(commands)) == ([], [("b", 1, None)])


def test_a_skipped_step_binds_nobody() -> None:
    play = started(
        workflow(step("a"), step("b", "a", skip_if=skip_if("a", "x", "==", 1)), step("c", "b"), sticky="hard")
    )
    play.complete("a", {"x": 1}, worker="w1")
    assert orders(play.settle()) == [("c", 1, "w1")]
    assert play.step("b").sticky is None


def test_steps_out_when_the_run_is_bound_stay_with_everyone() -> None:
    play = started(workflow(step("a"), step("z"), step("b", "a"), sticky="hard"))
    play.complete("a", worker="w1")
    assert (play.step("z").sticky, play.step("b").sticky) == (None, "w1")
    assert only(WithdrawTask, play.cancel()) == [WithdrawTask("Z"), WithdrawTask("B", worker="w1")]


def test_the_end_of_a_run_takes_back_what_waits_for_a_worker_once_per_type() -> None:
    steps = (step("b", "a", task="T"), step("c", "a", task="T"), step("d", "a", task="T"))
    play = started(workflow(step("a"), *steps, sticky="soft"))
    play.complete("a", worker="w1")
    commands = play.cancel()
    assert only(WithdrawTask, commands) == [WithdrawTask("T"), WithdrawTask("T", worker="w1")]
    assert {command.timer for command in only(WithdrawTimer, commands)} == {"sticky.b", "sticky.c", "sticky.d"}
    assert live_timers(play.run) == []
    assert all(state.fallback is None for state in play.run.steps.values())


def test_a_fallen_back_task_is_taken_back_from_the_queue() -> None:
    play = bound(SOFT)
    play.fire("sticky.b", "b", 1, after=5)
    assert only(WithdrawTask, play.cancel()) == [WithdrawTask("B", "gpu")]


def test_nothing_falls_back_in_a_failing_run() -> None:
    play = started(workflow(step("a"), step("b", "a"), step("z"), sticky="soft"))
    play.complete("a", worker="w1")
    play.fail("z")
    before = play.run
    assert play.fire("sticky.b", "b", 1, after=5) == []
    assert play.run is before


def due(play: Play, commands: list[Command]) -> list[Command]:
    return [command for command in commands if still_due(play.run, command)]


def test_a_task_for_a_worker_is_due_until_it_falls_back() -> None:
    play = started(SOFT)
    commands = play.complete("a", worker="w1")
    assert due(play, commands) == commands
    later = play.fire("sticky.b", "b", 1, after=5)
    assert due(play, commands + later) == [BindWorker("w1"), *later]
    play.begin("b", worker="w2")
    assert due(play, commands + later) == [BindWorker("w1"), later[0]]


def test_a_task_that_fell_back_as_its_worker_began_is_due_for_everyone() -> None:
    """The copy that the worker holds is taken back: when it dies, another must have one."""
    play = bound(SOFT)
    commands = play.fire("sticky.b", "b", 1, after=5)
    play.begin("b", worker="w1")
    assert due(play, commands) == commands
    play.complete("b", worker="w1")
    assert due(play, commands) == commands[:1]


def test_taking_a_task_back_from_its_worker_is_due_also_after_the_end_of_the_run() -> None:
    """Else the copy would wait for the worker for ever: what the end takes back is in the queue by then."""
    play = bound(SOFT)
    commands = play.fire("sticky.b", "b", 1, after=5)
    play.cancel()
    assert due(play, commands) == [WithdrawSticky("b", "B", 1, 0, "w1")]


def test_the_binding_is_due_while_the_run_lives() -> None:
    play = started(SOFT)
    commands = list[Command](only(BindWorker, play.complete("a", worker="w1")))
    assert due(play, commands) == commands
    assert due(play, [BindWorker("w2")]) == []
    play.cancel()
    assert due(play, commands) == []


def test_a_failed_sticky_task_is_kept_as_any_dead_letter() -> None:
    play = bound(HARD)
    [dead_letter, end] = play.fail("b", kind="non_retriable")
    assert isinstance(dead_letter, DeadLetterTask)
    assert (dead_letter.step_id, dead_letter.group, dead_letter.attempt) == ("b", "gpu", 1)
    assert isinstance(end, AppendEvent)


@EITHER
def test_a_sticky_run_has_a_snapshot_that_is_read_back(definition: Workflow) -> None:
    play = bound(definition)
    assert from_snapshot(to_snapshot(play.run)) == play.run
    assert play.run.bound == "w1"
