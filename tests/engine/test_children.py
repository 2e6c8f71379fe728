"""Steps that start a child: what the engine makes of it."""

from __future__ import annotations

import pytest

from penstock.engine.run.commands import AppendEvent, CancelChild, SetTimer, StartChild, WithdrawTimer
from penstock.engine.run.events import ChildEnd, ChildEnded, ParentRef
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
