"""How an event is told from others of its name: by the value at one place in its body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson


class NoValue(Exception):
    """There is nothing at that place, or nothing that can be compared."""


def key_of(value: Any) -> bytes:
    """Text that is the same for equal JSON values only: numbers by their value (1 and 1.0 are equal, 1 and "1" are
    not), objects whatever the order of their fields. Raises NoValue for a value that is nested too deep."""
    if isinstance(value, str):
        return orjson.dumps(value)
    try:
        return orjson.dumps(_normal(value), option=orjson.OPT_SORT_KEYS)
    except (RecursionError, TypeError) as error:  # also an integer that is too large
        raise NoValue from error


def key_at(body: Any, field: str) -> bytes:
    """The `key_of` the value at a dot path of a decoded body. Raises NoValue."""
    found = body
    for name in field.split("."):
        if not isinstance(found, Mapping) or name not in found:
            raise NoValue
        found = found[name]
    return key_of(found)


def _normal(value: Any) -> Any:
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {key: _normal(each) for key, each in value.items()}
        case list():
            return [_normal(each) for each in value]
        case _:
            return value
