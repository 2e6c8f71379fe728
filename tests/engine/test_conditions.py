"""Conditions of steps (`when`) and their inputs (`with`): evaluated when the dependencies have ended."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.engine.run.commands import RequestApproval
from penstock.engine.run.events import WorkflowCompleted
from penstock.engine.run.state import RunStatus, StepStatus
from penstock.engine.validation import problems
from tests.engine.build import (
    RUN_ID,
    Play,
    approval,
    dispatched,
    inputs,
    loop,
    only,
    step,
    value,
    workflow,
)

FALSE, TRUE = "input.n > 1", "input.n == 1"


def begun(*steps: dict[str, Any], given: object = None) -> Play:
    """A run whose first steps have begun."""
    play = Play(workflow(*steps))
    play.carry_out(play.start({"n": 1} if given is None else given))
    return play


def test_a_step_begins_where_its_condition_holds_and_is_skipped_where_it_does_not() -> None:
    play = begun(step("yes", when=TRUE), step("no", when=FALSE), step("after", "no"))

    assert play.statuses() == {"yes": "queued", "no": "skipped", "after": "queued"}
    assert play.step("no").attempts == 0


def test_the_output_of_a_step_that_was_skipped_is_null_in_expressions_and_inputs() -> None:
    after = step("after", "no", when="steps.no.output == null && steps.no.status == 'skipped'")
    play = Play(workflow(step("no", when=FALSE), after))

    assert inputs(play.carry_out(play.start({"n": 1}))) == {"after": None}


def test_a_condition_reads_ancestors_also_those_of_ancestors() -> None:
    play = begun(step("a"), step("b", "a"), step("c", "b", when="steps.a.output.go"))
    play.carry_out(play.complete("a", {"go": True}))

    assert dispatched(play.carry_out(play.complete("b"))) == [("c", 1)]


@pytest.mark.parametrize("condition", ["input.missing", "input.n", "input.n + 'a' == ''"])
def test_a_condition_that_cannot_be_evaluated_fails_the_step_for_good(condition: str) -> None:
    play = begun(step("a", when=condition, retries=5))

    assert (play.run.status, play.step("a").attempts) == (RunStatus.FAILED, 1)
    assert f'expression "{condition}"' in (play.step("a").error or "")


@pytest.mark.parametrize(
    "fields",
    [
        {"when": "steps.later.output"},
        {"with": "${{ steps.later.output }}"},
        {"with": {"x": ["${{ steps.later.status }}"]}},
    ],
)
def test_a_step_that_is_no_dependency_cannot_be_read(fields: dict[str, object]) -> None:
    [problem] = problems({"name": "w", "steps": [step("a", **fields), step("later")]})

    assert problem.startswith(f'step "a": {next(iter(fields))}')
    assert 'step "later" is not among the steps that this one depends on' in problem


def test_what_is_wrong_with_expressions_is_named_with_step_field_and_column_all_at_once() -> None:
    steps = [step("a", when="input.n >", **{"with": {"x": "${{ inputs.n }}"}}), step("b", when="'text'")]

    found = problems({"name": "w", "steps": steps})

    assert [text[: text.index(" column ")] for text in found] == [
        'step "a": when:',
        'step "a": with.x:',
        'step "b": when:',
    ]


def test_the_input_is_what_with_gives_and_default_is_what_it_would_be_without() -> None:
    given = {"n": "${{ input.n }}", "text": "run ${{ run.id }}", "before": "${{ default }}", "plain": [1, None]}
    play = begun(step("a"), step("b", "a", **{"with": given}))

    commands = play.carry_out(play.complete("a", {"x": 2}))

    assert inputs(commands) == {"b": {"n": 1, "text": f"run {RUN_ID}", "before": {"x": 2}, "plain": [1, None]}}


def test_default_of_a_step_with_several_dependencies_is_their_outputs_by_step() -> None:
    play = begun(step("a"), step("b"), step("c", "a", "b", **{"with": "${{ default.a + default.b }}"}))
    play.carry_out(play.complete("a", 1))

    assert inputs(play.carry_out(play.complete("b", 2))) == {"c": 3}


def test_every_attempt_has_the_same_input_and_its_condition_is_asked_again() -> None:
    play = begun(step("a", when=TRUE, retries=1, **{"with": "${{ input.n + 1 }}"}))
    play.begin("a")
    play.fail("a")

    commands = play.carry_out(play.fire("retry.a", "a", 2, after=5))

    assert (inputs(commands), dispatched(commands)) == ({"a": 2}, [("a", 2)])


def test_an_input_that_cannot_be_evaluated_fails_the_step_and_names_the_place() -> None:
    play = begun(step("a", retries=5, **{"with": {"x": {"y": "${{ input.missing }}"}}}))

    assert (play.run.status, play.step("a").attempts) == (RunStatus.FAILED, 1)
    assert play.step("a").error == 'with.x.y: expression "input.missing": there is no key "missing"'


def test_in_a_loop_default_is_what_the_last_iteration_has_handed_on() -> None:
    given = {"n": "${{ input.n }}", "last": "${{ default }}"}
    play = Play(workflow(loop("a", config={"max_iterations": 3}, when=TRUE, **{"with": given})))

    assert inputs(play.carry_out(play.start({"n": 1}))) == {"a": {"n": 1, "last": {"n": 1}}}
    assert inputs(play.carry_out(play.go_on("a", "again"))) == {"a": {"n": 1, "last": "again"}}


def test_an_approval_is_asked_for_only_where_its_condition_holds() -> None:
    play = Play(workflow(approval("yes", when=TRUE), approval("no", when=FALSE)))

    commands = play.carry_out(play.start({"n": 1}))

    assert [command.step_id for command in only(RequestApproval, commands)] == ["yes"]
    assert play.step("no").status is StepStatus.SKIPPED


def test_a_run_whose_every_step_is_skipped_completes_with_null() -> None:
    play = begun(step("a", when="false"))

    completed = play.log[-1].event
    assert isinstance(completed, WorkflowCompleted)
    assert value(completed.payload.output) is None


def test_a_fold_evaluates_nothing() -> None:
    """What was decided is in the log: without the shell, the step stays as it is."""
    play = Play(workflow(step("a", when=FALSE)))
    play.start({"n": 1})

    assert play.step("a").status is StepStatus.QUEUED
    assert value(play.run.input) == {"n": 1}
