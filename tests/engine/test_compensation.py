"""Undoing what a run has done, when it fails or is cancelled with `compensate`."""

from __future__ import annotations

import orjson

from penstock.engine.definition.definitions import from_json, to_json
from penstock.engine.run.advance import fold
from penstock.engine.run.commands import (
    BeginStep,
    DeadLetterTask,
    SetTimer,
    StartFailureRun,
    WithdrawTimer,
)
from penstock.engine.run.compiling import compile_workflow
from penstock.engine.run.event_payloads import Cancellation, Compensating, ParentRef, RunFailure
from penstock.engine.run.events import WorkflowCancelled, WorkflowCompensating, WorkflowFailed
from penstock.engine.run.state import RunStatus, from_snapshot, to_snapshot
from penstock.engine.validation import parse, problems
from tests.engine.build import (
    RUN_ID,
    Play,
    appended,
    dispatched,
    inputs,
    only,
    started,
    step,
    workflow,
)
from tests.engine.undoing import ORDER, compensating, undo_all, undoable


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
