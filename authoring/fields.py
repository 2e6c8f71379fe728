"""Which fields the JSON of a type has: dataclasses, msgspec.Struct, TypedDict, models of pydantic."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

import msgspec

SCALARS = (str, int, float, bool, bytes)
OUTCOMES = "penstock.worker.outcomes"  # what a function may return beside its output


class TypeField(NamedTuple):
    """A field under its name in JSON, with its type."""

    name: str
    type: Any


def fields_of(of: Any) -> Mapping[str, TypeField] | None:
    """The fields under their names in Python; None where nobody can know them."""
    found = [_fields(one) for one in alternatives(of)]
    if not found or any(one is None for one in found):
        return None
    return {name: field for one in found if one is not None for name, field in one.items()}


def element_of(of: Any) -> Any:
    """The type of an array's elements or of an object's values; Any where it is unknown."""
    for one in alternatives(of):
        origin, parts = get_origin(one), get_args(one)
        if isinstance(origin, type) and parts and issubclass(origin, Sequence | set | frozenset):
            return parts[0]
        if isinstance(origin, type) and len(parts) == 2 and issubclass(origin, Mapping):
            return parts[1]
    return Any


def is_array(of: Any) -> bool:
    """Whether the values are certainly arrays."""
    origins = [get_origin(one) or one for one in alternatives(of)]
    return bool(origins) and all(
        isinstance(one, type) and issubclass(one, list | tuple | set | frozenset) for one in origins
    )


def alternatives(of: Any) -> list[Any]:
    """The types of a union without None, and without what is no data."""
    if get_origin(of) is Annotated:
        return alternatives(get_args(of)[0])
    if get_origin(of) in (Union, types.UnionType):
        return [one for part in get_args(of) for one in alternatives(part)]
    is_outcome = getattr(of, "__module__", None) == OUTCOMES
    return [] if of in (None, types.NoneType) or is_outcome else [of]


def _fields(of: Any) -> Mapping[str, TypeField] | None:
    plain = get_origin(of) or of
    if not isinstance(plain, type):
        return None
    if issubclass(plain, SCALARS) or is_array(of):
        return {}
    if typing.is_typeddict(plain):
        return {name: TypeField(name, kind) for name, kind in _hints(plain).items()}
    if issubclass(plain, msgspec.Struct):
        return {field.name: TypeField(field.encode_name, field.type) for field in msgspec.structs.fields(plain)}
    if dataclasses.is_dataclass(plain):
        hints = _hints(plain)
        return {field.name: TypeField(field.name, hints.get(field.name, Any)) for field in dataclasses.fields(plain)}
    if hasattr(plain, "__pydantic_fields__"):
        known: Mapping[str, Any] = plain.__pydantic_fields__
        return {name: TypeField(field.alias or name, field.annotation) for name, field in known.items()}
    return None


def _hints(of: Any) -> dict[str, Any]:
    """The annotations of a class; those that name what is not there stay unknown."""
    try:
        return typing.get_type_hints(of, include_extras=True)
    except NameError:
        return dict.fromkeys(getattr(of, "__annotations__", {}), Any)
