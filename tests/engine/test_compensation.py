"""Undoing what a run has done, when it fails or is cancelled with `compensate`."""

from __future__ import annotations

import orjson
import pytest

from penstock.config.limits import COMPENSATION_WAIT_S, OUTPUT_INLINE_BYTES_MAX
from penstock.engine.definition.definitions import from_json, to_json
from penstock.engine.run.advance import fold, still_due
from penstock.engine.run.commands import (
    BeginStep,
    CancelChild,
    Command,
    DeadLetterTask,
    SetTimer,
    StartFailureRun,
    WithdrawTask,
    WithdrawTimer,
)
from penstock.engine.run.compiling import compile_workflow
from penstock.engine.run.events import (
    Cancellation,
    ChildEnd,
    ChildEnded,
    Compensating,
    ParentRef,
    RunFailure,
    WorkflowCancelled,
    WorkflowCompensating,
    WorkflowFailed,
)
from penstock.engine.run.execution.children import child_run_id
from penstock.engine.run.state import RunStatus, StepStatus, from_snapshot, to_snapshot
from penstock.engine.validation import parse, problems
from tests.engine.build import (
    RUN_ID,
    Play,
    appended,
    approval,
    dispatched,
    inputs,
    loop,
    only,
    raw,
    started,
    step,
    workflow,
)


def undoable(step_id: str, *depends_on: str, **fields: object) -> dict[str, object]:
    return step(step_id, *depends_on, **{"compensate": {"task": f"UNDO_{step_id.upper()}"}, **fields})


ORDER = workflow(undoable("charge"), undoable("reserve", "charge"), step("ship", "reserve"))


def compensating(play: Play) -> list[tuple[str, int]]:
    """What is being undone now."""
    return [
        (step_id, found.attempts)
        for step_id, found in play.run.steps.items()
        if step_id.endswith(".compensate") and found.status in (StepStatus.QUEUED, StepStatus.RUNNING)
    ]


def undo_all(play: Play, commands: list[Command], output: object = None) -> list[str]:
    """Let every compensation complete, and return their ids in the order in which they were ordered."""
    order: list[str] = []
    ahead = play.carry_out(commands)
    while tasks := [step_id for step_id, _ in dispatched(ahead) if step_id.endswith(".compensate")]:
        order += tasks
        ahead = [command for task in tasks for command in play.carry_out(play.complete(task, output))]
    return order


def test_what_has_completed_is_undone_in_reverse_order_and_then_the_run_fails() -> None:
    play = started(ORDER, {"n": 1})
    play.complete("charge", {"id": "c1"})
    play.complete("reserve", {"id": "r1"})

    commands = play.carry_out(play.fail("ship", error="no lorry"))

    assert play.run.status is RunStatus.COMPENSATING
    assert dispatched(commands) == [("reserve.compensate", 1)]
    assert inputs(commands) == {"reserve.compensate": {"input": {"id": "c1"}, "output": {"id": "r1"}}}
    commands = play.carry_out(play.complete("reserve.compensate"))
    assert inputs(commands) == {"charge.compensate": {"input": {"n": 1}, "output": {"id": "c1"}}}
    play.carry_out(play.complete("charge.compensate"))
    assert play.run.status is RunStatus.FAILED
    assert play.run.error == 'step "ship" failed: no lorry'
    assert play.run.compensation is not None
    assert play.run.compensation.outcome == "completed"
    assert play.statuses() == {
        "charge": "completed",
        "reserve": "completed",
        "ship": "failed",
        "reserve.compensate": "completed",
        "charge.compensate": "completed",
    }
    assert play.step("charge.compensate").handles == "charge"


def test_the_log_says_what_is_undone_and_how_that_ended() -> None:
    play = started(ORDER)
    play.complete("charge")
    play.complete("reserve")
    undo_all(play, play.fail("ship", error="no lorry"))

    events = [record.event for record in play.log]
    [begun] = [event for event in events if isinstance(event, WorkflowCompensating)]
    [ended] = [event for event in events if isinstance(event, WorkflowFailed)]
    error = 'step "ship" failed: no lorry'
    assert (begun.payload, begun.v) == (Compensating(error, ("reserve", "charge")), 2)
    assert ended.payload == RunFailure(error, "ship", compensation="completed")


