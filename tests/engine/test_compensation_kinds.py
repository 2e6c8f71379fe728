"""Undoing steps of each kind: maps, planners, children, loops."""

from __future__ import annotations

import pytest

from penstock.config.limits import COMPENSATION_WAIT_S, OUTPUT_INLINE_BYTES_MAX
from penstock.engine.run.commands import (
    CancelChild,
    Command,
    SetTimer,
)
from penstock.engine.run.event_payloads import ChildEnd, Override
from penstock.engine.run.events import ChildEnded, StepOverridden, WorkflowCompensating
from penstock.engine.run.execution.children import child_run_id
from penstock.engine.run.state import RunStatus, StepStatus
from tests.engine.build import (
    RUN_ID,
    Play,
    dispatched,
    inputs,
    loop,
    only,
    raw,
    started,
    step,
    workflow,
)
from tests.engine.undoing import child, undo_all, undoable


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


def test_an_element_that_ends_after_its_map_was_completed_by_hand_is_not_undone() -> None:
    play = Play(workflow(undoable("a"), undoable("m", type="map"), step("b", "a")))
    play.carry_out(play.start([5, 6]))
    play.complete("a")
    play.begin("m.0")
    play.tell(StepOverridden(run_id=RUN_ID, step_id="m", payload=Override(raw("given"), "ada")))
    play.carry_out(play.fail("b"))
    before = play.run

    assert [] == play.complete("m.0", "late")
    assert before == play.run
    assert [] == undo_all(play, play.complete("a.compensate"))


def test_an_element_that_ends_after_its_map_has_recovered_is_not_undone() -> None:
    play = Play(workflow(undoable("a"), undoable("m", type="map", on_failure={"task": "MEND"}), step("b", "a")))
    play.carry_out(play.start([5, 6]))
    play.complete("a")
    play.begin("m.0")
    play.carry_out(play.fail("m.1"))
    play.carry_out(play.complete("m.on_failure"))
    assert play.step("m").status is StepStatus.RECOVERED
    play.carry_out(play.fail("b"))
    before = play.run

    assert [] == play.complete("m.0", "late")
    assert before == play.run
    assert [] == undo_all(play, play.complete("a.compensate"))


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


def test_a_planner_that_completes_with_an_element_of_a_map_is_undone_before_it() -> None:
    play = started(workflow(undoable("p", type="planner"), step("b", "p")), [1])
    play.carry_out(play.complete("p", {"steps": [undoable("m", type="map")]}))
    play.complete("p.m.0", "X")

    order = undo_all(play, play.fail("b"))

    assert order == ["p.compensate", "p.m.0.compensate"]


def test_a_map_that_has_failed_and_cannot_be_undone_stays_as_it_is() -> None:
    children = child("c", type="map", config={"items": [1, 2], "workflow": "w"})
    play = Play(workflow(undoable("a"), children))
    play.carry_out(play.start())
    play.complete("a")
    ended(play, "c.1", "cancelled")
    failed = play.step("c")
    assert (play.run.status, failed.status) == (RunStatus.COMPENSATING, StepStatus.FAILED)

    assert ended(play, "c.0", "completed") == []
    assert play.step("c") == failed
