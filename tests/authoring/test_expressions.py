"""The text that operators build gives, in the engine, what the operators give in Python."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock.authoring import (
    Workflow,
    all_,
    and_,
    any_,
    contains,
    default,
    duration,
    expression,
    filter_,
    has,
    if_,
    in_,
    int_,
    map_,
    matches,
    not_,
    number,
    or_,
    secret,
    size,
    string,
    timestamp,
)
from penstock.authoring.expressions import Expr, text_of
from penstock.engine.expressions.expression import compile_expression
from penstock.engine.expressions.scope import Scope

SCOPE = Scope(names=frozenset({"input", "run", "default"}), steps=frozenset({"pay", "a-b"}))
INPUT: Any = Workflow("w").input
VALUES = {
    "total": 120,
    "user": "ada",
    "lines": [{"sku": "a", "n": 2}, {"sku": "b", "n": 1}],
    "first-name": "x",
    "in": 1,
}
INTEGERS = st.integers(-(2**40), 2**40)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
SCALARS = INTEGERS | TEXTS | st.booleans() | st.none() | st.floats(-1e15, 1e15)
OF_NUMBERS = (operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod)
COMPARING = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)


def evaluated(value: object, given: object = VALUES) -> Any:
    return compile_expression(text_of(value), SCOPE, "any").evaluate({"input": given})


@settings(deadline=None)
@given(SCALARS | st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=5))
def test_any_value_of_json_is_itself_as_a_literal(value: object) -> None:
    assert evaluated(value) == value
    assert evaluated(Expr("input.x") == value, {"x": value}) is True


@settings(deadline=None)
@given(st.sampled_from(OF_NUMBERS), INTEGERS, INTEGERS, st.booleans())
def test_arithmetic_gives_what_python_gives(
    operate: Callable[[Any, Any], Any], left: int, right: int, is_literal: bool
) -> None:
    assume(right != 0 or operate not in OF_NUMBERS[3:])
    assume(abs(left * right) < 2**63)

    by_reference = operate(INPUT.a, right if is_literal else INPUT.b)
    reversed_one = operate(left, INPUT.b)

    assert evaluated(by_reference, {"a": left, "b": right}) == operate(left, right)
    assert evaluated(reversed_one, {"b": right}) == operate(left, right)


@settings(deadline=None)
@given(st.sampled_from(COMPARING), st.one_of(*(st.tuples(kind, kind) for kind in (INTEGERS, TEXTS))))
def test_comparison_gives_what_python_gives(operate: Callable[[Any, Any], Any], sides: tuple[Any, Any]) -> None:
    left, right = sides
    if isinstance(left, str):
        assume(operate in (operator.eq, operator.ne))

    assert evaluated(operate(INPUT.a, right), {"a": left}) == operate(left, right)
    assert evaluated(operate(left, INPUT.b), {"b": right}) == operate(left, right)


NUMBERS = st.recursive(
    st.sampled_from(["a", "b"]).map(lambda name: (getattr(INPUT, name), name))
    | st.integers(-9, 9).map(lambda n: (n, n)),
    lambda inner: st.tuples(st.sampled_from([operator.add, operator.sub, operator.mul]), inner, inner).map(
        lambda of: (of[0](of[1][0], of[2][0]), of)
    ),
    max_leaves=6,
)


def of_python(tree: Any, values: dict[str, int]) -> int:
    match tree:
        case str():
            return values[tree]
        case int():
            return tree
    operate, left, right = tree
    found: int = operate(of_python(left[1], values), of_python(right[1], values))
    return found


@settings(deadline=None)
@given(NUMBERS, NUMBERS, st.integers(-9, 9), st.integers(-9, 9), st.sampled_from([and_, or_]))
def test_operators_within_operators_keep_pythons_grouping(
    left: Any, right: Any, a: int, b: int, connect: Callable[..., Any]
) -> None:
    values = {"a": a, "b": b}
    first, second = of_python(left[1], values), of_python(right[1], values)

    assert evaluated(left[0], values) == first
    condition = connect(INPUT.a < left[0], not_(INPUT.b >= right[0]))
    sides = (a < first, not b >= second)
    assert evaluated(condition, values) == (all(sides) if connect is and_ else any(sides))
    assert evaluated(if_(condition, left[0], -INPUT.a), values) == (first if evaluated(condition, values) else -a)


@pytest.mark.parametrize(
    ("value", "text", "gives"),
    [
        (size(INPUT.lines), "size(input.lines)", 2),
        (has(INPUT.discount), "has(input.discount)", False),
        (not_(has(INPUT.discount)), "!has(input.discount)", True),
        (in_("total", INPUT), '("total" in input)', True),
        (in_(INPUT.user, ["ada", "bob"]), '(input.user in ["ada", "bob"])', True),
        (not_(in_(INPUT.user, ["ada"])), '!(input.user in ["ada"])', False),
        (INPUT.lines[0].sku, "input.lines[0].sku", "a"),
        (INPUT["lines"][1]["n"], "input.lines[1].n", 1),
        (INPUT["first-name"], 'input["first-name"]', "x"),
        (INPUT["in"] + 1, 'input["in"] + 1', 2),
        (INPUT.lines[size(INPUT.lines) - 1].n, "input.lines[size(input.lines) - 1].n", 1),
        (INPUT.user.startswith("a"), 'input.user.startsWith("a")', True),
        (INPUT.user.endswith("b"), 'input.user.endsWith("b")', False),
        (contains(INPUT.user, "d"), 'input.user.contains("d")', True),
        (matches(INPUT.user, "^[a-z]+$"), 'input.user.matches("^[a-z]+$")', True),
        (int_("12") + int_(2.9), 'int("12") + int(2.9)', 14),
        (number(INPUT.total) / 7, "double(input.total) / 7.0", 120 / 7),
        (string(INPUT.total) + " pieces", 'string(input.total) + " pieces"', "120 pieces"),
        (timestamp("2026-01-31T23:30:00Z") + duration("45m"), "", "2026-02-01T00:15:00Z"),
        (any_(INPUT.lines, lambda line: line.sku == "b"), 'input.lines.exists(x, x.sku == "b")', True),
        (all_(INPUT.lines, lambda line: line.n > 1), "input.lines.all(x, x.n > 1)", False),
        (filter_(INPUT.lines, lambda line: line.n > 1), "", [{"sku": "a", "n": 2}]),
        (map_(INPUT.lines, lambda line: {"of": line.sku}), "", [{"of": "a"}, {"of": "b"}]),
        (
            any_(INPUT.lines, lambda one: all_(INPUT.lines, lambda other: one.n >= other.n)),
            "input.lines.exists(x, input.lines.all(y, x.n >= y.n))",
            True,
        ),
        (expression("1 + 1") * 3, "(1 + 1) * 3", 6),
        ((INPUT.total > 100) & (INPUT.user != "bob") | ~(INPUT.total > 1), "", True),
    ],
)
def test_what_expressions_know(value: Any, text: str, gives: object) -> None:
    assert evaluated(value) == gives
    assert text in ("", text_of(value))


def test_f_strings_and_names_are_templates() -> None:
    assert f"dear {INPUT.user}, {INPUT.total + 1}" == "dear ${{ input.user }}, ${{ input.total + 1 }}"
    assert f"Bearer {secret.TOKEN}" == "Bearer ${{ secret.TOKEN }}"
    assert str(default.error) == "${{ default.error }}"


@pytest.mark.parametrize(
    ("use", "instead"),
    [
        (lambda: INPUT.a and INPUT.b, r"and_\(a, b\)"),
        (lambda: INPUT.a or INPUT.b, r"or_\(a, b\)"),
        (lambda: not INPUT.a, r"not_\(a\)"),
        (lambda: 1 if INPUT.a else 2, r"if_\(a, x, y\)"),
        (lambda: 1 < INPUT.a < 3, r"and_\(1 < a, a < 3\)"),
        (lambda: 1 in INPUT.lines, r"in_\(a, b\)"),
        (lambda: INPUT.a in (1, 2), r"and_\(a, b\)"),
        (lambda: len(INPUT.lines), r"size\(...\)"),
        (lambda: list(INPUT.lines), "flow.map"),
        (lambda: int(INPUT.a), r"int_\(...\)"),
        (lambda: float(INPUT.a), r"number\(...\)"),
        (lambda: INPUT.lines[-1], r"x\[size\(x\) - 1\]"),
        (lambda: INPUT.lines[1:], "no slices"),
        (lambda: INPUT.user.upper(), "cannot be called"),
        (lambda: f"{INPUT.total:.2f}", "format '.2f'"),
        (lambda: (INPUT.a > 1) & 2, "needs parentheses"),
        (lambda: INPUT.a + {1, 2}, "cannot stand in an expression"),
        (lambda: setattr(INPUT, "total", 1), "cannot be set"),
        (lambda: {INPUT.a: 1}, "unhashable"),
    ],
)
def test_what_has_no_value_yet_is_refused_with_what_to_write_instead(use: Callable[[], object], instead: str) -> None:
    with pytest.raises(TypeError, match=instead):
        use()
