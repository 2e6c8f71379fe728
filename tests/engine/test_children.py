"""Steps that start a child: what the engine makes of it."""

from __future__ import annotations

import pytest

from penstock.engine.run.commands import (
    AppendEvent,
    CancelChild,
    DeadLetterTask,
    DispatchTask,
    RemoveDeadLetters,
    SetTimer,
    StartChild,
    WithdrawTimer,
)
from penstock.engine.run.event_payloads import ChildEnd, ParentRef
from penstock.engine.run.events import ChildEnded
from penstock.engine.run.execution.children import child_run_id
from penstock.engine.run.state import StepStatus
from penstock.engine.validation import problems
from tests.engine.build import EPOCH, RUN_ID, Play, appended, dispatched, inputs, only, raw, step, value, workflow


def child(step_id: str, *depends_on: str, **fields: object) -> dict[str, object]:
    config = {"workflow": "c", **fields.pop("config", {})}  # type: ignore[dict-item]
    return {"id": step_id, "type": "sub_workflow", "depends_on": list(depends_on), "config": config, **fields}


def ended(play: Play, step_id: str, attempt: int = 1, status: str = "completed", **fields: object) -> list[object]:
    """The child of this attempt says how it has ended."""
    found = child_run_id(play.run_id, step_id, attempt)
    payload = ChildEnd(**{"run_id": found, "status": status, **fields})  # type: ignore[arg-type]
    event = ChildEnded(run_id=play.run_id, step_id=step_id, attempt_number=attempt, payload=payload)
    return [*play.tell(event)]


def begun(play: Play, given: object = None) -> list[object]:
    return [*play.carry_out(play.start(given))]


def test_a_step_starts_a_child_and_has_its_output() -> None:
    play = Play(workflow(child("a"), step("b", "a")))

    [start] = begun(play, {"n": 1})

    assert isinstance(start, StartChild)
    assert (start.workflow, start.version, value(start.input)) == ("c", None, {"n": 1})
    found = child_run_id(RUN_ID, "a", 1)
    assert (play.step("a").status, play.step("a").child_run_id) == (StepStatus.RUNNING, found)
    commands = ended(play, "a", output=raw({"made": True}))
    assert inputs(commands) == {"b": {"made": True}}  # type: ignore[arg-type]
    assert ended(play, "a", output=raw(2)) == []


def test_its_input_and_version_are_given() -> None:
    play = Play(workflow(child("a", config={"version": "7"}, **{"with": {"x": "${{ input.n + 1 }}"}})))

    [start] = begun(play, {"n": 1})

    assert isinstance(start, StartChild)
    assert (start.version, value(start.input)) == ("7", {"x": 2})


def test_the_end_of_another_child_is_ignored() -> None:
    play = Play(workflow(child("a", retries=1)))
    begun(play)

    assert ended(play, "a", run_id="f" * 32, output=raw(1)) == []
    assert ended(play, "a", attempt=2, output=raw(1)) == []
    assert play.step("a").status is StepStatus.RUNNING


def test_a_child_may_end_before_its_start_is_in_the_log_of_its_parent() -> None:
    play = Play(workflow(child("a")))
    play.start()

    assert appended(ended(play, "a", output=raw(1))) == ["workflow.completed"]  # type: ignore[arg-type]


def test_a_failed_child_is_tried_again_by_another() -> None:
    play = Play(workflow(child("a", retry={"max_attempts": 1, "initial_delay": "0s"})))
    begun(play)

    [start] = play.carry_out(ended(play, "a", status="failed", error="boom"))  # type: ignore[arg-type]

    assert (start.attempt, play.step("a").child_run_id) == (2, child_run_id(RUN_ID, "a", 2))  # type: ignore[attr-defined]
    commands = play.carry_out(ended(play, "a", 2, status="failed", error="boom"))  # type: ignore[arg-type]
    assert [type(command).__name__ for command in commands] == ["DeadLetterTask"]
    assert play.run.error == f'step "a" failed: child run {child_run_id(RUN_ID, "a", 2)} failed: boom'


