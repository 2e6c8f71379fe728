"""What an expression that is registered may say, and what is said of one that may not."""

from __future__ import annotations

import pytest

from penstock.engine.errors import Invalid
from penstock.engine.expressions.expression import compile_expression
from penstock.engine.expressions.scope import Scope
from penstock.engine.expressions.template import compile_template
from tests.engine.expressions.values import SCOPE, problems

FORM = 'write steps.name.output, or steps["my-step"].output for an id that is no name; or .status'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["column 1: the expression is empty"]),
        (" \n ", ["column 1: the expression is empty"]),
        ("1 +", ["column 4: the expression ends too early"]),
        ("input.a )", ["column 9: ')' is not expected"]),
        ("input.a = 1", ["column 9: '= ' is no part of the language"]),
        ("'é' + nope", ['column 7: "nope" is no name that can be read here; these are: input, run, steps']),
        (
            "nope + input.a.map(x, y)",
            [
                'column 1: "nope" is no name that can be read here; these are: input, run, steps',
                'column 23: "y" is no name that can be read here; these are: input, run, steps',
            ],
        ),
        (
            "true &&\n  nope",
            ['line 2, column 3: "nope" is no name that can be read here; these are: input, run, steps'],
        ),
        ("now()", ['column 4: there is no function "now"']),
        ("input.a.substring(1)", ['column 18: there is no method "substring"']),
        ("size()", ["column 5: size takes 1 arguments, not 0"]),
        ("timestamp(run.created_at).getHours('UTC', 1)", ["column 35: getHours takes 0 or 1 arguments, not 2"]),
        (
            "google.protobuf.Struct{}",
            ["column 1: \"google.protobuf.Struct\": messages cannot be made here; write a map: {'key': value}"],
        ),
        ("1 + 'a'", ['column 3: "+" does not go with (int, string)']),
        ("input.a && 1", ['column 9: "&&" does not go with (dyn, int)']),
        ("-'a'", ['column 1: "-" does not go with (string)']),
        ("input.a.matches('(')", ["column 16: the regular expression is not valid: missing ): ("]),
        (
            "input.a.matches('(a{1000}){11}')",
            ["column 16: the regular expression has 22022 states with its repetitions, 10000 is the most"],
        ),
        ("duration('1 day')", ['column 9: "1 day" is not a duration (write for example 500ms, 30s, 5m, 1h30m)']),
        ("timestamp('today')", ['column 10: "today" is no timestamp (RFC 3339, for example 2026-01-31T08:00:00Z)']),
        ("1" + " + 1" * 40, ["column 1: the expression is nested or chained more than 32 deep"]),
        ("'" + "a" * 4095 + "'", ["column 1: the expression has 4097 bytes, 4096 is the most"]),
        ("'\ud800'", ["column 1: the expression has half of a surrogate pair in it"]),
        ("99999999999999999999", ["column 1: invalid int literal"]),
    ],
)
def test_a_problem_names_its_column_and_what_to_do(text: str, expected: list[str]) -> None:
    assert problems(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("steps.later.output", ['column 1: step "later" is not among the steps that this one depends on']),
        ("1 + steps.nope.output", ['column 5: there is no step "nope"']),
        ("steps['nope'].status == 'x'", ['column 1: there is no step "nope"']),
        ("steps", [f"column 1: {FORM}"]),
        ("size(steps)", [f"column 6: {FORM}"]),
        ("steps.fetch", [f"column 1: {FORM}"]),
        ("steps.fetch.error", [f"column 1: {FORM}"]),
        ("steps[input.id].output", [f"column 1: {FORM}"]),
        ("steps['fetch']['output']", [f"column 1: {FORM}"]),
        ("steps['my-' + 'step'].output", [f"column 1: {FORM}"]),
        ("steps.`my-step`.output", [f"column 1: {FORM}"]),
        ("steps.v1.2.output", ["column 9: '.2' is not expected"]),
        ("has(steps.fetch)", [f"column 5: {FORM}"]),
        ("steps.map(s, s)", [f"column 1: {FORM}"]),
        ("'fetch' in steps", [f"column 12: {FORM}"]),
        ("[steps].map(s, s.fetch.output)", [f"column 2: {FORM}"]),
    ],
)
def test_steps_is_followed_by_a_name_or_a_literal_and_then_by_output_or_status(text: str, expected: list[str]) -> None:
    assert problems(text) == expected


