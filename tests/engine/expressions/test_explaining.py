"""Expressions are explained one by one: where they stand, what they read, what is wrong with them."""

from __future__ import annotations

from typing import Any

from penstock.engine.expressions.explaining import ExplainedExpression as Explained
from penstock.engine.validation import explained, problems


def definition(**step: Any) -> dict[str, Any]:
    """Step s depends on a and my-step, and not on later."""
    before = [{"id": step_id, "task": "t"} for step_id in ("a", "my-step")]
    step = {"id": "s", "task": "t", "depends_on": ["a", "my-step"], **step}
    return {"name": "w", "steps": [*before, step, {"id": "later", "task": "t", "depends_on": ["s"]}]}


def test_a_condition_reads_names_outputs_and_statuses() -> None:
    text = 'input.n > 1 && steps.a.output.total > size(run.id) && steps["my-step"].status == "skipped"'
    document = definition(when=text)
    reads = ("input", "run", "steps.a.output", 'steps["my-step"].status')
    assert [Explained("s", "when", text, reads)] == explained(document)
    assert [] == problems(document)


def test_every_expression_of_a_template_is_explained_in_its_place() -> None:
    value = {"to": "${{ input.email }}", "lines": [1, "${{ steps.a.output }} of ${{ run.id }}"], "plain": "$${{ no }}"}
    assert [
        Explained("s", "with.to", "input.email", ("input",)),
        Explained("s", "with.lines[1]", "steps.a.output", ("steps.a.output",)),
        Explained("s", "with.lines[1]", "run.id", ("run",)),
    ] == explained(definition(**{"with": value}))


def test_fields_of_a_kind_and_its_names_are_explained() -> None:
    document = definition(type="map", **{"with": "${{ item.id + index }}"}, config={"items": "${{ input.orders }}"})
    assert [] == problems(document)
    assert {("config.items", ("input",)), ("with", ("index", "item"))} == {
        (one.field, one.reads) for one in explained(document)
    }


def test_a_secret_is_read_where_it_may_stand_and_a_problem_elsewhere() -> None:
    config = {"url": "https://example.com/${{ secret.KEY }}", "headers": {"authorization": "Bearer ${{ secret.KEY }}"}}
    found = {one.field: one for one in explained(definition(type="http", task=None, config=config))}
    assert (("secret.KEY",), ()) == (
        found["config.headers.authorization"].reads,
        found["config.headers.authorization"].problems,
    )
    assert found["config.url"].problems


def test_problems_stand_beside_their_expression_and_the_others_are_explained() -> None:
    value = {
        "bad": "is ${{ input. }}",
        "unknown": "${{ nobody }}",
        "later": "${{ steps.later.output }}",
        "good": "${{ input }}",
    }
    document = definition(**{"with": value})
    found = {one.field: one for one in explained(document)}
    assert found["with.bad"].problems[0].startswith("column ")
    assert "nobody" in found["with.unknown"].problems[0]
    assert "later" in found["with.later"].problems[0]
    assert ((), ("input",)) == (found["with.good"].problems, found["with.good"].reads)
    assert all(not one.reads for one in found.values() if one.problems)
    told = problems(document)
    assert all(any(problem in line for line in told) for one in found.values() for problem in one.problems)


def test_what_can_never_be_a_condition_is_a_problem() -> None:
    assert explained(definition(when="1 + 1"))[0].problems
    assert not explained(definition(**{"with": "${{ 1 + 1 }}"}))[0].problems


def test_a_placeholder_without_its_end_is_named() -> None:
    (found,) = explained(definition(**{"with": "a ${{ input"}))
    assert ("with", "a ${{ input") == (found.field, found.expression)
    assert found.problems[0].startswith("column 3: ")


def test_what_may_go_over_a_bound_is_a_warning() -> None:
    (found,) = explained(definition(when="input.a.all(x, input.b.exists(y, x == y))"))
    assert found.warnings
    assert not found.problems


def test_what_is_no_definition_has_no_expressions() -> None:
    for document in (None, [], {}, {"steps": "x"}, {"steps": [1, {"when": 5}, {"id": 7, "with": "${{ }}"}]}):
        assert all(one.problems for one in explained(document))


def test_the_input_of_a_run_that_follows_a_failed_one_is_explained() -> None:
    follows = {"workflow": "alarm", "with": {"text": "${{ default.error }}", "wrong": "${{ steps.a.output }}"}}
    text, wrong = explained({**definition(), "on_failure": follows})

    assert text == Explained("", "on_failure.with.text", "default.error", ("default",))
    assert (wrong.step, wrong.field, len(wrong.problems)) == ("", "on_failure.with.wrong", 1)
