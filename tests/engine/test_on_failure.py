"""What follows when a step has failed for good and has a handler: `on_failure`."""

from __future__ import annotations

import orjson
import pytest

from penstock.config.limits import ERROR_BYTES_MAX, OUTPUT_INLINE_BYTES_MAX
from penstock.engine.definition.definitions import from_json, to_json
from penstock.engine.run.advance import fold
from penstock.engine.run.commands import DeadLetterTask, RemoveDeadLetters, WithdrawTask, WithdrawTimer
from penstock.engine.run.compiling import compile_workflow
from penstock.engine.run.state import RunStatus, StepStatus, from_snapshot, to_snapshot
from penstock.engine.validation import parse, problems
from tests.engine.build import (
    Play,
    appended,
    approval,
    dispatched,
    inputs,
    loop,
    only,
    skip_if,
    started,
    step,
    value,
    workflow,
)

HANDLED = {"task": "MEND"}


def handled(step_id: str = "a", *depends_on: str, **fields: object) -> dict[str, object]:
    return step(step_id, *depends_on, **{"on_failure": HANDLED, **fields})


def test_the_handler_begins_with_what_has_become_of_the_step() -> None:
    play = started(workflow(handled(retries=1), step("b", "a")), {"n": 1})
    play.fail("a", error="early")
    play.fire("retry.a", "a", 2, after=9)

    commands = play.carry_out(play.fail("a", 2, error="no money"))

    assert dispatched(commands) == [("a.on_failure", 1)]
    about = {"step": "a", "error": "no money", "input": {"n": 1}, "attempts": 2}
    assert inputs(commands) == {"a.on_failure": about}
    assert [command.task for command in commands] == ["MEND"]
    assert only(DeadLetterTask, commands) == []
    assert play.statuses() == {"a": "failed", "b": "pending", "a.on_failure": "queued"}
    assert (play.run.status, play.step("a.on_failure").handles) == (RunStatus.RUNNING, "a")


def test_where_the_handler_completes_the_step_has_recovered_with_its_output() -> None:
    play = started(workflow(handled(), step("b", "a")))
    play.carry_out(play.fail("a"))
    play.begin("a.on_failure")

    commands = play.carry_out(play.complete("a.on_failure", {"mended": True}))

    assert inputs(commands) == {"b": {"mended": True}}
    assert play.statuses() == {"a": "recovered", "b": "queued", "a.on_failure": "completed"}
    assert play.step("a").error == "boom"
    play.carry_out(play.complete("b", 1))
    assert play.run.status is RunStatus.COMPLETED
    assert value(play.run.steps["b"].output) == 1


def test_a_run_whose_last_step_recovers_completes_with_the_output_of_the_handler() -> None:
    play = started(workflow(handled()))
    play.carry_out(play.fail("a"))

    [completion] = play.complete("a.on_failure", "mended")

    assert value(completion.event.payload.output) == "mended"  # type: ignore[union-attr]


def test_a_step_recovers_with_null_where_the_handler_has_no_output() -> None:
    play = started(workflow(handled(), step("b", "a")))
    play.carry_out(play.fail("a"))

    assert inputs(play.complete("a.on_failure")) == {"b": None}


def test_a_large_output_of_a_handler_stays_in_the_history_and_still_skips() -> None:
    later = step("b", "a", skip_if=skip_if("a", "go", "==", False))
    play = started(workflow(handled(), later))
    play.carry_out(play.fail("a"))

    commands = play.complete("a.on_failure", {"go": False, "more": "x" * OUTPUT_INLINE_BYTES_MAX})

    assert play.step("a").output_at is not None
    assert appended(commands) == ["step.skipped"]


def test_with_says_what_the_handler_receives() -> None:
    first = step("first")
    handler = {"task": "MEND", "with": {"why": "${{ default.error }}", "n": "${{ steps.first.output.n + input.m }}"}}
    play = started(workflow(first, handled("a", "first", on_failure=handler)), {"m": 2})
    play.complete("first", {"n": 1})

    commands = play.carry_out(play.fail("a", error="gone"))

    assert inputs(commands) == {"a.on_failure": {"why": "gone", "n": 3}}


