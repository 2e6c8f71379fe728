"""The run that a trigger event starts: whether a filter accepts the event, the run's input, and the run's id."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import orjson
from msgspec import Raw, UnsetType

from penstock.config.limits import PAYLOAD_BYTES_MAX
from penstock.engine.errors import Invalid, TooLarge
from penstock.engine.trigger.trigger import EventSource, Trigger

_ABSENT = object()
WITHOUT = frozenset({"authorization", "cookie", "proxy-authorization"})  # headers that no run may show


def matches(event: EventSource, body: bytes) -> bool:
    """Whether the event has the field that the filter names, with its value: as JSON, or as its text."""
    if event.field is None:
        return True
    found = _at(event.field, body)
    if found is _ABSENT or isinstance(event.value, UnsetType):
        return found is not _ABSENT
    wanted = orjson.loads(bytes(event.value))
    return _equal(found, wanted) or (isinstance(wanted, str) and _text(found) == wanted)


def run_input(trigger: Trigger, body: bytes) -> Raw:
    """The trigger's own input, else the payload: JSON unchanged, anything else as a JSON string.

    Raises TooLarge for a payload that is too large for a run's input, Invalid for JSON that is nested too deeply.
    """
    if not isinstance(trigger.input, UnsetType):
        return trigger.input
    value = as_json(body)
    if memoryview(value).nbytes > PAYLOAD_BYTES_MAX:
        raise TooLarge(f"the input has {memoryview(value).nbytes} bytes, {PAYLOAD_BYTES_MAX} is the most")
    return value


def request_input(method: str, path: str, query: Mapping[str, Any], headers: Mapping[str, str], body: bytes) -> Raw:
    """The input of the run that a request starts. A body that is no JSON is text. Raises Invalid when it is nested too
    deeply."""
    kept = {name.lower(): value for name, value in headers.items() if name.lower() not in WITHOUT}
    content = orjson.Fragment(bytes(as_json(body))) if body else None
    return Raw(orjson.dumps({"method": method, "path": path, "query": query, "headers": kept, "body": content}))


def run_id(trigger: str, event_name: str) -> str:
    """The id of the one run that this trigger event starts; the same each time."""
    return sha256(f"trigger\n{trigger}\n{event_name}".encode()).hexdigest()[:32]


def as_json(body: bytes) -> Raw:
    """The body if it is JSON, else its text as JSON. Raises Invalid when it is nested too deeply."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return Raw(orjson.dumps(body.decode(errors="replace")))
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise Invalid("the payload is nested too deeply") from error
    return Raw(body)


def _at(path: str, body: bytes) -> Any:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        return _ABSENT
    for name in path.split("."):
        if not isinstance(found, dict) or name not in found:
            return _ABSENT
        found = found[name]
    return found


def _equal(found: Any, wanted: Any) -> bool:
    """JSON equality: all numbers are one type, and a boolean is not a number."""
    return isinstance(found, bool) == isinstance(wanted, bool) and bool(found == wanted)


def _text(found: Any) -> str:
    if isinstance(found, str):
        return found
    try:
        return orjson.dumps(found).decode()
    except orjson.JSONEncodeError:  # nested too deeply to equal the value of a filter
        return ""
