"""The values of expressions: what they are called, which are equal, which come first.

A value is what JSON decodes to, or bytes, a Timestamp, a TimeSpan or a TypeName. Integers and decimals are one kind:
numbers. Python's own `==` is not enough, since to it `true` is 1.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from penstock.engine.definition.identifiers import json_type
from penstock.engine.expressions.evaluation.failures import EvaluationError
from penstock.engine.expressions.evaluation.instants import TimeSpan, Timestamp
from penstock.engine.expressions.evaluation.state import VALUE_WORK, Evaluation


class BuiltList(list[Any]):
    """A list that the expression made: its elements may stand in it many times, unlike those of decoded JSON."""


class BuiltMap(dict[Any, Any]):
    """A map that the expression made."""


class TypeName(Struct, frozen=True):
    """The value of `type(x)`, and of `int`, `string`, … by themselves."""

    name: str


PAIR_WORK = 8  # values that take as long as the comparison of two lists or maps by itself
NUMBERS = frozenset({int, float})
LISTS = frozenset({list, BuiltList})
MAPS = frozenset({dict, BuiltMap})
ORDERED = frozenset({str, bool, bytes, Timestamp, TimeSpan})
_CEL_TYPES = {
    type(None): "null_type",
    bool: "bool",
    int: "int",
    float: "double",
    str: "string",
    bytes: "bytes",
    list: "list",
    BuiltList: "list",
    dict: "map",
    BuiltMap: "map",
    Timestamp: "google.protobuf.Timestamp",
    TimeSpan: "google.protobuf.Duration",
    TypeName: "type",
}
_OTHERS = {bytes: "bytes", Timestamp: "a timestamp", TimeSpan: "a duration", TypeName: "a type"}


def kind_of(value: object) -> str:
    """What a user calls the kind of the value, with its article."""
    return _OTHERS.get(type(value)) or json_type(value)


def type_of(value: object) -> TypeName:
    return TypeName(_CEL_TYPES[type(value)])


def equal(run: Evaluation, left: Any, right: Any) -> bool:
    """Whether two values are equal: numbers by value, lists and maps by their contents, other kinds never."""
    kind, other = type(left), type(right)
    if kind in LISTS and other in LISTS:
        return _equal_lists(run, left, right)
    if kind in MAPS and other in MAPS:
        return _equal_maps(run, left, right)
    if kind is other:
        if kind is str or kind is bytes:
            run.spend(min(len(left), len(right)))
        return bool(left == right)
    return bool(kind in NUMBERS and other in NUMBERS and left == right)


def _equal_lists(run: Evaluation, left: list[Any], right: list[Any]) -> bool:
    if len(left) != len(right):
        return False
    run.spend(VALUE_WORK * (len(left) + PAIR_WORK))
    return all(equal(run, mine, yours) for mine, yours in zip(left, right, strict=True))


def _equal_maps(run: Evaluation, left: dict[Any, Any], right: dict[Any, Any]) -> bool:
    if len(left) != len(right):
        return False
    run.spend(VALUE_WORK * (2 * len(left) + PAIR_WORK))
    return all(key in right and equal(run, value, right[key]) for key, value in left.items())


def compare(run: Evaluation, operator: str, left: Any, right: Any) -> int:
    """Below 0, 0 or above 0 as `left` comes before, at or after `right`; NaN comes nowhere: 2, which no comparison
    takes. Raises EvaluationError for what has no order."""
    kind, other = type(left), type(right)
    if (kind is not other and not (kind in NUMBERS and other in NUMBERS)) or kind not in ORDERED | NUMBERS:
        raise mismatch(operator, left, right)
    if kind is str or kind is bytes:
        run.spend(min(len(left), len(right)))
    if left == right:
        return 0
    if left < right:
        return -1
    return 1 if left > right else 2


def contained(run: Evaluation, value: Any, among: Any) -> bool:
    """`value in among`: an element of a list, or a key of a map."""
    if type(among) in MAPS:
        return usable_as_key(value) and value in among
    if type(among) not in LISTS:
        raise mismatch("in", value, among)
    run.spend(VALUE_WORK * len(among))
    if type(value) is str:
        run.spend(len(value) * (among.count(value) if len(value) > VALUE_WORK else 0))
        return value in among
    return any(equal(run, value, each) for each in among)


def usable_as_key(value: object) -> bool:
    """Whether a map may have the value as a key: of a decimal, only one that is whole is ever found."""
    return type(value) in (str, int, float)


def mismatch(operator: str, left: object, right: object) -> EvaluationError:
    return EvaluationError(f'"{operator}" does not go with {kind_of(left)} and {kind_of(right)}')


def shown_key(key: Any) -> str:
    """A key of a map as it is shown in a reason: short."""
    text = f'"{key}"' if type(key) is str else str(key) if type(key) in NUMBERS else kind_of(key)
    return text if len(text) <= 100 else text[:100] + "…"
