"""Encodes what a task function returns as JSON; values that JSON cannot represent are refused."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from enum import Enum
from typing import Any

import msgspec
import orjson


class NoJson(TypeError):
    """The value cannot be written as JSON; the text says why."""


def as_json(value: Any) -> bytes:
    """Dataclasses, msgspec.Struct, models of pydantic, dates, UUIDs and enums included, wherever they stand. Raises
    NoJson, also for NaN and infinities."""
    try:
        body = orjson.dumps(value, default=_of_struct)
    except orjson.JSONEncodeError as error:
        raise NoJson(str(error)) from error
    # orjson writes such a number as null: search for one only where there is a null.
    if b"null" in body and (number := _strange_number(value)) is not None:
        raise NoJson(f"{number} is no number of JSON")
    return body


def _of_struct(value: Any) -> Any:
    """A struct or a model in its own encoding, with its names and tags; bytes in it are refused, as everywhere else."""
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value, builtin_types=(bytes, bytearray, memoryview), enc_hook=_of_struct)
    if _is_model(value):
        return value.model_dump(mode="json", by_alias=True)
    raise TypeError(f"Type is not JSON serializable: {type(value).__name__}")


def _is_model(value: Any) -> bool:
    """Whether it is a model of pydantic, which is not imported for this."""
    return hasattr(type(value), "__pydantic_fields__")


def _strange_number(value: Any) -> float | None:
    """The first number in the value that is not finite."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, float) and not math.isfinite(one):
            return one
        waiting.extend(_parts(one))
    return None


def _parts(value: Any) -> Iterable[Any]:
    match value:
        case dict():
            return value.values()
        case list() | tuple() | set() | frozenset():
            return value
        case Enum():
            return (value.value,)
        case msgspec.Struct():
            return (getattr(value, name) for name in value.__struct_fields__)
        case _ if _is_model(value):
            return list(vars(value).values())
        case _ if dataclasses.is_dataclass(value):
            return (getattr(value, field.name) for field in dataclasses.fields(value))
        case _:
            return ()
