"""The run that a workflow's `on_failure` starts when a run of it has failed: what is ordered, and with which input."""

from __future__ import annotations

import orjson
import pytest

from penstock.engine.definition.definitions import from_json, to_json
from penstock.engine.errors import ExpressionFailed
from penstock.engine.run.advance import fold
from penstock.engine.run.commands import StartFailureRun
from penstock.engine.run.compiling import compile_workflow
from penstock.engine.run.event_payloads import Started
from penstock.engine.run.events import WorkflowStarted
from penstock.engine.run.execution.failure_runs import failure_run_id, failure_start
from penstock.engine.run.state import RunStatus, from_snapshot, to_snapshot
from penstock.engine.run.still_due import still_due
from penstock.engine.run.workflow import Workflow
from penstock.engine.validation import parse, problems
from tests.engine.build import RUN_ID, Play, only, raw, started, step, value, workflow

ALARM = {"workflow": "alarm"}


def alarmed(**on_failure: object) -> Workflow:
    return workflow(step("a"), step("b", "a"), on_failure={**ALARM, **on_failure})


def failed(play: Play) -> StartFailureRun:
    """What the end of a run orders whose step `a` fails."""
    play.fail("a", play.step("a").attempts, error="no money")
    [command] = only(StartFailureRun, play.settle())
    return command


def test_a_failed_run_orders_one_that_is_told_how_it_failed() -> None:
    play = started(alarmed(), {"n": 1})

    command = failed(play)

    assert play.run.status is RunStatus.FAILED
    assert value(failure_start(play.workflow, play.run, command, raw({"n": 1}))[0]) == {
        "run_id": RUN_ID,
        "workflow": "w",
        "error": 'step "a" failed: no money',
        "failed_step": "a",
        "input": {"n": 1},
    }


def test_with_says_what_it_receives() -> None:
    wanted = {"why": "${{ default.error }}", "n": "${{ input.n + 1 }}", "of": "${{ run.id }}"}
    play = started(alarmed(**{"with": wanted}), {"n": 1})

    found, _ = failure_start(play.workflow, play.run, failed(play), raw({"n": 1}))

    assert value(found) == {"why": 'step "a" failed: no money', "n": 2, "of": RUN_ID}


def test_an_expression_that_fails_says_so() -> None:
    play = started(alarmed(**{"with": "${{ input.missing }}"}), {"n": 1})

    with pytest.raises(ExpressionFailed, match="missing"):
        failure_start(play.workflow, play.run, failed(play), raw({"n": 1}))


def test_there_is_one_for_each_time_that_the_run_fails() -> None:
    play = started(alarmed())
    first = failed(play)
    play.resume()
    second = failed(play)

    assert (first.resumes, second.resumes) == (0, 1)
    assert failure_run_id(RUN_ID, 0) != failure_run_id(RUN_ID, 1)
    assert len({failure_run_id(RUN_ID, 0), failure_run_id(RUN_ID, 0), failure_run_id(RUN_ID[::-1], 0)}) == 2


def test_it_is_still_due_after_the_run_goes_on() -> None:
    """A process that takes the run over may find it resumed: the failure has its run all the same."""
    play = started(alarmed())
    first = failed(play)
    play.resume()

    assert still_due(play.run, first)


def test_a_run_that_was_started_so_starts_none() -> None:
    play = Play(alarmed())
    start = Started(play.workflow.name, play.workflow.version, play.workflow.digest, failure_of="f" * 32)
    play.tell(WorkflowStarted(run_id=RUN_ID, payload=start))
    play.fail("a")

    assert only(StartFailureRun, play.settle()) == []
    assert (play.run.status, play.run.failure_of) == (RunStatus.FAILED, "f" * 32)
    assert from_snapshot(to_snapshot(play.run)) == play.run == fold(play.workflow, None, play.log)


def test_a_run_that_completes_or_is_cancelled_starts_none() -> None:
    play = started(alarmed())
    assert only(StartFailureRun, play.cancel()) == []

    play = started(alarmed())
    play.complete("a")
    play.complete("b")
    assert only(StartFailureRun, play.settle()) == []
    assert play.run.status is RunStatus.COMPLETED


def test_a_run_that_the_broker_refuses_to_carry_on_or_that_is_out_of_time_starts_one() -> None:
    play = started(alarmed())
    [command] = only(StartFailureRun, play.refuse("the run cannot go on: too large"))

    assert (command.error, command.failed_step) == ("the run cannot go on: too large", None)


def test_every_problem_names_its_field() -> None:
    found = problems({"name": "w", "steps": [step("a")], "on_failure": {"with": "${{ steps.a.output }}", "more": 1}})

    assert len(found) == 3
    for field in ("workflow", "with", "more"):
        assert any(problem.startswith("on_failure: ") and field in problem for problem in found), (field, found)


def test_it_is_stored_so_that_an_older_version_does_not_touch_it() -> None:
    declared = {"workflow": "alarm", "with": {"why": "${{ default.error }}"}}
    body = to_json(parse({"name": "w", "steps": [step("a")], "on_failure": declared}))

    document = orjson.loads(body)
    assert (document["v"], document["on_failure"]) == (2, declared)
    plan = compile_workflow(from_json(body), "d").on_failure
    assert plan is not None
    assert (plan.workflow, plan.input is None) == ("alarm", False)
