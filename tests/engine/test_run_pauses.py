"""A paused run: what runs finishes, nothing new begins, and what was held back follows when it goes on."""

from __future__ import annotations

import pytest

from penstock.engine.run.commands import (
    BeginStep,
    CancelChild,
    DispatchTask,
    PauseChild,
    SetTimer,
    StartChild,
    WithdrawQueued,
    WithdrawTimer,
)
from penstock.engine.run.execution.children import child_started
from penstock.engine.run.state import RunStatus, StepStatus, from_snapshot, to_snapshot
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
    raw,
    started,
    step,
    workflow,
)


def test_a_queued_task_is_withdrawn_and_queued_again_under_another_id() -> None:
    play = started(workflow(step("a")))

    assert [WithdrawQueued("A")] == play.pause_run()
    [again] = only(DispatchTask, play.unpause_run())

    assert (again.step_id, again.attempt, again.again) == ("a", 1, 1)
    assert play.run.pause is None


def test_what_runs_finishes_and_what_follows_waits() -> None:
    play = started(workflow(step("a"), step("b", "a")))
    play.begin("a")

    assert [] == play.pause_run()
    assert [] == play.complete("a", 1)
    assert (play.step("a").status, play.step("b").status) == (StepStatus.COMPLETED, StepStatus.QUEUED)
    assert [("b", 1)] == dispatched(play.unpause_run())


def test_a_paused_run_whose_last_step_finishes_ends() -> None:
    play = started(workflow(step("a")))
    play.begin("a")
    play.pause_run()

    play.complete("a", 1)
    play.settle()

    assert (play.run.status, play.run.pause) == (RunStatus.COMPLETED, None)


def test_a_second_pause_and_a_resumption_of_a_run_that_is_not_paused_change_nothing() -> None:
    play = started(workflow(step("a")))
    play.pause_run()
    before = play.run

    assert [] == play.pause_run(after=5)
    assert before == play.run
    play.unpause_run()
    before = play.run
    assert [] == play.unpause_run()
    assert before == play.run


def test_an_ended_run_cannot_be_paused() -> None:
    play = started(workflow(step("a")))
    play.cancel()
    before = play.run

    assert [] == play.pause_run()
    assert before == play.run


def test_the_timeout_of_the_workflow_stands_still() -> None:
    play = Play(workflow(step("a"), timeout="60s"))
    play.start()
    assert WithdrawTimer("workflow", EPOCH + 60) in play.pause_run(after=20)

    assert play.run.due is None
    assert [] == play.fire("workflow", after=100)
    assert play.run.status is RunStatus.RUNNING
    timer = SetTimer("workflow+1", EPOCH + 120 + 40)
    assert timer in play.unpause_run()
    assert [timer] == live_timers(play.run)
    assert [] == play.fire("workflow"), "one from before the pause is late"
    assert ["workflow.failed"] == appended(play.fire("workflow+1", after=40))


def test_the_timeout_of_a_running_step_goes_on_and_its_retry_waits() -> None:
    play = started(workflow(step("a", timeout="10s", retry={"max_attempts": 2, "initial_delay": "0s"})))
    play.begin("a")
    play.pause_run()

    assert ["step.failed"] == appended(play.fire("timeout.a", "a", 1, after=10))
    assert [] == dispatched(play.settle())
    assert (play.step("a").status, play.step("a").attempts) == (StepStatus.QUEUED, 2)
    assert [("a", 2)] == dispatched(play.unpause_run())


def test_a_retry_that_comes_due_goes_off_at_the_resumption() -> None:
    play = started(workflow(step("a", retry={"max_attempts": 2, "initial_delay": "10s"})))
    play.begin("a")
    play.fail("a")
    play.pause_run()

    assert [] == play.fire("retry.a", "a", 2, after=10)
    assert [] == live_timers(play.run), "it has fired, and is not set again"
    assert [("a", 2)] == dispatched(play.unpause_run())


def test_a_retry_that_is_not_due_yet_goes_off_in_its_time() -> None:
    play = started(workflow(step("a", retry={"max_attempts": 2, "initial_delay": "10s"})))
    play.begin("a")
    play.fail("a")
    play.pause_run()

    assert [] == play.unpause_run(after=1)
    assert [("a", 2)] == dispatched(play.fire("retry.a", "a", 2, after=10))