def test_a_compensation_that_fails_for_good_is_a_dead_letter_and_the_others_go_on() -> None:
    play = started(ORDER)
    play.complete("charge", 1)
    play.complete("reserve", 2)
    play.carry_out(play.fail("ship"))

    commands = play.carry_out(play.fail("reserve.compensate", error="no stock"))

    [letter] = only(DeadLetterTask, commands)
    assert (letter.step_id, letter.task, letter.error) == ("reserve.compensate", "UNDO_RESERVE", "no stock")
    assert dispatched(commands) == [("charge.compensate", 1)]
    play.carry_out(play.complete("charge.compensate"))
    assert play.run.status is RunStatus.FAILED
    assert play.run.compensation is not None
    assert play.run.compensation.outcome == "failed"
    assert play.run.error == 'step "ship" failed: boom'


def test_a_compensation_has_retries_a_timeout_and_a_group_of_its_own() -> None:
    undo = {
        "task": "UNDO",
        "retry": {"max_attempts": 1, "initial_delay": "10s"},
        "timeout": "5s",
        "worker_group": "u",
        "with": {"id": "${{ default.output.id }}", "of": "${{ input }}"},
    }
    play = started(workflow(undoable("a", timeout="1h", worker_group="g", compensate=undo), step("b", "a")), "o")
    play.complete("a", {"id": 7})

    [task] = [one for one in play.carry_out(play.fail("b")) if dispatched([one])]
    [timer] = play.begin("a.compensate")

    assert (task.task, task.group, inputs([task])) == ("UNDO", "u", {"a.compensate": {"id": 7, "of": "o"}})  # type: ignore[union-attr]
    assert (timer.timer, timer.due) == ("timeout.a.compensate", play.now + 5)  # type: ignore[union-attr]
    late = play.carry_out(play.fire("timeout.a.compensate", "a.compensate", 1, after=6))
    assert [one.timer for one in only(SetTimer, late)] == ["retry.a.compensate"]
    again = play.carry_out(play.fire("retry.a.compensate", "a.compensate", 2, after=11))
    assert dispatched(again) == [("a.compensate", 2)]
    play.carry_out(play.complete("a.compensate", attempt=2))
    assert play.run.status is RunStatus.FAILED


def test_without_these_it_has_the_default_retry_and_the_timeout_and_group_of_the_step() -> None:
    definition = workflow(undoable("a", timeout="1h", worker_group="g"), default_retry={"max_attempts": 3})
    plan = definition.plan_of("a.compensate")

    assert plan is not None
    assert (plan.timeout_s, plan.group, plan.retry.retries, plan.handles) == (3600, "g", 3, "a")


def test_skipped_failed_and_recovered_steps_are_not_undone() -> None:
    mend = {"task": "MEND"}
    play = started(workflow(undoable("a", when="false"), undoable("b", on_failure=mend), undoable("c"), step("d", "c")))
    play.carry_out(play.settle())
    play.carry_out([BeginStep("a", 1, 0, play.now)])
    play.carry_out(play.fail("b"))
    play.complete("b.on_failure")
    play.complete("c")

    order = undo_all(play, play.fail("d"))

    assert (play.statuses()["a"], play.statuses()["b"]) == ("skipped", "recovered")
    assert order == ["c.compensate"]


def test_a_run_that_has_done_nothing_fails_as_one_without_compensations() -> None:
    plain = started(workflow(step("a"), step("b", "a")))
    play = started(workflow(undoable("a"), step("b", "a")))

    assert appended(play.fail("a")) == appended(plain.fail("a")) == ["workflow.failed"]
    play.settle()
    assert (play.run.status, play.run.compensation) == (RunStatus.FAILED, None)
    assert play.resume() != []  # nothing was undone, so it can go on


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


def test_a_cancelled_run_is_undone_only_if_that_was_asked_for() -> None:
    play = started(ORDER)
    play.complete("charge")
    play.cancel("enough")
    assert (play.run.status, play.run.compensation) == (RunStatus.CANCELLED, None)

    play = started(ORDER)
    play.complete("charge")
    order = undo_all(play, play.cancel("enough", compensate=True))

    assert order == ["charge.compensate"]
    assert (play.run.status, play.run.error) == (RunStatus.CANCELLED, "enough")
    assert play.run.compensation is not None
    assert play.run.compensation.outcome == "completed"
    last = play.log[-1].event
    assert isinstance(last, WorkflowCancelled)
    assert last.payload == Cancellation("enough", compensation="completed")


def test_a_cancelled_run_without_anything_to_undo_ends_at_once() -> None:
    play = started(ORDER)
    play.cancel(compensate=True)

    assert (play.run.status, play.run.compensation) == (RunStatus.CANCELLED, None)


