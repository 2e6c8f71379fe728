"""Converts forms that senders of webhooks post into JSON.

GitHub (as an option) and Slack's buttons send one field `payload` that contains JSON; Slack's commands send several
fields.
"""

from __future__ import annotations

from urllib.parse import parse_qsl

import orjson

from penstock.config.limits import WEBHOOK_BYTES_MAX
from penstock.engine.errors import Invalid, TooLarge
from penstock.http.messages import bodies

FORM = "application/x-www-form-urlencoded"
FIELDS_MAX = 1000
PAYLOAD = "payload"


def as_json(body: bytes, content_type: str | None) -> tuple[bytes, object]:
    """The JSON in a body, and its value: as it is, whatever it is called, else out of a form. Raises Invalid,
    TooLarge."""
    try:
        return body, bodies.parse(body)
    except Invalid:
        if (content_type or "").partition(";")[0].strip().lower() != FORM or not body:
            raise
    fields = _fields(body)
    if fields.keys() == {PAYLOAD} and isinstance(payload := fields[PAYLOAD], str):
        return payload.encode(), bodies.parse(payload.encode())
    document = orjson.dumps(fields)
    if len(document) > WEBHOOK_BYTES_MAX:
        raise TooLarge(f"the form has {len(document)} bytes as JSON, {WEBHOOK_BYTES_MAX} is the most")
    return document, fields


def _fields(body: bytes) -> dict[str, str | list[str]]:
    """Each field by its name; one that comes several times is an array."""
    try:
        pairs = parse_qsl(
            body.decode(), keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=FIELDS_MAX
        )
    except ValueError as error:  # also of a decoder
        raise Invalid("the body is neither JSON nor a form that can be read") from error
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}
