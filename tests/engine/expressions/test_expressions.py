"""Expressions give the values that CEL gives, and say why when they give none."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from penstock.engine.errors import ExpressionFailed
from penstock.engine.expressions.expression import compile_expression
from penstock.engine.expressions.scope import References
from tests.engine.expressions.values import RUN, SCOPE, problems, reason, value_of

ORDER = '{"total": 120, "user": "ada", "lines": [{"sku": "a", "n": 2}, {"sku": "b", "n": 1}], "note": null}'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("input.total > 100", True),
        ("input.lines.map(line, line.n)", [2, 1]),
        ("input.lines.filter(line, line.n > 1).size()", 1),
        ("input.lines.exists(line, line.sku == 'b')", True),
        ("input.lines.all(line, line.n > 1)", False),
        ("input.lines.exists_one(line, line.n == 1)", True),
        ("input.lines.map(line, line.n > 1, line.sku)", ["a"]),
        ("input.map(key, key)", ["total", "user", "lines", "note"]),
        ("input.lines[1].sku + '-' + input['user']", "b-ada"),
        ("has(input.discount) ? input.discount : 0", 0),
        ("'total' in input && 'ada' in [input.user]", True),
        ("input.note == null", True),
        ("{'user': input.user, 'lines': size(input.lines)}", {"user": "ada", "lines": 2}),
        ("[1, 2] + [3]", [1, 2, 3]),
        ("input.user.startsWith('a') && input.user.endsWith('a') && input.user.contains('d')", True),
        ("'née'.size() == 3 && size(b'n\\303\\251e') == 4", True),
        ("input.user.matches('^[a-d]+$')", True),
        ("type(input.total) == int && type(input.user) == string && type([]) == list", True),
        ("int('12') + int(2.9) + int(-2.9)", 12),
        ("double('1.5') + double(2)", 3.5),
        ("string(1.5) + string(2.0) + string(true) + string(7)", "1.52true7"),
        ("bool('true') && !bool('f')", True),
        ("string(b'abc') + string(bytes('d'))", "abcd"),
        ("7 / 2 == 3 && -7 / 2 == -3 && -7 % 2 == -1 && 7.0 / 2 == 3.5", True),
        ("timestamp('2026-01-31T23:30:00Z') + duration('45m')", "2026-02-01T00:15:00Z"),
        ("timestamp(run.created_at) < timestamp('2027-01-01T00:00:00+01:00')", True),
        ("timestamp('2026-01-31T00:00:00.000000001Z') - timestamp('2026-01-30T22:29:30Z')", "1h30m30s1ns"),
        ("timestamp('2026-01-31T23:30:00Z').getDate('Europe/Berlin')", 1),
        ("timestamp('2026-01-31T23:30:00Z').getHours('-01:30')", 22),
        ("timestamp('2026-01-31T23:30:00Z').getDayOfWeek()", 6),
        ("duration('90m').getHours() + duration('90m').getMinutes()", 91),
        ("run.labels.tier + run.version", "gold3"),
        ("dyn(1) == 1", True),
    ],
)
def test_the_language_has_what_people_write(text: str, expected: Any) -> None:
    assert value_of(text, ORDER) == expected


def test_steps_are_read_by_name_or_by_literal() -> None:
    values = {
        "input": None,
        "run": RUN,
        "steps": {
            "fetch": {"output": {"ok": True}, "status": "completed"},
            "my-step": {"output": None, "status": "skipped"},
        },
    }
    expression = compile_expression('steps.fetch.output.ok && steps["my-step"].status == "skipped"', SCOPE)

    assert expression.evaluate(values) is True
    assert expression.references == References(frozenset(), frozenset({"fetch"}), frozenset({"my-step"}))


def test_an_expression_names_what_it_reads_and_nothing_else() -> None:
    text = "input.a.map(run, run + 1) == steps.fetch.output && [1].all(item, item > input.b)"

    assert compile_expression(text, SCOPE).references == References(frozenset({"input"}), frozenset({"fetch"}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("input.discount", 'there is no key "discount"'),
        ("input.user.name", 'a string has no "name"'),
        ("input.lines[2].sku", "there is no element 2 in an array of 2"),
        ("input.lines['a']", "an element of an array is named by an integer, not by a string"),
        ("input.user * 2", '"*" does not go with a string and a number'),
        ("input.user < input.total", '"<" does not go with a string and a number'),
        ("input.total && true", '"&&" needs true or false, not a number'),
        ("input.total ? 1 : 2", '"? :" needs true or false, not a number'),
        ("input.total.map(x, x)", "a macro goes over an array or an object, not over a number"),
        ("input.lines.all(x, x.n)", "the condition of a macro must be true or false, not a number"),
        ("input.total / 0", "a division by zero"),
        ("input.total % 0", "a division by zero"),
        ("int(input.user)", 'int(): "ada" is no integer'),
        ("timestamp(input.user)", '"ada" is no timestamp (RFC 3339, for example 2026-01-31T08:00:00Z)'),
        (
            "timestamp('2026-02-' + '30T00:00:00Z')",
            '"2026-02-30T00:00:00Z" is no timestamp: day is out of range for month',
        ),
        ("duration('5 ' + 'minutes')", '"5 minutes" is not a duration (write for example 500ms, 30s, 5m, 1h30m)'),
        ("timestamp(run.created_at).getHours('Mars')", '"Mars" is no time zone (for example Europe/Berlin or +02:00)'),
        ("{input.note: 1}", "a key of a map is a string or an integer, not null"),
        ("{'a': 1, 'a': 2}", 'the key "a" stands twice in a map'),
        ("{1: 'a'}", "the result has the key 1: in JSON, keys are strings"),
        ("[b'abc']", "the result has bytes, which JSON cannot say"),
        ("0.0 / 0.0", "the result has NaN (what comes of 0.0 / 0.0), which JSON cannot say"),
        ("{'a': -1.0 / 0.0}", "the result has infinity (what comes of 1.0 / 0.0), which JSON cannot say"),
        ("type(1)", "the result has a type, which JSON cannot say"),
        ("'a'.matches(input.user + '(')", "the regular expression is not valid: missing ): ada("),
    ],
)
def test_a_failure_says_why(text: str, expected: str) -> None:
    assert reason(text, ORDER) == expected


def test_a_failure_shows_the_expression() -> None:
    with pytest.raises(ExpressionFailed) as failed:
        value_of("input.total", "{}")

    assert str(failed.value) == 'expression "input.total": there is no key "total"'


@pytest.mark.parametrize(
    "text",
    [
        "false && input.nope",
        "input.nope && false",
        "!(true || input.nope)",
        "!(input.nope || true)",
        "[1, 2].all(x, x > 1 && input.nope)",
        "!(['a', 1].exists(x, x == 1 || x.nope))",
    ],
)
def test_a_side_that_decides_is_enough(text: str) -> None:
    assert value_of(text, "{}") is False


def test_a_condition_must_be_true_or_false() -> None:
    condition = compile_expression("input", SCOPE, "bool")

    assert condition.holds({"input": True}) is True
    assert condition.holds({"input": False}) is False
    with pytest.raises(ExpressionFailed, match=r'^expression "input": it gives a number, not true or false$'):
        condition.holds({"input": 1})
    assert problems("1 + 2", "bool") == ["column 1: the expression gives a number, not true or false"]
    assert problems("1 + 2") == []


def test_payloads_that_no_expression_names_are_not_decoded() -> None:
    broken = {"input": {"a": 1}, "run": object(), "steps": {}}

    assert compile_expression("input.a", SCOPE).evaluate(broken) == 1


def test_who_compiles_no_expression_does_not_load_the_library() -> None:
    code = (
        "import sys; import penstock.engine.expressions.template as t; print('cel_expr_python' in sys.modules);"
        "from penstock.engine.expressions.scope import Scope;"
        "from functools import partial;"
        "compile_in = partial(t.compile_template, scope=Scope(names=frozenset()), path='');"
        "compile_in({'a': [1, 'b']}); print('cel_expr_python' in sys.modules);"
        "compile_in('${{ 1 }}'); print('cel_expr_python' in sys.modules)"
    )

    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ran.stdout.split() == ["False", "False", "True"]