def test_the_input_that_it_receives_is_what_the_step_was_given() -> None:
    play = Play(workflow(handled(**{"with": {"twice": "${{ input.n * 2 }}"}})))
    play.carry_out(play.start({"n": 4}))

    commands = play.carry_out(play.fail("a"))

    assert inputs(commands)["a.on_failure"]["input"] == {"twice": 8}  # type: ignore[index]


def test_a_step_whose_own_expression_fails_is_handled_with_a_null_input() -> None:
    play = Play(workflow(handled(**{"with": "${{ input.missing }}"})))

    commands = play.carry_out(play.start({"n": 4}))

    about = inputs(commands)["a.on_failure"]
    assert about["input"] is None  # type: ignore[index]
    assert "input.missing" in about["error"]  # type: ignore[index]


def test_an_expression_of_the_handler_that_fails_fails_it_for_good() -> None:
    handler = {"task": "MEND", "with": "${{ default.missing }}", "retry": {"max_attempts": 3}}
    play = started(workflow(handled(on_failure=handler)))

    play.carry_out(play.fail("a"))

    assert play.run.status is RunStatus.FAILED
    assert "default.missing" in (play.run.error or "")


def test_where_the_handler_fails_for_good_the_run_fails_with_both_errors_and_both_dead_letters() -> None:
    play = started(workflow(handled()), {"n": 1})
    play.carry_out(play.fail("a", error="no money"))

    commands = play.fail("a.on_failure", error="no mail")

    letters = only(DeadLetterTask, commands)
    assert [(letter.step_id, letter.task, letter.error) for letter in letters] == [
        ("a.on_failure", "MEND", "no mail"),
        ("a", "A", "no money"),
    ]
    assert value(letters[1].input) == {"n": 1}
    play.settle()
    assert play.run.error == 'step "a" failed: no money; its on_failure failed, too: no mail'
    assert play.statuses() == {"a": "failed", "a.on_failure": "failed"}


def test_both_errors_stay_however_long_they_are() -> None:
    play = started(workflow(handled()))
    play.carry_out(play.fail("a", error="x" * 2 * ERROR_BYTES_MAX))
    play.carry_out(play.fail("a.on_failure", error="y" * 2 * ERROR_BYTES_MAX))

    error = play.run.error or ""
    assert ("x" * 1000 in error, "y" * 1000 in error, len(error) <= ERROR_BYTES_MAX) == (True, True, True)


def test_the_handler_has_retries_a_timeout_and_a_group_of_its_own() -> None:
    retry = {"max_attempts": 1, "initial_delay": "10s"}
    handler = {"task": "MEND", "retry": retry, "timeout": "5s", "worker_group": "menders"}
    play = started(workflow(handled(timeout="1h", worker_group="doers", on_failure=handler)))

    [task] = play.carry_out(play.fail("a"))
    [timer] = play.begin("a.on_failure")

    assert (task.group, timer.due) == ("menders", play.now + 5)
    play.fail("a.on_failure", error="again")
    again = play.carry_out(play.fire("retry.a.on_failure", "a.on_failure", 2, after=11))
    assert dispatched(again) == [("a.on_failure", 2)]


def test_without_these_it_has_the_default_retry_and_the_timeout_and_group_of_the_step() -> None:
    definition = workflow(handled(timeout="1h", worker_group="doers"), default_retry={"max_attempts": 1})
    plan = definition.steps["a"].on_failure

    assert plan is not None
    assert (plan.timeout_s, plan.group, plan.retry.retries) == (3600, "doers", 1)


