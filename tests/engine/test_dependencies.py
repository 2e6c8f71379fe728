"""Which step is dispatched when, and how a run ends well."""

from __future__ import annotations

import time
from itertools import pairwise

from penstock.engine.run.commands import AppendEvent, WithdrawTimer
from penstock.engine.run.events import WorkflowCompleted
from penstock.engine.run.execution.cancelling import silently
from penstock.engine.run.state import RunStatus
from penstock.engine.run.timers import WORKFLOW_TIMER
from tests.engine.build import EPOCH, Play, appended, dispatched, only, started, step, value, workflow

DIAMOND = workflow(step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c"))


def test_starting_dispatches_every_step_without_dependencies_and_no_other() -> None:
    play = Play(workflow(step("a"), step("b", "a"), step("c")))
    assert dispatched(play.start()) == [("a", 1), ("c", 1)]
    assert play.statuses() == {"a": "queued", "b": "pending", "c": "queued"}


def test_a_run_knows_what_it_was_started_with() -> None:
    play = started(DIAMOND, {"n": 1})
    run = play.run
    assert (run.run_id, run.workflow_id, run.version, run.digest) == (play.run_id, "w", "1", DIAMOND.digest)
    assert (run.status, value(run.input)) == (RunStatus.RUNNING, {"n": 1})
    assert run.created_at == run.started_at == "1970-01-12T13:46:40.000000Z"
    assert run.finished_at is None


def test_a_task_carries_type_group_and_metadata() -> None:
    play = Play(workflow(step("a", task="resize", worker_group="gpu", metadata={"k": "v"})))
    [task] = play.start()
    assert (task.task, task.group, task.metadata, task.iteration) == ("resize", "gpu", {"k": "v"}, 0)  # type: ignore[union-attr]


def test_dependents_are_dispatched_when_their_last_dependency_completes() -> None:
    play = started(DIAMOND)
    assert dispatched(play.complete("a")) == [("b", 1), ("c", 1)]
    assert dispatched(play.complete("c")) == []
    assert dispatched(play.complete("b")) == [("d", 1)]


def test_a_completed_step_that_never_said_it_started_counts() -> None:
    play = started(DIAMOND)
    play.complete("a")
    assert play.step("a").status == "completed"
    assert play.step("a").started_at is None


def test_a_started_step_shows_its_worker_and_since_when() -> None:
    play = started(DIAMOND)
    assert play.begin("a", worker="w-7", after=2) == []
    assert (play.step("a").status, play.step("a").worker_id) == ("running", "w-7")
    assert play.step("a").started_at == "1970-01-12T13:46:42.000000Z"


def test_a_second_start_of_the_same_attempt_changes_nothing() -> None:
    play = started(DIAMOND)
    play.begin("a", worker="first")
    before = play.run
    assert play.begin("a", worker="second") == []
    assert play.run is before


def test_the_last_completion_orders_the_end_of_the_run_and_its_event_ends_it() -> None:
    play = started(DIAMOND)
    for step_id in "abc":
        assert appended(play.complete(step_id)) == []
    [command] = only(AppendEvent, play.complete("d", {"sum": 3}))
    assert play.run.status is RunStatus.RUNNING
    assert isinstance(command.event, WorkflowCompleted)
    assert value(command.event.payload.output) == {"sum": 3}
    assert play.settle() == []
    assert (play.run.status, play.run.error) == (RunStatus.COMPLETED, None)
    assert play.run.finished_at is not None


def test_the_end_of_a_run_withdraws_its_timeout() -> None:
    play = started(workflow(step("a"), timeout="1m"))
    play.complete("a")
    assert play.settle() == [WithdrawTimer(WORKFLOW_TIMER, EPOCH + 60)]
    assert play.run.due is None


def test_a_completion_of_the_run_before_its_steps_are_done_changes_nothing() -> None:
    play = started(DIAMOND)
    before = play.run
    assert play.tell(WorkflowCompleted(run_id=play.run_id)) == []
    assert play.run is before


def test_a_completed_run_is_final() -> None:
    play = started(workflow(step("a"), timeout="1m"))
    play.complete("a")
    play.settle()
    before = play.run
    commands = [play.start(), play.begin("a"), play.complete("a"), play.fail("a"), play.cancel(), play.fire("workflow")]
    assert [silently(each) for each in commands] == [[]] * 6
    assert play.run is before


def test_a_scheduled_run_dispatches_nothing_until_it_is_started() -> None:
    play = Play(DIAMOND)
    assert play.schedule({"n": 1}, run_at="2030-01-01T00:00:00Z") == []
    assert (play.run.status, play.run.run_at) == (RunStatus.SCHEDULED, "2030-01-01T00:00:00Z")
    assert set(play.statuses().values()) == {"pending"}
    created_at = play.run.created_at
    assert dispatched(play.start(after=60)) == [("a", 1)]
    assert (play.run.status, play.run.created_at, value(play.run.input)) == (RunStatus.RUNNING, created_at, {"n": 1})


def test_a_run_that_was_scheduled_twice_or_after_its_start_is_as_it_was() -> None:
    play = Play(DIAMOND)
    play.schedule()
    scheduled = play.run
    assert play.schedule(run_at="2031-01-01T00:00:00Z") == []
    assert play.run is scheduled
    play.start()
    running = play.run
    assert play.schedule() == []
    assert play.run is running


def test_nothing_comes_of_events_before_the_first() -> None:
    play = Play(DIAMOND)
    assert [play.begin("a"), play.complete("a"), play.cancel(), play.fire("workflow")] == [[]] * 4
    assert dispatched(play.start()) == [("a", 1)]


def test_a_step_that_the_workflow_does_not_have_is_ignored() -> None:
    play = started(DIAMOND)
    before = play.run
    commands = [
        play.begin("x"),
        play.complete("x"),
        play.fail("x"),
        play.fire("timeout.x", "x", 1),
        play.fire("timeout.x"),
    ]
    assert commands == [[]] * 5
    assert play.run is before


def test_a_pending_step_cannot_be_answered() -> None:
    play = started(DIAMOND)
    before = play.run
    answers = [
        play.begin("d"),
        play.complete("d"),
        play.fail("d"),
        play.complete("d", attempt=None),
        play.complete("d", attempt=0),
    ]
    assert answers == [[]] * 5
    assert play.run is before


def test_a_chain_of_a_thousand_steps_ends_in_reasonable_time() -> None:
    names = [f"s{n}" for n in range(1000)]
    play = started(workflow(step("s0"), *(step(after, before) for before, after in pairwise(names))))
    began = time.process_time()
    for name in names:
        play.begin(name)
        play.complete(name, {"n": 1})
    play.settle()
    assert play.run.status is RunStatus.COMPLETED
    assert time.process_time() - began < 2


def test_a_thousand_steps_side_by_side_end_in_reasonable_time() -> None:
    names = [f"s{n}" for n in range(998)]
    play = started(workflow(step("a"), *(step(name, "a") for name in names), step("z", *names)))
    began = time.process_time()
    for name in ("a", *names, "z"):
        play.begin(name)
        play.complete(name, {"n": 1})
    play.settle()
    assert play.run.status is RunStatus.COMPLETED
    assert time.process_time() - began < 2