def test_a_paused_run_is_cancelled_at_once() -> None:
    play = started(workflow(step("a")))
    play.pause_run()

    play.cancel("enough")

    assert (RunStatus.CANCELLED, None) == (play.run.status, play.run.pause)


def test_a_paused_run_that_is_cancelled_undoes_its_steps_at_once() -> None:
    play = started(workflow(step("a", compensate={"task": "undo"}), step("b", "a")))
    play.begin("a")
    play.complete("a", 1)
    play.pause_run()

    commands = play.cancel(compensate=True)

    assert (RunStatus.COMPENSATING, None) == (play.run.status, play.run.pause)
    assert ["a.compensate"] == [command.step_id for command in only(BeginStep, commands)]


def test_a_run_that_fails_while_it_is_paused_undoes_its_steps_at_the_resumption() -> None:
    play = started(workflow(step("a", compensate={"task": "undo"}), step("b", "a")))
    play.begin("a")
    play.complete("a", 1)
    play.begin("b")
    play.pause_run()

    assert [] == only(BeginStep, play.fail("b", kind="non_retriable"))
    play.settle()
    assert play.run.status is RunStatus.COMPENSATING
    ordered = play.unpause_run()

    assert ["a.compensate"] == [command.step_id for command in only(BeginStep, ordered)]


def test_a_handler_begins_at_the_resumption() -> None:
    play = started(workflow(step("a", on_failure={"task": "mend"})))
    play.begin("a")
    play.pause_run()

    assert [] == play.fail("a", kind="non_retriable")
    assert ["a.on_failure"] == [command.step_id for command in only(BeginStep, play.unpause_run())]


def test_the_next_iteration_of_a_loop_begins_at_the_resumption() -> None:
    play = started(workflow(loop("a", config={"max_iterations": 3})))
    play.begin("a")
    play.pause_run()

    assert [] == dispatched_iterations(play.go_on("a", 1))
    assert [("a", 1, 1)] == dispatched_iterations(play.unpause_run())


def test_a_task_that_its_worker_has_put_aside_is_not_withdrawn_and_goes_on() -> None:
    play = started(workflow(step("a", timeout="10s")))
    play.begin("a")
    play.pause("a", after=4)

    assert [] == only(WithdrawQueued, play.pause_run())
    play.begin("a", delivery=2, after=60)
    assert EPOCH + 70 == play.step("a").due
    play.complete("a", 1)
    assert play.step("a").status is StepStatus.COMPLETED


MAP = {"id": "m", "type": "map", "task": "M", "config": {"items": "${{ input }}", "max_concurrency": 2}}


def test_queued_elements_are_withdrawn_and_ordered_again() -> None:
    play = Play(workflow(MAP))
    play.carry_out(play.start([1, 2, 3, 4]))
    play.begin("m.0")

    assert [WithdrawQueued("M")] == play.pause_run()
    assert [] == play.complete("m.0", 1)
    ordered = only(BeginStep, play.unpause_run())

    assert [("m.1", 1), ("m.2", 1)] == [(command.step_id, command.again) for command in ordered]


def test_the_retry_of_an_element_that_comes_due_goes_off_at_the_resumption() -> None:
    play = Play(workflow({**MAP, "retry": {"max_attempts": 2, "initial_delay": "10s"}}))
    play.carry_out(play.start([1]))
    play.begin("m.0")
    play.fail("m.0")
    play.pause_run()

    assert [] == play.fire("retry.m.0", "m.0", 2, after=10)
    assert [("m.0", 2)] == dispatched(play.carry_out(play.unpause_run()))


CHILD = {"id": "c", "type": "sub_workflow", "config": {"workflow": "other"}}


def test_a_child_runs_on_unless_it_is_paused_with_its_parent() -> None:
    play = Play(workflow(CHILD))
    play.carry_out(play.start())

    assert [] == play.pause_run()
    assert [PauseChild("c", 1, pause=True, seq=play.run.seq + 1)] == play.pause_run(children=True)
    assert [] == play.unpause_run()
    assert [PauseChild("c", 1, pause=False, seq=play.run.seq + 1)] == play.unpause_run(children=True)