def test_a_handler_that_times_out_has_failed() -> None:
    play = started(workflow(handled(on_failure={"task": "MEND", "timeout": "5s"})))
    play.carry_out(play.fail("a"))
    play.begin("a.on_failure")

    play.carry_out(play.fire("timeout.a.on_failure", "a.on_failure", 1, after=6))

    assert play.run.status is RunStatus.FAILED
    assert "step timeout exceeded (5s)" in (play.run.error or "")


def test_a_rejected_approval_a_loop_at_its_bound_and_a_sleep_are_handled_too() -> None:
    play = started(workflow(approval("ok", on_failure=HANDLED)))
    play.ask("ok")
    assert dispatched(play.carry_out(play.reject("ok"))) == [("ok.on_failure", 1)]

    play = started(workflow(loop("l", config={"max_iterations": 1}, on_failure=HANDLED)), [1])
    commands = play.carry_out(play.go_on("l", {"state": 1}))
    assert inputs(commands)["l.on_failure"]["input"] == [1]  # type: ignore[index]

    nap = {"id": "nap", "type": "sleep", "config": {"duration": "${{ input }}"}, "on_failure": HANDLED}
    play = Play(workflow(nap))
    commands = play.carry_out(play.start("no duration"))
    assert inputs(commands)["nap.on_failure"]["input"] == "no duration"  # type: ignore[index]


def test_a_map_is_handled_as_a_whole_and_leaves_a_dead_letter_only_if_that_fails() -> None:
    play = Play(workflow(step("m", type="map", on_failure=HANDLED), step("b", "m")))
    play.carry_out(play.start([1, 2]))

    commands = play.carry_out(play.fail("m.1", error="bad"))

    assert only(DeadLetterTask, commands) == []
    assert inputs(commands)["m.on_failure"] == {
        "step": "m",
        "error": "element 1 failed: bad",
        "input": [1, 2],
        "attempts": 1,
    }
    [letter] = [one for one in only(DeadLetterTask, play.fail("m.on_failure")) if one.step_id != "m.on_failure"]
    assert (letter.step_id, letter.task) == ("m.1", "M")


def test_a_map_that_recovers_with_nothing_gives_null_and_not_the_outputs_of_its_elements() -> None:
    play = Play(workflow(step("m", type="map", on_failure=HANDLED), step("b", "m")))
    play.carry_out(play.start([1, 2]))
    play.complete("m.0", "done")
    play.carry_out(play.fail("m.1"))

    assert inputs(play.carry_out(play.complete("m.on_failure"))) == {"b": None}


def test_a_planner_that_fails_is_handled_and_gives_the_output_of_its_handler() -> None:
    play = started(workflow(step("p", type="planner", on_failure=HANDLED), step("b", "p")))
    play.carry_out(play.fail("p"))

    assert inputs(play.carry_out(play.complete("p.on_failure", {"steps": 0}))) == {"b": {"steps": 0}}
    assert play.statuses() == {"p": "recovered", "b": "queued", "p.on_failure": "completed"}


def test_an_element_that_a_map_tolerates_leaves_no_dead_letter() -> None:
    play = Play(workflow(step("m", type="map", config={"on_item_failure": "continue"})))
    play.carry_out(play.start([1]))

    assert only(DeadLetterTask, play.fail("m.0")) == []


def test_no_handler_begins_in_a_run_that_is_failing_already() -> None:
    play = started(workflow(step("z"), handled()))
    play.fail("z")

    commands = play.fail("a")

    assert [letter.step_id for letter in only(DeadLetterTask, commands)] == ["a"]
    assert "a.on_failure" not in play.run.steps


def test_a_run_that_ends_withdraws_the_handler() -> None:
    play = started(workflow(handled(timeout="1h")))
    play.carry_out(play.fail("a"))
    play.begin("a.on_failure")

    commands = play.cancel()

    assert only(WithdrawTask, commands) == [WithdrawTask("MEND")]
    assert [timer.timer for timer in only(WithdrawTimer, commands)] == ["timeout.a.on_failure"]
    assert play.statuses() == {"a": "failed", "a.on_failure": "cancelled"}


