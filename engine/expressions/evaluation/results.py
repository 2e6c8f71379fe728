"""What becomes of a value that an expression gave: compact JSON, or text."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from penstock.config.limits import EXPRESSION_RESULT_BYTES_MAX
from penstock.engine.expressions.evaluation.comparing import BuiltList, BuiltMap, TypeName, kind_of, shown_key
from penstock.engine.expressions.evaluation.failures import BoundExceeded, EvaluationError
from penstock.engine.expressions.evaluation.instants import TimeSpan, Timestamp

_encode = msgspec.json.Encoder().encode


def plain(value: Any) -> Any:
    """The value as JSON has it, in Python: timestamps and durations are text. Bounded like `json_of` is, but for a list
    or map that was given and is passed on."""
    return value if type(value) in _AS_THEY_ARE else msgspec.json.decode(json_of(value))


def json_of(value: Any, most: int = EXPRESSION_RESULT_BYTES_MAX) -> bytes:
    """Compact JSON of at most `most` bytes. Raises EvaluationError for what JSON cannot say (bytes, NaN, infinity,
    types, keys that are no strings), BoundExceeded for more bytes."""
    writer = _Writer(most)
    writer.write(value)
    return b"".join(writer.parts)


def text_of(value: Any) -> str:
    """The value as it stands in a longer text: a string as it is, a timestamp in RFC 3339, a duration as duration text,
    anything else as compact JSON."""
    if type(value) is str:
        return value
    if type(value) in _TEXTS:
        return str(value.text())
    return json_of(value).decode()


class _Writer:
    """Writes one value; stops as soon as it is too large, so that an expression that names a large value a thousand
    times costs no more than the limit."""

    __slots__ = ("_left", "_most", "parts")

    def __init__(self, most: int) -> None:
        self._most = self._left = most
        self.parts: list[bytes] = []

    def write(self, value: Any) -> None:
        kind = type(value)
        if kind is BuiltList:
            self._list(value)
        elif kind is BuiltMap:
            self._map(value)
        elif kind in _TEXTS:
            self._put(_encode(value.text()))
        elif kind in _NO_JSON or (kind is float and not math.isfinite(value)):
            raise EvaluationError(f"the result has {_shown(value)}, which JSON cannot say")
        else:
            self._put(_encode(value))

    def _list(self, items: BuiltList) -> None:
        before = b"["
        for item in items:
            self._put(before)
            self.write(item)
            before = b","
        self._put(b"]" if items else b"[]")

    def _map(self, entries: BuiltMap) -> None:
        before = b"{"
        for key, value in entries.items():
            if type(key) is not str:
                raise EvaluationError(f"the result has the key {shown_key(key)}: in JSON, keys are strings")
            self._put(before + _encode(key) + b":")
            self.write(value)
            before = b","
        self._put(b"}" if entries else b"{}")

    def _put(self, part: bytes) -> None:
        self._left -= len(part)
        if self._left < 0:
            raise BoundExceeded(f"the result has more than {self._most} bytes")
        self.parts.append(part)


def _shown(value: Any) -> str:
    if type(value) is not float:
        return kind_of(value)
    return "NaN (what comes of 0.0 / 0.0)" if math.isnan(value) else "infinity (what comes of 1.0 / 0.0)"


_AS_THEY_ARE = frozenset({dict, list, bool, int, type(None)})
_TEXTS = frozenset({Timestamp, TimeSpan})
_NO_JSON = frozenset({bytes, TypeName})