def test_a_retry_waits_for_its_timer() -> None:
    play = Play(workflow(child("a", retry={"max_attempts": 1, "initial_delay": "10s"})))
    begun(play)

    [timer] = ended(play, "a", status="failed", error="boom")

    assert isinstance(timer, SetTimer)
    assert play.cancel() == [WithdrawTimer("retry.a", timer.due)]  # no child waits with it
    play = Play(play.workflow)
    begun(play)
    ended(play, "a", status="failed", error="boom")
    assert [type(command) for command in play.carry_out(play.fire("retry.a", "a", 2, after=11))] == [StartChild]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"status": "cancelled", "error": "by me"}, "was cancelled: by me"),
        ({"output_bytes": 2_000_000}, "has 2000000 bytes"),
    ],
)
def test_what_no_other_child_can_mend_fails_for_good(fields: dict[str, object], problem: str) -> None:
    play = Play(workflow(child("a", retries=5)))
    begun(play)

    play.carry_out(ended(play, "a", **fields))  # type: ignore[arg-type]

    assert play.run.status == "failed"
    assert problem in (play.step("a").error or "")
    assert child_run_id(RUN_ID, "a", 1) in (play.step("a").error or "")


def test_a_timeout_cancels_the_child_and_is_tried_again() -> None:
    play = Play(workflow(child("a", timeout="10s", retry={"max_attempts": 1, "initial_delay": "0s"})))
    [_, timer] = begun(play)

    assert timer == SetTimer("timeout.a", EPOCH + 10, "a", 1)
    [cancel, start] = play.carry_out(play.fire("timeout.a", "a", 1, after=10))[:2]

    assert (type(cancel), cancel.attempt) == (CancelChild, 1)  # type: ignore[union-attr]
    assert (type(start), start.attempt) == (StartChild, 2)  # type: ignore[union-attr]


@pytest.mark.parametrize("end", ["cancel", "fail"])
def test_the_end_of_the_parent_cancels_the_child(end: str) -> None:
    play = Play(workflow(child("a"), step("b")))
    begun(play)

    commands = play.cancel() if end == "cancel" else play.carry_out(play.fail("b", kind="non_retriable"))

    assert [(command.step_id, command.attempt) for command in only(CancelChild, commands)] == [("a", 1)]
    assert ended(play, "a", output=raw(1)) == []


def test_a_child_that_may_not_have_started_is_cancelled_as_well() -> None:
    play = Play(workflow(child("a")))
    play.start()

    assert [type(command) for command in play.cancel()] == [CancelChild]


def test_a_step_that_detaches_is_done_at_once() -> None:
    play = Play(workflow(child("a", config={"detach": True}, timeout="1s"), step("b", "a")))

    commands = begun(play)

    assert inputs(commands) == {"b": {"run_id": child_run_id(RUN_ID, "a", 1)}}  # type: ignore[arg-type]
    assert only(SetTimer, commands) == []  # type: ignore[arg-type]
    assert only(CancelChild, play.cancel()) == []


def test_a_resumed_run_starts_another_child() -> None:
    play = Play(workflow(child("a"), step("b")))
    begun(play)
    play.carry_out(play.fail("b", kind="non_retriable"))

    commands = play.carry_out(play.resume(after=60))

    assert [command.attempt for command in only(StartChild, commands)] == [2]
    assert dispatched(commands) == [("b", 2)]


@pytest.mark.parametrize("detached", [False, True])
def test_a_run_with_a_parent_reports_its_end(detached: bool) -> None:
    play = Play(workflow(step("a")))
    play.parent = ParentRef("f" * 32, "m.7", 3, 7, detached=detached)
    play.start()

    commands = [*play.complete("a", {"x": 1}), *play.settle()]

    reports = [command.event for command in only(AppendEvent, commands) if isinstance(command.event, ChildEnded)]
    if detached:
        assert reports == []
        return
    [report] = reports
    assert (report.run_id, report.step_id, report.attempt_number, report.item) == ("f" * 32, "m.7", 3, 7)
    assert (report.payload.status, value(report.payload.output)) == ("completed", {"x": 1})


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"config": {}}, "config: workflow is missing"),
        ({"config": {"workflow": ".x"}}, "config: workflow"),
        ({"config": {"workflow": "c", "detach": 1}}, "config: detach must be true or false, not a number"),
        ({"config": {"workflow": "c", "version": 3}}, "config: version must be a string"),
        ({"config": {"workflow": "c"}, "task": "t"}, "task is not for a step of this type"),
        ({"config": {"workflow": "c"}, "worker_group": "g"}, "worker_group is not for a step of this type"),
    ],
)
def test_a_fault_in_it_is_named(fields: dict[str, object], problem: str) -> None:
    [found] = problems({"name": "w", "steps": [{"id": "a", "type": "sub_workflow", **fields}]})

    assert found.startswith('step "a": ')
    assert problem in found


def mapped(**config: object) -> dict[str, object]:
    return {"id": "m", "type": "map", "config": {"workflow": "c", **config}}


def item_ended(play: Play, number: int, attempt: int = 1, status: str = "completed", **fields: object) -> list[object]:
    return ended(play, f"m.{number}", attempt, status, **fields)