@pytest.mark.parametrize(
    ("text", "outputs", "statuses"),
    [
        ("steps.fetch.output.a.b[0]", {"fetch"}, set()),
        ("steps['my-step'].output", {"my-step"}, set()),
        ('steps["v1.2"].status', set(), {"v1.2"}),
        ("has(steps.fetch.output)", {"fetch"}, set()),
        ("input.map(steps, steps.fetch.output)", set(), set()),
    ],
)
def test_a_step_is_read_in_the_forms_that_are_allowed(text: str, outputs: set[str], statuses: set[str]) -> None:
    found = compile_expression(text, SCOPE).references

    assert (found.outputs, found.statuses) == (outputs, statuses)


def test_where_there_are_no_steps_steps_is_no_name() -> None:
    scope = Scope(names=frozenset({"event"}))

    assert problems("steps.fetch.output", scope=scope) == [
        'column 1: "steps" is no name that can be read here; these are: event'
    ]
    assert problems("event.id == '1'", scope=scope) == []


def test_names_can_be_added_to_a_scope() -> None:
    scope = SCOPE.with_names("item", "index")

    assert problems("item.id + string(index) + steps.fetch.output", scope=scope) == []
    assert problems("item") == ['column 1: "item" is no name that can be read here; these are: input, run, steps']


def test_macros_are_nested_two_deep_and_no_deeper() -> None:
    three = "input.all(a, a.all(b, b.all(c, c)))"

    assert problems("input.all(a, a.all(b, b))") == []
    assert problems("input.filter(a, a).map(b, b).map(c, c).all(d, d)") == []
    assert problems(three) == ["column 28: macros (all, exists, map, filter) may be nested 2 deep, not deeper"]


def test_a_place_in_front_counts_for_columns_of_the_first_line() -> None:
    with pytest.raises(Invalid) as raised:
        compile_expression("nope +\nnor", SCOPE, at=4)

    assert [problem.split(": ")[0] for problem in raised.value.problems] == ["column 5", "line 2, column 1"]


@pytest.mark.parametrize(
    "text",
    [
        "1 + 2.5",
        "1 < 2.5",
        "1 == 1.0",
        "2.5 in [1, 2]",
        "[1] + [2.5]",
        "1u + 1",
        "true ? 1 : 'a'",
        "input.a ? null : 1",
    ],
)
def test_values_of_several_types_of_json_go_together(text: str) -> None:
    assert problems(text) == []


def test_a_consequence_of_another_error_is_not_told() -> None:
    assert problems("[1].map(x, x.a.b.c)") == [
        "column 13: expression of type 'int' cannot be the operand of a select operation"
    ]


NESTED = "a macro inside a macro fails when they go through more than 10,000 elements in all"
PATTERN = "a regular expression that is a value fails if it is not valid, or has more than 10,000 states"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("input.all(a, a.all(b, b))", (f"column 19: {NESTED}",)),
        ("input.filter(a, a).map(b, b)", ()),
        ("input.a.matches(input.b)", (f"column 16: {PATTERN}",)),
        ("input.a.matches('a+') && matches('b', input.a)", (f"column 33: {PATTERN}",)),
    ],
)
def test_what_may_go_over_a_bound_is_a_warning(text: str, expected: tuple[str, ...]) -> None:
    assert compile_expression(text, SCOPE).warnings == expected


def test_a_warning_of_a_template_names_its_path() -> None:
    found = compile_template({"a": ["x ${{ input.all(a, a.all(b, b)) }}", "${{ input }}", 1]}, SCOPE, "with")

    assert found.warnings == [f"with.a[0]: column 25: {NESTED}"]
