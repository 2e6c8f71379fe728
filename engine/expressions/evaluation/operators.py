"""The operators of expressions: numbers calculate as numbers, whether they are integers or decimals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from penstock.engine.expressions.evaluation.comparing import (
    LISTS,
    MAPS,
    NUMBERS,
    BuiltList,
    compare,
    contained,
    equal,
    kind_of,
    mismatch,
    shown_key,
    usable_as_key,
)
from penstock.engine.expressions.evaluation.failures import EvaluationError
from penstock.engine.expressions.evaluation.instants import TimeSpan, Timestamp, time_span, timestamp
from penstock.engine.expressions.evaluation.state import COPY_WORK, VALUE_WORK, Evaluation

INT_MIN, INT_MAX = -(1 << 63), (1 << 63) - 1

Operator = Callable[[Evaluation, Any, Any], Any]


def whole(value: int) -> int:
    """An integer that was calculated; raises EvaluationError if it is beyond 64 bits."""
    if INT_MIN <= value <= INT_MAX:
        return value
    raise EvaluationError("an integer beyond 64 bits comes out")


def decimal(value: Any) -> float:
    try:
        return float(value)
    except OverflowError as error:
        raise EvaluationError("an integer is too large to become a decimal") from error


def add(run: Evaluation, left: Any, right: Any) -> Any:
    kind, other = type(left), type(right)
    if kind is int and other is int:
        return whole(left + right)
    if kind in NUMBERS and other in NUMBERS:
        return decimal(left) + decimal(right)
    if kind is other and kind in (str, bytes):
        run.spend(COPY_WORK * (len(left) + len(right)))
        return left + right
    if kind in LISTS and other in LISTS:
        run.spend(VALUE_WORK * (len(left) + len(right)))
        return BuiltList([*left, *right])
    return _add_times(left, right)


def _add_times(left: Any, right: Any) -> Timestamp | TimeSpan:
    match left, right:
        case (Timestamp(), TimeSpan()) | (TimeSpan(), Timestamp()):
            return timestamp(left.ns + right.ns)
        case TimeSpan(), TimeSpan():
            return time_span(left.ns + right.ns)
        case _:
            raise mismatch("+", left, right)


def subtract(_run: Evaluation, left: Any, right: Any) -> Any:
    kind, other = type(left), type(right)
    if kind is int and other is int:
        return whole(left - right)
    if kind in NUMBERS and other in NUMBERS:
        return decimal(left) - decimal(right)
    match left, right:
        case Timestamp(), TimeSpan():
            return timestamp(left.ns - right.ns)
        case (Timestamp(), Timestamp()) | (TimeSpan(), TimeSpan()):
            return time_span(left.ns - right.ns)
        case _:
            raise mismatch("-", left, right)


def multiply(_run: Evaluation, left: Any, right: Any) -> Any:
    _numbers("*", left, right)
    if type(left) is int and type(right) is int:
        return whole(left * right)
    return decimal(left) * decimal(right)


def divide(_run: Evaluation, left: Any, right: Any) -> Any:
    """Integers: towards zero. Decimals: as IEEE 754 has it, so that a division by zero gives no number."""
    _numbers("/", left, right)
    if type(left) is int and type(right) is int:
        return whole(_quotient(left, right))
    dividend, divisor = decimal(left), decimal(right)
    if divisor:
        return dividend / divisor
    negative = math.copysign(1, dividend) != math.copysign(1, divisor)
    return math.nan if dividend == 0 or math.isnan(dividend) else -math.inf if negative else math.inf


def remainder(_run: Evaluation, left: Any, right: Any) -> int:
    """Of integers; it has the sign of the dividend."""
    if type(left) is not int or type(right) is not int:
        raise mismatch("%", left, right)
    return whole(left - right * whole(_quotient(left, right)))


def _quotient(left: int, right: int) -> int:
    if right == 0:
        raise EvaluationError("a division by zero")
    size = abs(left) // abs(right)
    return size if (left < 0) == (right < 0) else -size


def _numbers(operator: str, left: Any, right: Any) -> None:
    if type(left) not in NUMBERS or type(right) not in NUMBERS:
        raise mismatch(operator, left, right)


def negative(value: Any) -> Any:
    if type(value) not in NUMBERS:
        raise EvaluationError(f'"-" does not go with {kind_of(value)}')
    return whole(-value) if type(value) is int else -value


def opposite(value: Any) -> bool:
    if value is True or value is False:
        return not value
    raise EvaluationError(f'"!" does not go with {kind_of(value)}')


def item(_run: Evaluation, value: Any, key: Any) -> Any:
    """`value[key]`: an element by its place from 0, or a value by its key."""
    if type(value) in MAPS:
        if usable_as_key(key) and key in value:
            return value[key]
        raise EvaluationError(f"there is no key {shown_key(key)}")
    if type(value) not in LISTS:
        raise EvaluationError(f"{kind_of(value)} has no elements")
    if type(key) not in NUMBERS or key != key // 1:
        raise EvaluationError(f"an element of an array is named by an integer, not by {kind_of(key)}")
    if not 0 <= key < len(value):
        raise EvaluationError(f"there is no element {int(key)} in an array of {len(value)}")
    return value[int(key)]


BINARY: dict[str, Operator] = {
    "_+_": add,
    "_-_": subtract,
    "_*_": multiply,
    "_/_": divide,
    "_%_": remainder,
    "_[_]": item,
    "@in": contained,
    "_==_": equal,
    "_!=_": lambda run, left, right: not equal(run, left, right),
    "_<_": lambda run, left, right: compare(run, "<", left, right) == -1,
    "_<=_": lambda run, left, right: compare(run, "<=", left, right) in (-1, 0),
    "_>_": lambda run, left, right: compare(run, ">", left, right) == 1,
    "_>=_": lambda run, left, right: compare(run, ">=", left, right) in (0, 1),
}
UNARY: dict[str, Callable[[Any], Any]] = {"!_": opposite, "-_": negative}