@pytest.mark.parametrize("where", ["handler failed", "handler was out"])
def test_a_replay_begins_the_step_anew_and_its_handler_after_it(where: str) -> None:
    play = started(workflow(handled(), step("z")))
    play.carry_out(play.fail("a"))
    if where == "handler failed":
        play.carry_out(play.fail("a.on_failure"))
    else:
        play.carry_out(play.fail("z"))
    assert play.run.status is RunStatus.FAILED

    commands = play.resume(dead_letters=9)

    assert ("a", 2) in dispatched(commands)
    assert "a.on_failure" not in dict(dispatched(commands))
    removed = {command.step_id for command in only(RemoveDeadLetters, commands)}
    assert {"a"} <= removed
    assert ("a.on_failure" in removed) == (where == "handler failed")
    again = play.carry_out(play.fail("a", 2))
    assert dispatched(again) == [("a.on_failure", 2)]
    assert play.complete("a.on_failure", "late", attempt=1) == []
    play.complete("a.on_failure", "mended", attempt=2)
    assert play.step("a").status is StepStatus.RECOVERED


def test_a_replay_keeps_what_has_recovered() -> None:
    play = started(workflow(handled(), step("z")))
    play.carry_out(play.fail("a"))
    play.complete("a.on_failure", "mended")
    play.carry_out(play.fail("z"))

    commands = play.resume()

    assert dispatched(commands) == [("z", 2)]
    assert play.statuses() == {"a": "recovered", "a.on_failure": "completed", "z": "queued"}


def test_late_events_of_a_handler_and_of_its_step_change_nothing() -> None:
    play = started(workflow(handled(), step("b", "a")))
    assert play.complete("a.on_failure", "before it exists") == []
    play.carry_out(play.fail("a"))
    assert play.complete("a", "late") == []
    play.complete("a.on_failure", 1)
    before = play.run

    assert play.complete("a.on_failure", 2) == play.fail("a.on_failure") == play.fail("a") == []
    assert play.run == before


def test_a_fold_of_the_log_gives_the_same_and_a_snapshot_keeps_it() -> None:
    play = started(workflow(handled(), step("b", "a")))
    play.carry_out(play.fail("a"))
    play.complete("a.on_failure", {"n": 1})

    assert fold(play.workflow, None, play.log) == play.run
    assert from_snapshot(to_snapshot(play.run)) == play.run


def test_every_problem_of_a_handler_names_step_and_field() -> None:
    bad = {"task": 5, "timeout": "soon", "retry": {"max_attempts": -1}, "with": "${{ steps.b.output }}", "more": 1}
    found = problems({"name": "w", "steps": [handled(on_failure=bad), step("b", "a")]})

    assert len(found) == 5
    for field in ("task", "timeout", "retry", "with", "more"):
        assert any(problem.startswith('step "a": on_failure') and field in problem for problem in found), (field, found)


def test_no_step_has_the_id_of_a_handler() -> None:
    taken = problems({"name": "w", "steps": [handled(), step("a.on_failure")]})

    assert taken == ['step "a.on_failure" has the id of the on_failure of step "a"']
    assert problems({"name": "w", "steps": [step("a"), step("a.on_failure")]}) == []


def test_a_definition_with_a_handler_is_stored_so_that_an_older_version_does_not_touch_it() -> None:
    handler = {"task": "MEND", "with": {"n": "${{ default.error }}"}}
    body = to_json(parse({"name": "w", "steps": [handled(on_failure=handler)]}))

    document = orjson.loads(body)
    assert (document["v"], document["steps"][0]["on_failure"]) == (2, handler)
    plan = compile_workflow(from_json(body), "d").steps["a"].on_failure
    assert plan is not None
    assert list(plan.expressions) == ["with"]
    assert "v" not in orjson.loads(to_json(parse({"name": "w", "steps": [step("a")]})))
