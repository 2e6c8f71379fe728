"""The functions and methods of the standard library of CEL, by name; those of timestamps and durations are in
instants.py."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from penstock.engine.definition.identifiers import quoted
from penstock.engine.expressions.evaluation.comparing import LISTS, MAPS, NUMBERS, kind_of, type_of
from penstock.engine.expressions.evaluation.failures import EvaluationError
from penstock.engine.expressions.evaluation.instants import (
    SECOND_NS,
    TIMESTAMP_PARTS,
    TimeSpan,
    Timestamp,
    part_of_span,
    part_of_timestamp,
    read_time_span,
    read_timestamp,
    timestamp,
)
from penstock.engine.expressions.evaluation.operators import INT_MAX, INT_MIN
from penstock.engine.expressions.evaluation.patterns import matches
from penstock.engine.expressions.evaluation.state import COPY_WORK, Evaluation

UINT_MAX = (1 << 64) - 1
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,5})?", re.ASCII)
_WORDS = {
    **dict.fromkeys(("true", "True", "TRUE", "t", "1"), True),
    **dict.fromkeys(("false", "False", "FALSE", "f", "0"), False),
}

Function = Callable[..., Any]
"""Takes the evaluation, then what it is called on if it is a method, then its arguments."""


def size(_run: Evaluation, value: Any) -> int:
    """Characters of a string, bytes, elements of a list, entries of a map."""
    if type(value) is str or type(value) is bytes or type(value) in LISTS or type(value) in MAPS:
        return len(value)
    raise _cannot("size", value)


def contains(run: Evaluation, text: Any, part: Any) -> bool:
    _strings("contains", text, part)
    run.spend(len(text))
    return part in text


def starts_with(run: Evaluation, text: Any, part: Any) -> bool:
    _strings("startsWith", text, part)
    run.spend(len(part))
    return bool(text.startswith(part))


def ends_with(run: Evaluation, text: Any, part: Any) -> bool:
    _strings("endsWith", text, part)
    run.spend(len(part))
    return bool(text.endswith(part))


def matches_pattern(run: Evaluation, text: Any, pattern: Any) -> bool:
    _strings("matches", text, pattern)
    return matches(run, text, pattern)


def to_int(run: Evaluation, value: Any) -> int:
    return _integer(run, "int", value, INT_MIN, INT_MAX)


def to_uint(run: Evaluation, value: Any) -> int:
    return _integer(run, "uint", value, 0, UINT_MAX)


def _integer(run: Evaluation, name: str, value: Any, least: int, most: int) -> int:
    found = _as_integer(run, name, value)
    if not least <= found <= most:
        raise EvaluationError(f"{name}(): the number is beyond 64 bits" if least else f"{name}(): out of range")
    return found


def _as_integer(_run: Evaluation, name: str, value: Any) -> int:
    match value:
        case bool():
            raise _cannot(name, value)
        case int():
            return value
        case float() if math.isfinite(value):
            return int(value)
        case str() if _INTEGER.fullmatch(value):
            return int(value)
        case Timestamp():
            return value.ns // SECOND_NS
        case str():
            raise EvaluationError(f"{name}(): {quoted(value)} is no integer")
        case _:
            raise _cannot(name, value)


def to_double(_run: Evaluation, value: Any) -> float:
    if type(value) in NUMBERS:
        try:
            return float(value)
        except OverflowError as error:
            raise EvaluationError("double(): the integer is too large") from error
    if type(value) is str:
        if _DECIMAL.fullmatch(value):
            return float(value)
        raise EvaluationError(f"double(): {quoted(value)} is no number")
    raise _cannot("double", value)


def to_string(run: Evaluation, value: Any) -> str:
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return repr(value).removesuffix(".0")
        case bytes():
            run.spend(COPY_WORK * len(value))
            return _decoded(value)
        case Timestamp() | TimeSpan():
            return value.text()
        case _:
            raise _cannot("string", value)


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise EvaluationError("string(): the bytes are no UTF-8") from error


def to_bytes(run: Evaluation, value: Any) -> bytes:
    if type(value) is bytes:
        return value
    if type(value) is not str:
        raise _cannot("bytes", value)
    run.spend(COPY_WORK * len(value))
    return value.encode("utf-8", "surrogatepass")


def to_bool(_run: Evaluation, value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    if type(value) is str and value in _WORDS:
        return _WORDS[value]
    raise _cannot("bool", value) if type(value) is not str else EvaluationError(f"bool(): {quoted(value)} is none")


def to_timestamp(_run: Evaluation, value: Any) -> Timestamp:
    """Of RFC 3339 text, or of seconds since 1970."""
    if type(value) is int:
        return timestamp(value * SECOND_NS)
    if type(value) is str:
        return read_timestamp(value)
    if type(value) is Timestamp:
        return value
    raise _cannot("timestamp", value)


def to_duration(_run: Evaluation, value: Any) -> TimeSpan:
    """Of duration text, which may begin with `-`."""
    if type(value) is str:
        return read_time_span(value)
    if type(value) is TimeSpan:
        return value
    raise _cannot("duration", value)


def _part(name: str) -> Function:
    def part(_run: Evaluation, value: Any, zone: Any = "UTC") -> int:
        if type(zone) is not str:
            raise _cannot(name, zone)
        if type(value) is Timestamp:
            return part_of_timestamp(name, value, zone)
        if type(value) is TimeSpan and name in _OF_SPANS:
            return part_of_span(name, value)
        raise _cannot(name, value)

    return part


def _strings(name: str, text: object, part: object) -> None:
    if type(text) is not str or type(part) is not str:
        raise _cannot(name, part if type(text) is str else text)


def _cannot(name: str, value: object) -> EvaluationError:
    return EvaluationError(f"{name}() cannot take {kind_of(value)}")


_OF_SPANS = frozenset({"getHours", "getMinutes", "getSeconds", "getMilliseconds"})
_PARTS = (*TIMESTAMP_PARTS, "getMilliseconds")
CALL_WORK = {"matches": 8_000, "duration": 16_000, "timestamp": 3_000, **dict.fromkeys(_PARTS, 3_000)}
"""Of functions that take long by themselves, in the units of state.py."""
FUNCTIONS: dict[str, Function] = {
    "size": size,
    "matches": matches_pattern,
    "int": to_int,
    "uint": to_uint,
    "double": to_double,
    "string": to_string,
    "bytes": to_bytes,
    "bool": to_bool,
    "timestamp": to_timestamp,
    "duration": to_duration,
    "dyn": lambda _run, value: value,
    "type": lambda _run, value: type_of(value),
}
METHODS: dict[str, Function] = {
    "size": size,
    "contains": contains,
    "startsWith": starts_with,
    "endsWith": ends_with,
    "matches": matches_pattern,
    **{name: _part(name) for name in _PARTS},
}
ARITIES = {
    **{(name, False): range(2 if name == "matches" else 1, 3 if name == "matches" else 2) for name in FUNCTIONS},
    **{(name, True): range(2) if name in _PARTS else range(1, 2) for name in METHODS},
    ("size", True): range(1),
}
"""From the name of a function, and whether it is a method, to how many arguments it takes."""