def test_a_child_whose_start_is_on_its_way_is_paused_when_it_has_begun() -> None:
    play = Play(workflow(CHILD))
    [start] = only(StartChild, [*play.carry_out(play.start())])
    play = Play(workflow(CHILD))
    play.start()
    play.pause_run(children=True)

    assert [PauseChild("c", 1, pause=True, seq=play.run.seq + 1)] == play.tell(child_started(play.run, start))


def test_a_task_that_a_worker_had_taken_may_have_been_withdrawn_and_is_looked_for() -> None:
    play = started(workflow(step("a")))
    play.pause_run()
    play.begin("a")

    [again] = only(DispatchTask, play.unpause_run())

    assert (again.step_id, again.again) == ("a", 1)
    assert still_due(play.run, again)
    assert play.step("a").status is StepStatus.RUNNING


@pytest.mark.parametrize("fields", [{}, {"with": {"x": "${{ input }}"}}], ids=["plain", "with"])
def test_a_task_that_is_to_be_queued_again_is_so_in_the_next_pause_too_if_a_worker_has_begun(
    fields: dict[str, object],
) -> None:
    play = Play(workflow(step("a", **fields)))
    play.carry_out(play.start())
    play.pause_run()
    ordered = play.unpause_run()  # on its way
    play.begin("a")
    play.pause_run()

    assert [True] == [still_due(play.run, command) for command in ordered]
    assert [("a", 1)] == dispatched(play.carry_out(ordered))


def test_a_task_that_a_worker_had_taken_is_not_ordered_again_once_the_run_undoes_its_steps() -> None:
    play = started(workflow(step("a", compensate={"task": "UNDO"}), step("b")))
    play.pause_run()
    play.begin("a")
    play.refuse()
    assert (RunStatus.COMPENSATING, StepStatus.RUNNING) == (play.run.status, play.step("a").status)

    assert [] == play.unpause_run()
    assert [("a.compensate", 1)] == dispatched(play.carry_out(play.complete("a")))


def test_a_task_that_was_lost_meanwhile_goes_to_another_worker_at_the_resumption() -> None:
    play = started(workflow(step("a"), step("b", "a"), sticky="soft"))
    play.begin("a", worker="one")
    play.complete("a", 1, worker="one")
    play.begin("b", worker="one")
    play.pause_run()

    assert [] == play.fire("lost.b", "b", 1)
    [again] = only(DispatchTask, play.unpause_run())
    assert (again.step_id, again.worker) == ("b", None)


def test_the_wait_of_a_later_attempt_for_its_worker_is_another_one_than_that_which_was_over() -> None:
    play = started(workflow(step("a"), step("b", "a", retry={"max_attempts": 1}), sticky="soft"))
    play.begin("a", worker="one")
    play.complete("a", 1, worker="one")
    play.pause_run()
    assert [] == play.fire("sticky.b", "b", 1)
    play.begin("b", worker="one")

    ordered = play.fail("b")

    [timer] = only(SetTimer, ordered)
    assert ("sticky.b", 2) == (timer.timer, timer.attempt)
    assert [timer] == live_timers(play.run)
    assert [] == [command for command in ordered if not still_due(play.run, command)]


def test_what_was_ordered_before_a_pause_is_not_due_in_it() -> None:
    play = Play(workflow(step("a"), approval("ok"), CHILD))
    ordered = [*play.start()]
    ordered += [StartChild("c", 1, "other", None, raw(1), EPOCH)]
    play.pause_run()

    assert [] == [command for command in ordered if still_due(play.run, command) and not isinstance(command, BeginStep)]


def test_a_paused_run_survives_its_snapshot_and_only_versions_that_know_of_pauses_read_it() -> None:
    play = started(workflow(approval("ok"), step("a")))
    play.ask("ok")
    plain = to_snapshot(play.run)
    play.pause_run()
    play.grant("ok", comment="yes")

    body = to_snapshot(play.run)

    assert from_snapshot(body) == play.run
    assert body.startswith(b'{"v":2,')
    assert not plain.startswith(b'{"v"')
    play.unpause_run()
    assert to_snapshot(play.run).startswith(b'{"v":2,')


def test_commands_that_end_things_are_not_held_back() -> None:
    play = Play(workflow({**CHILD, "timeout": "10s"}))
    play.carry_out(play.start())
    play.pause_run()

    play.fire("timeout.c", "c", 1, after=10)
    assert [CancelChild] == [type(command) for command in only(CancelChild, play.settle())]
    assert play.run.status is RunStatus.FAILED
