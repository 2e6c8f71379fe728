"""Request bodies: read within a limit, checked as JSON, decoded into typed requests that name every offending field."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, TypeVar

import msgspec
import orjson
from falcon.asgi import Request
from msgspec import Raw, Struct
from msgspec.structs import FieldInfo

from penstock.config.limits import BODY_BYTES_MAX, BODY_S_MAX, PAYLOAD_BYTES_MAX
from penstock.engine.definition.identifiers import json_type, quoted, shown
from penstock.engine.definition.report import Report
from penstock.engine.errors import Invalid, TooLarge
from penstock.http.messages.presence import WatchableRequest

DEPTH_MAX = 254  # what orjson writes; all that is stored must be writable and readable by every part

# What the fields of requests are, as JSON calls it.
KINDS: Mapping[Any, tuple[type, str]] = {
    str: (str, "a string"),
    str | None: (str, "a string"),
    bool: (bool, "true or false"),
    int: (int, "a whole number"),
    int | None: (int, "a whole number"),
    list[Raw]: (list, "an array"),
    list[str]: (list, "an array"),
    dict[str, str]: (dict, "an object"),
    dict[str, Raw]: (dict, "an object"),
    dict[str, str] | None: (dict, "an object"),
    list[dict[str, str] | None] | None: (list, "an array"),
}
WHOLE = (int, int | None)
OF_OBJECTS = (list[dict[str, str] | None] | None,)
WITH_STRINGS = (list[str], dict[str, str], dict[str, str] | None)

T = TypeVar("T", bound=Struct)


async def read(req: Request, bytes_max: int = BODY_BYTES_MAX) -> bytes:
    """The whole body. Raises TooLarge, at once if Content-Length is too large; Invalid for a body that is incomplete or
    too slow."""
    length = req.content_length
    if length is not None and length > bytes_max:
        raise TooLarge(f"the body has {length} bytes, {bytes_max} is the most")
    assert isinstance(req, WatchableRequest)
    body = await _read(req, bytes_max) if req.whole is None else req.whole
    if len(body) > bytes_max:
        raise TooLarge(f"the body has more than {bytes_max} bytes")
    if length is not None and len(body) < length:
        raise Invalid(f"the body ended after {len(body)} of {length} bytes")
    if req.incoming.cut_short:  # to the framework, that is an end like any other
        raise Invalid("the body ended before its last chunk")
    req.context.began = time.perf_counter()  # the time that the client took for the body is not counted
    return body


async def _read(req: WatchableRequest, bytes_max: int) -> bytes:
    try:
        async with asyncio.timeout(BODY_S_MAX):
            return await req.stream.read(bytes_max + 1)
    except TimeoutError as late:
        raise Invalid(f"the body did not come within {BODY_S_MAX:g} s") from late


def parse(body: bytes) -> object:
    """The JSON value in a body. Raises Invalid for other bytes, and for JSON that is nested too deeply to be stored."""
    if not body:
        raise Invalid("the body is empty, JSON is needed")
    try:
        value: object = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Invalid(f"the body is not JSON: {shown(str(error))}") from error
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise Invalid(f"the body is nested too deeply, {DEPTH_MAX} levels are the most") from error
    return value


def is_json(body: bytes) -> bool:
    """Whether a payload is JSON, of any depth."""
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    return True


def decode(body: bytes, kind: type[T]) -> T:
    """The request of this kind in a body; its payloads are views into `body`. Raises Invalid that names every wrong
    field."""
    value = parse(body)
    if not isinstance(value, dict):
        raise Invalid(f"the body must be an object, not {json_type(value)}")
    decoder: msgspec.json.Decoder[T] = _decoder(kind)
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise Invalid(*(_problems(kind, value) or [shown(str(error))])) from error


def decode_part(part: Raw, kind: type[T], name: str) -> T:
    """As `decode`, for a value in a body that was parsed as a whole; `name` is its name in errors."""
    decoder: msgspec.json.Decoder[T] = _decoder(kind)
    try:
        return decoder.decode(part)
    except msgspec.ValidationError as error:
        value = orjson.loads(bytes(part))
        problems = (
            _problems(kind, value) if isinstance(value, dict) else [f"{name} must be an object, not {json_type(value)}"]
        )
        raise Invalid(*(problems or [shown(str(error))])) from error


def check_payload(name: str, payload: Raw) -> None:
    """Raises TooLarge for a payload over its limit. Protocol: Names and limits."""
    size = memoryview(payload).nbytes
    if size > PAYLOAD_BYTES_MAX:
        raise TooLarge(f"{name} has {size} bytes, {PAYLOAD_BYTES_MAX} is the most")


@cache
def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(kind)


def _problems(kind: type[Struct], value: dict[str, object]) -> list[str]:
    report = Report()
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    report.add(*(f"unknown field {quoted(name)}" for name in value if name not in fields))
    for name, field in fields.items():
        report.add(*_field_problems(name, field, value.get(name)))
    return report.problems()


def _field_problems(name: str, field: FieldInfo, value: object) -> Iterator[str]:
    if value is None:
        if field.required:
            yield f"{name} is required"
    elif field.type in WHOLE and isinstance(value, bool | float):
        yield f"{name} must be a whole number, not {orjson.dumps(value).decode()}"
    elif field.type in KINDS and not isinstance(value, KINDS[field.type][0]):
        yield f"{name} must be {KINDS[field.type][1]}, not {json_type(value)}"
    elif field.type in OF_OBJECTS:
        assert isinstance(value, list)
        for at, item in enumerate(value):
            if item is not None and not isinstance(item, dict):
                yield f"{name}[{at}] must be an object, not {json_type(item)}"
            elif item is not None:
                yield from _item_problems(f"{name}[{at}]", item)
    elif field.type in WITH_STRINGS:
        yield from _item_problems(name, value)


def _item_problems(name: str, value: object) -> Iterator[str]:
    """Problems of the items of an array or an object of strings."""
    items = [(f"{name} {quoted(key)}", item) for key, item in value.items()] if isinstance(value, dict) else []
    items += [(f"{name}[{at}]", item) for at, item in enumerate(value)] if isinstance(value, list) else []
    for place, item in items:
        if not isinstance(item, str):
            yield f"{place} must be a string, not {json_type(item)}"
