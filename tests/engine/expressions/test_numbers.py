"""Integers and decimals of JSON compare and calculate as numbers."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.errors import ExpressionFailed
from tests.engine.expressions.values import reason, rendered, value_of

INTS = st.integers(-(2**63), 2**63 - 1)
SMALL = st.integers(-(2**31), 2**31)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
NUMBERS = INTS | FLOATS
OPERATORS = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b}
ORDERS = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


def of(text: str, **numbers: Any) -> Any:
    return value_of(text, json.dumps(numbers))


def test_an_integer_beside_a_decimal_becomes_one() -> None:
    assert of("input.price * 1.5", price=10) == 15.0
    assert of("input.n == 10", n=10.0) is True
    assert of("input.n in [1.0, 2.0]", n=2) is True
    assert of("[1, 2.0] == [input.a, input.b]", a=1.0, b=2) is True
    assert of("{'a': 1} == {'a': input.a}", a=1.0) is True


@given(INTS)
def test_an_integer_of_64_bits_passes_exactly(number: int) -> None:
    assert rendered("${{ [input.n] }}", json.dumps({"n": number})) == b"[%d]" % number
    assert rendered("${{ input.n + 0 }}", json.dumps({"n": number})) == b"%d" % number


@given(st.integers(-(10**40), 10**40))
def test_a_larger_integer_passes_as_it_is_and_compares(number: int) -> None:
    assert rendered("${{ [input.n] }}", json.dumps({"n": number})) == b"[%d]" % number
    assert of("input.n < input.m && input.n != input.m", n=number, m=number + 1) is True


@given(SMALL, SMALL, st.sampled_from(sorted(OPERATORS)))
def test_integers_calculate_exactly(left: int, right: int, operator: str) -> None:
    found = of(f"input.a {operator} input.b", a=left, b=right)

    assert found == OPERATORS[operator](left, right)
    assert type(found) is int


@given(NUMBERS, NUMBERS, st.sampled_from(sorted(ORDERS)))
def test_numbers_compare_by_value_whatever_their_type(left: float, right: float, operator: str) -> None:
    assert of(f"input.a {operator} input.b", a=left, b=right) is ORDERS[operator](Fraction(left), Fraction(right))


@given(SMALL, FLOATS, st.sampled_from(sorted(OPERATORS)), st.booleans())
def test_mixed_numbers_calculate_as_decimals(whole: int, decimal: float, operator: str, swapped: bool) -> None:
    left, right = (decimal, whole) if swapped else (whole, decimal)
    expected = OPERATORS[operator](float(left), float(right))
    if math.isfinite(expected):
        found = of(f"input.a {operator} input.b", a=left, b=right)
        assert (found, type(found)) == (expected, float)
    else:
        assert reason(f"input.a {operator} input.b", json.dumps({"a": left, "b": right})).endswith("JSON cannot say")


@given(SMALL, SMALL.filter(bool))
def test_a_division_of_integers_goes_towards_zero_and_its_remainder_fits(left: int, right: int) -> None:
    found = of("[input.a / input.b, input.a % input.b]", a=left, b=right)

    assert found == [math.trunc(Fraction(left, right)), int(math.fmod(left, right))]


@pytest.mark.parametrize(
    "text", ["input.n + 1", "-(-input.n - 1)", "input.n * 2", "(-input.n - 1) / -1", "input.n + input.n"]
)
def test_what_is_calculated_stays_within_64_bits(text: str) -> None:
    assert reason(text, json.dumps({"n": 2**63 - 1})) == "an integer beyond 64 bits comes out"


def test_true_is_no_number() -> None:
    assert (
        of("dyn(true) == 1 || input.a == true || dyn(true) in [1, 1.0] || dyn({'a': true}) == {'a': 1}", a=1) is False
    )
    with pytest.raises(ExpressionFailed, match=r'"\+" does not go with a boolean and a number'):
        of("input.a + 1", a=True)


def test_a_decimal_stays_one_even_if_it_is_whole() -> None:
    assert rendered({"a": "${{ input.n }}", "b": "${{ [input.n][0] * 1 }}"}, '{"n": 10.0}') == b'{"a":10.0,"b":10.0}'


def test_numbers_as_text_are_those_of_json() -> None:
    text = "${{ input.a }} ${{ input.b }} ${{ input.c }}"

    assert rendered(text, '{"a": 10, "b": 10.0, "c": 0.1}') == b'"10 10.0 0.1"'