def test_nothing_from_outside_ends_a_run_that_is_being_undone() -> None:
    play = started(ORDER)
    play.complete("charge")
    play.carry_out(play.fail("reserve"))
    before = play.run

    play.cancel("enough")
    play.cancel("enough", compensate=True)
    play.refuse()
    payload = RunFailure("it is over", compensation="completed")
    play.tell(WorkflowFailed(run_id=RUN_ID, payload=payload))
    play.tell(WorkflowCancelled(run_id=RUN_ID, payload=Cancellation(compensation="completed")))
    play.resume()
    play.fire("workflow")

    assert play.run == before
    play.carry_out(play.complete("charge.compensate"))
    assert play.run.status is RunStatus.FAILED


def test_a_run_that_was_undone_is_not_resumed() -> None:
    play = started(ORDER)
    play.complete("charge")
    undo_all(play, play.fail("reserve"))
    before = play.run

    assert play.resume() == []
    assert play.run == before


def test_the_shell_that_refuses_a_command_makes_the_run_undo_its_steps() -> None:
    play = started(ORDER)
    play.complete("charge")

    order = undo_all(play, play.refuse("the run cannot go on"))

    assert order == ["charge.compensate"]
    assert (play.run.status, play.run.error) == (RunStatus.FAILED, "the run cannot go on")


def test_a_run_out_of_time_is_undone_without_a_bound() -> None:
    play = started(workflow(undoable("a"), step("b", "a"), timeout="60s"))
    play.complete("a")

    commands = play.carry_out(play.fire("workflow", after=60))

    assert dispatched(commands) == [("a.compensate", 1)]
    assert play.run.error == "workflow timeout exceeded (1m)"
    assert (play.run.due, play.fire("workflow", after=100)) == (None, [])
    play.carry_out(play.complete("a.compensate"))
    assert play.run.status is RunStatus.FAILED


def test_the_timeout_of_the_run_is_withdrawn_when_a_step_fails() -> None:
    play = started(workflow(undoable("a"), step("b", "a"), timeout="60s"))
    play.complete("a")

    assert [one.timer for one in only(WithdrawTimer, play.fail("b"))] == ["workflow"]


def test_every_completed_element_of_a_map_is_undone_also_when_the_map_failed() -> None:
    play = Play(workflow(undoable("m", type="map"), step("b", "m")))
    play.carry_out(play.start([5, 6, 7, 8]))
    play.begin("m.3")
    play.complete("m.2", "two")
    play.complete("m.0", "zero")

    commands = play.carry_out(play.fail("m.1", error="bad"))

    assert dispatched(commands) == []  # m.3 is running
    assert play.step("m").items is not None
    commands = play.carry_out(play.complete("m.3", "three"))
    assert inputs(commands) == {"m.3.compensate": {"input": 8, "output": "three"}}
    assert undo_all(play, play.complete("m.3.compensate")) == ["m.0.compensate", "m.2.compensate"]
    assert (play.run.status, play.run.error) == (RunStatus.FAILED, 'step "m" failed: element 1 failed: bad')
    assert {step_id: found.handles for step_id, found in play.run.steps.items() if found.handles} == {
        "m.3.compensate": "m.3",
        "m.0.compensate": "m.0",
        "m.2.compensate": "m.2",
    }
    [begun] = [record.event for record in play.log if isinstance(record.event, WorkflowCompensating)]
    assert begun.payload.steps == ("m",)


def test_elements_of_a_map_that_runs_when_another_step_fails() -> None:
    play = Play(workflow(undoable("m", type="map", config={"max_concurrency": 2}), step("b")))
    play.carry_out(play.start([5, 6, 7]))
    play.complete("m.0", "zero")
    play.begin("m.1")

    commands = play.carry_out(play.fail("b"))

    assert [(one.timer, one.due) for one in only(SetTimer, commands)] == [
        ("timeout.m.1", play.now + COMPENSATION_WAIT_S)
    ]
    assert play.step("m").status is StepStatus.RUNNING
    commands = play.carry_out(play.fire("timeout.m.1", "m.1", 1, after=COMPENSATION_WAIT_S))
    assert play.step("m").status is StepStatus.CANCELLED
    assert dispatched(commands) == [("m.0.compensate", 1)]
    assert undo_all(play, play.complete("m.0.compensate")) == []
    assert play.run.status is RunStatus.FAILED


def test_an_element_that_ends_while_the_handler_of_its_map_runs_is_undone_if_that_fails() -> None:
    play = Play(workflow(undoable("m", type="map", on_failure={"task": "MEND"})))
    play.carry_out(play.start([5, 6, 7]))
    play.begin("m.1")
    play.begin("m.2")
    play.carry_out(play.fail("m.0"))
    assert play.complete("m.1", "one") == play.fail("m.2") == []

    order = undo_all(play, play.fail("m.on_failure"))

    assert order == ["m.1.compensate"]
    assert play.run.status is RunStatus.FAILED


