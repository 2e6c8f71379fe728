"""Null in an optional field means absent: used to read documents that other programs write."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, get_args

import msgspec
from msgspec import Raw, Struct

_OBJECT = msgspec.json.Decoder(dict[str, Raw])


class _Field(NamedTuple):
    """`kind` is the struct that the field holds, if any; `any` is true where null is a value like any other."""

    required: bool
    kind: type[Struct] | None
    any: bool


def without_nulls(document: bytes | Raw, kind: type[Struct]) -> bytes:
    """The JSON object without optional fields that are null, also in objects within it.

    Fields of any JSON and unknown fields stay as they are. Raises msgspec.MsgspecError when it is not an object.
    """
    fields = _fields(kind)
    kept = {}
    for name, value in _OBJECT.decode(document).items():
        field = fields.get(name)
        if field is None or field.any or field.required or bytes(value) != b"null":
            inner = None if field is None else field.kind
            kept[name] = value if inner is None or _is_plain(value) else Raw(without_nulls(value, inner))
    return msgspec.json.encode(kept)


def _is_plain(value: Raw) -> bool:
    """Whether it is null, or text where an object may stand, too: the decoder refuses it where it may not."""
    return bytes(memoryview(value)[:1]) in (b"n", b'"')


@cache
def _fields(kind: type[Struct]) -> dict[str, _Field]:
    return {field.encode_name: _field(field.required, field.type) for field in msgspec.structs.fields(kind)}


def _field(required: bool, annotation: Any) -> _Field:
    parts = get_args(annotation) or (annotation,)
    inner = next((part for part in parts if isinstance(part, type) and issubclass(part, Struct)), None)
    return _Field(required, inner, Raw in parts)
