"""What expressions know beyond operators, as functions of Python. Each returns what stands for the result.

They are typed as Any, for an expression may stand wherever a value of its type may.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.authoring.expressions import (
    Binding,
    Expr,
    all_of,
    called,
    conditional,
    invoked,
    joined,
    macro,
    negated,
    text_of,
)

item: Any = Expr("item", what="item")
"""In a map: the element."""
index: Any = Expr("index", what="index")
"""In a map: the number of the element, from 0."""
event: Any = Expr("event", what="event")
"""In the `match` of a wait: the body of the event."""
default: Any = Expr("default", what="default")
"""In the input of a step or a handler: what it would be given without."""
secret: Any = Expr("secret", what="secret")
"""In the headers of an http step: `secret.NAME`."""

_VARIABLES = ("x", "y")  # of macros: one may stand within another, and no deeper


def expression(text: str) -> Any:
    """An expression that is written in CEL."""
    return Expr(f"({text})")


def and_(*conditions: Any) -> Any:
    """Whether all of them hold."""
    return all_of("&&", Binding.AND, *conditions)


def or_(*conditions: Any) -> Any:
    """Whether one of them holds."""
    return all_of("||", Binding.OR, *conditions)


def not_(condition: Any) -> Any:
    return negated(condition)


def if_(condition: Any, then: Any, otherwise: Any) -> Any:
    """One of two values."""
    return conditional(condition, then, otherwise)


def in_(value: Any, of: Any) -> Any:
    """Whether the value is an element of the array, or a key of the object."""
    found = joined(Binding.RELATION, "in", value, of)
    return Expr(f"({text_of(found)})", of=bool)


def size(of: Any) -> Any:
    """How many characters, elements or keys it has."""
    return called("size", of, of=int)


def has(field: Any) -> Any:
    """Whether there is this field: `has(flow.input.discount)`."""
    return called("has", field, of=bool)


def contains(text: Any, part: Any) -> Any:
    """Whether the part stands in the text."""
    return invoked("contains", text, part, of=bool)


def matches(text: Any, pattern: str) -> Any:
    """Whether the pattern (RE2) is found in the text."""
    return invoked("matches", text, pattern, of=bool)


def int_(value: Any) -> Any:
    """As an integer, without what stands after the point."""
    return called("int", value, of=int)


def number(value: Any) -> Any:
    """As a decimal."""
    return called("double", value, of=float)


def string(value: Any) -> Any:
    return called("string", value, of=str)


def timestamp(value: Any) -> Any:
    """The time in a text of RFC 3339."""
    return called("timestamp", value)


def duration(value: Any) -> Any:
    """The time span in a text such as `45m`."""
    return called("duration", value)


def any_(of: Any, condition: Callable[[Any], Any]) -> Any:
    """Whether the condition holds for one of the elements: `any_(flow.input.lines, lambda line: line.n > 1)`."""
    return _macro("exists", of, condition)


def all_(of: Any, condition: Callable[[Any], Any]) -> Any:
    """Whether the condition holds for each of the elements."""
    return _macro("all", of, condition)


def filter_(of: Any, condition: Callable[[Any], Any]) -> Any:
    """The elements for which the condition holds."""
    return _macro("filter", of, condition)


def map_(of: Any, value: Callable[[Any], Any]) -> Any:
    """An array of the values of all elements."""
    return _macro("map", of, value)


_open: list[str] = []


def _macro(name: str, of: Any, each: Callable[[Any], Any]) -> Any:
    variable = _VARIABLES[min(len(_open), 1)]
    _open.append(variable)
    try:
        return macro(name, of, each, variable)
    finally:
        _open.pop()