def test_steps_of_a_planner_are_undone_after_the_planner_and_in_their_order() -> None:
    play = started(workflow(undoable("p", type="planner"), step("b", "p")), 1)
    plan = {"steps": [undoable("x"), undoable("y", "x")]}
    play.carry_out(play.complete("p", plan))
    play.complete("p.x", "X")
    play.complete("p.y", "Y")

    order = undo_all(play, play.fail("b"))

    assert order == ["p.compensate", "p.y.compensate", "p.x.compensate"]
    assert play.run.status is RunStatus.FAILED


def test_a_planner_does_not_expand_while_its_run_is_undone() -> None:
    play = started(workflow(undoable("a"), step("p", type="planner"), step("b", "a")))
    play.complete("a")
    play.begin("p")
    play.carry_out(play.fail("b"))

    assert play.complete("p", {"steps": [step("x")]}) == []
    assert (play.step("p").status, dict(play.run.fragments)) == (StepStatus.CANCELLED, {})


def child(step_id: str, *depends_on: str, **fields: object) -> dict[str, object]:
    return {
        "id": step_id,
        "type": "sub_workflow",
        "depends_on": list(depends_on),
        "config": {"workflow": "child"},
        **fields,
    }


def ended(play: Play, step_id: str, status: str, attempt: int = 1) -> list[Command]:
    end = ChildEnd(child_run_id(RUN_ID, step_id, attempt), status, output=raw("done"), error="oh")
    return play.tell(ChildEnded(run_id=RUN_ID, step_id=step_id, attempt_number=attempt, payload=end))


@pytest.mark.parametrize("status", ["cancelled", "failed"])
def test_children_are_cancelled_with_compensation_and_waited_for(status: str) -> None:
    play = Play(workflow(undoable("a"), child("c"), step("b", "a")))
    play.carry_out(play.start())
    play.complete("a")

    commands = play.carry_out(play.fail("b"))

    [cancel] = only(CancelChild, commands)
    assert (cancel.step_id, cancel.compensate, dispatched(commands)) == ("c", True, [])
    assert dispatched(play.carry_out(ended(play, "c", status))) == [("a.compensate", 1)]
    assert play.step("c").status is StepStatus.CANCELLED
    assert status in (play.step("c").error or "")


def test_a_child_that_had_completed_is_undone_by_the_step_that_started_it() -> None:
    play = Play(workflow(undoable("a"), child("c", compensate={"task": "UNDO"}), step("b", "a")))
    play.carry_out(play.start())
    play.complete("a")
    play.carry_out(play.fail("b"))

    assert undo_all(play, ended(play, "c", "completed")) == ["c.compensate", "a.compensate"]


def test_children_of_a_run_that_is_just_cancelled_are_just_cancelled() -> None:
    play = Play(workflow(child("c")))
    play.carry_out(play.start())

    assert [one.compensate for one in only(CancelChild, play.cancel())] == [False]
    play = Play(workflow(child("c"), step("b")))
    play.carry_out(play.start())
    assert [one.compensate for one in only(CancelChild, play.carry_out(play.fail("b")))] == [True]


def test_the_parent_learns_of_the_end_when_all_is_undone() -> None:
    play = Play(ORDER)

    play.parent = ParentRef("0" * 32, "s")
    play.start()
    play.complete("charge")
    commands = play.carry_out(play.fail("reserve"))
    assert appended(commands) == []

    commands = play.carry_out(play.complete("charge.compensate"))

    [told] = [one.event for one in commands if appended([one]) == ["child.ended"]]  # type: ignore[union-attr]
    assert told.payload.status == "failed"  # type: ignore[union-attr]


def test_the_run_that_follows_from_a_failure_starts_after_the_compensation() -> None:
    play = started(workflow(undoable("a"), step("b", "a"), on_failure={"workflow": "tell"}))
    play.complete("a")
    assert only(StartFailureRun, play.carry_out(play.fail("b", error="bad"))) == []

    [follows] = only(StartFailureRun, play.carry_out(play.complete("a.compensate")))

    assert (follows.error, follows.failed_step, follows.resumes) == ('step "b" failed: bad', "b", 0)


def test_a_loop_is_undone_with_its_first_input_and_its_last_output() -> None:
    play = started(workflow(loop("l", config={"max_iterations": 3}, compensate={"task": "UNDO"}), step("b", "l")), 1)
    play.go_on("l", 2)
    play.complete("l", 3, iteration=1)

    commands = play.carry_out(play.fail("b"))

    assert inputs(commands) == {"l.compensate": {"input": 1, "output": 3}}