def test_a_map_over_a_workflow_has_a_child_for_each_element() -> None:
    play = Play(workflow(mapped(), step("b", "m")))

    starts = only(StartChild, begun(play, [10, 20]))  # type: ignore[arg-type]

    assert [(start.step_id, start.item, value(start.input)) for start in starts] == [("m.0", 0, 10), ("m.1", 1, 20)]
    item_ended(play, 1, output=raw("second"))
    commands = item_ended(play, 0, output=raw("first"))
    assert inputs(commands) == {"b": ["first", "second"]}  # type: ignore[arg-type]


def test_no_more_children_than_may_be_out_are_started() -> None:
    play = Play(workflow(mapped(max_concurrency=1)))

    [first] = only(StartChild, begun(play, [1, 2]))  # type: ignore[arg-type]
    [second] = only(StartChild, play.carry_out(item_ended(play, 0, output=raw(1))))  # type: ignore[arg-type]

    assert (first.step_id, second.step_id) == ("m.0", "m.1")


def test_large_outputs_of_children_are_read_from_the_log() -> None:
    play = Play(workflow(mapped(), step("b", "m")))
    begun(play, [1, 2])
    big = "x" * 5000

    item_ended(play, 0, output=raw(big))
    [task] = item_ended(play, 1, output=raw(2))

    assert value(play.whole(task.input)) == [big, 2]  # type: ignore[attr-defined]


def test_a_map_that_goes_on_says_which_children_failed() -> None:
    play = Play(workflow(mapped(on_item_failure="continue"), step("b", "m")))
    begun(play, [1, 2, 3])
    found = [child_run_id(RUN_ID, f"m.{number}", 1) for number in range(3)]

    play.carry_out(item_ended(play, 0, status="failed", error="boom"))  # type: ignore[arg-type]
    play.carry_out(item_ended(play, 1, output=raw(2)))  # type: ignore[arg-type]
    [task] = only(DispatchTask, item_ended(play, 2, status="cancelled"))  # type: ignore[arg-type]

    assert value(play.whole(task.input)) == [
        {"ok": False, "error": f"child run {found[0]} failed: boom"},
        {"ok": True, "output": 2},
        {"ok": False, "error": f"child run {found[2]} was cancelled"},
    ]


@pytest.mark.parametrize("end", ["cancel", "fail"])
def test_the_children_of_elements_that_are_out_are_cancelled(end: str) -> None:
    play = Play(workflow(mapped(max_concurrency=2), step("b")))
    begun(play, [1, 2, 3])
    item_ended(play, 0, output=raw(1))

    commands = play.cancel() if end == "cancel" else item_ended(play, 1, status="cancelled")

    cancelled = [(command.step_id, command.attempt) for command in only(CancelChild, commands)]
    assert cancelled == ([("m.1", 1), ("m.2", 1)] if end == "cancel" else [("m.2", 1)])


def test_a_failed_child_of_an_element_is_tried_again_by_another() -> None:
    play = Play(workflow({**mapped(), "retry": {"max_attempts": 1, "initial_delay": "0s"}}))
    begun(play, [1])

    [start] = only(StartChild, play.carry_out(item_ended(play, 0, status="failed", error="x")))  # type: ignore[arg-type]

    assert (start.step_id, start.attempt, value(start.input)) == ("m.0", 2, 1)


def test_a_resumed_run_removes_the_dead_letters_of_elements() -> None:
    play = Play(workflow(mapped()))
    begun(play, [1, 2])

    [dead_letter] = only(DeadLetterTask, item_ended(play, 0, status="failed", error="x"))  # type: ignore[arg-type]
    play.settle()
    removals = only(RemoveDeadLetters, play.resume(dead_letters=9))

    assert RemoveDeadLetters(dead_letter.step_id, dead_letter.task, 9) in removals
    assert RemoveDeadLetters("m.0", "sub_workflow", 9) in removals


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"config": {}}, "a map needs a task or config.workflow, and not both"),
        ({"config": {"workflow": "c"}, "task": "t"}, "a map needs a task or config.workflow, and not both"),
        ({"config": {"version": "2"}, "task": "t"}, "config: version is that of config.workflow, which is missing"),
        ({"config": {"workflow": "c"}, "worker_group": "g"}, "worker_group is for a task"),
    ],
)
def test_a_fault_in_a_map_over_a_workflow_is_named(fields: dict[str, object], problem: str) -> None:
    [found] = problems({"name": "w", "steps": [{"id": "m", "type": "map", **fields}]})

    assert found.startswith('step "m": ')
    assert problem in found