def test_large_payloads_are_read_from_the_log() -> None:
    big = "x" * (OUTPUT_INLINE_BYTES_MAX + 1)
    play = started(workflow(undoable("a"), step("b", "a")), big)
    play.complete("a", big)

    assert inputs(play.carry_out(play.fail("b"))) == {"a.compensate": {"input": big, "output": big}}


def test_a_template_that_fails_makes_the_compensation_fail_and_the_others_go_on() -> None:
    bad = {"task": "UNDO", "with": "${{ default.output.none }}"}
    play = started(workflow(undoable("z"), undoable("a", "z", compensate=bad), step("b", "a")))
    play.complete("z")
    play.complete("a", {})

    commands = play.carry_out(play.fail("b"))

    assert dispatched(commands) == [("z.compensate", 1)]
    assert play.step("a.compensate").status is StepStatus.FAILED
    assert "default.output.none" in (play.step("a.compensate").error or "")


def test_a_fold_of_the_log_gives_the_same_and_a_snapshot_keeps_it() -> None:
    play = Play(workflow(undoable("a"), undoable("m", "a", type="map"), step("b", "m")))
    play.carry_out(play.start([1, 2]))
    play.complete("a", [1, 2])
    play.carry_out([BeginStep("m", 1, 0, play.now)])
    play.complete("m.1", 1)
    play.begin("m.0")
    play.carry_out(play.cancel(compensate=True))
    for _ in range(4):
        assert fold(play.workflow, None, play.log) == play.run
        assert from_snapshot(to_snapshot(play.run)) == play.run
        for step_id, _ in compensating(play) or [("m.0", 1)]:
            play.carry_out(play.complete(step_id))
    assert play.run.status is RunStatus.CANCELLED


def test_a_run_without_compensations_has_nothing_of_this_in_its_snapshot() -> None:
    play = started(workflow(step("a"), step("b", "a")))
    play.complete("a")
    play.carry_out(play.fail("b"))

    assert b"compensat" not in to_snapshot(play.run)
    assert b"completed_seq" not in to_snapshot(play.run)


def test_every_problem_of_a_compensation_names_step_and_field() -> None:
    bad = {"task": 5, "timeout": "soon", "retry": {"max_attempts": -1}, "with": "${{ steps.b.output }}", "more": 1}
    found = problems({"name": "w", "steps": [undoable("a", compensate=bad), step("b", "a")]})

    assert len(found) == 5
    for field in ("task", "timeout", "retry", "with", "more"):
        assert any(problem.startswith('step "a": compensate') and field in problem for problem in found), (field, found)


def test_no_step_has_the_id_of_a_compensation() -> None:
    many = undoable("m", type="map")
    assert problems({"name": "w", "steps": [undoable("a"), step("a.compensate")]}) == [
        'step "a.compensate" has the id of the compensate of step "a"'
    ]
    assert problems({"name": "w", "steps": [many, step("m.7.compensate")]}) == [
        'step "m.7.compensate" has the id of the compensate of an element of the map "m"'
    ]
    free = [step("a"), step("a.compensate"), many, step("m.x.compensate"), step("m.07.compensate")]
    assert problems({"name": "w", "steps": free}) == []


def test_a_definition_with_a_compensation_is_stored_so_that_an_older_version_does_not_touch_it() -> None:
    undo = {"task": "UNDO", "with": {"n": "${{ default.output }}"}}
    body = to_json(parse({"name": "w", "steps": [undoable("a", compensate=undo)]}))

    document = orjson.loads(body)
    assert (document["v"], document["steps"][0]["compensate"]) == (2, undo)
    plan = compile_workflow(from_json(body), "d").plan_of("a.compensate")
    assert plan is not None
    assert list(plan.expressions) == ["with"]


def test_allowed_tasks_of_a_planner_bound_compensations() -> None:
    play = started(workflow(step("p", type="planner", config={"allowed_tasks": ["X"]})))
    play.carry_out(play.complete("p", {"steps": [undoable("x")]}))

    assert 'task "UNDO_X" is none of allowed_tasks' in (play.run.error or "")


def test_a_planned_step_does_not_take_the_id_of_a_handler_of_its_planner() -> None:
    play = started(workflow(undoable("p", type="planner", on_failure={"task": "MEND"})))
    play.carry_out(play.complete("p", {"steps": [step("compensate"), step("on_failure")]}))

    error = play.step("p").error or ""
    assert 'step "compensate" has the id of the compensate of the planner "p"' in error
    assert 'step "on_failure" has the id of the on_failure of the planner "p"' in error
