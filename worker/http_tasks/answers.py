"""From an answer to the step's output, or to its failure."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

import httpcore2

from penstock.config.limits import DAY_S, PAYLOAD_BYTES_MAX
from penstock.engine.definition.http_requests import is_expected
from penstock.engine.definition.identifiers import shown
from penstock.worker.http_tasks import bodies
from penstock.worker.http_tasks.bodies import BadPacking, header
from penstock.worker.http_tasks.request import HttpRequest
from penstock.worker.http_tasks.secret_store import UsedSecrets
from penstock.worker.http_tasks.sending import BROKEN, broken_by
from penstock.worker.tasks.failures import NonRetriable, Retriable, RetryAfter

RETRY_AFTER_S_MAX = float(DAY_S)  # a server may not put a run off for years
EXCERPT_BYTES_MAX = 4096
EXCERPT_CHARS_MAX = 500
RETRIABLE = (408, 429)
SEVERAL = "set-cookie"  # the one field whose values no comma may join


async def output_of(request: HttpRequest, response: httpcore2.Response, secrets: UsedSecrets) -> dict[str, Any]:
    """`{status, headers, body}` of an expected answer. Raises Retriable, RetryAfter and NonRetriable for any other."""
    if not is_expected(response.status, request.expect):
        raise _unexpected(response, await _description(request, response))
    body = secrets.hidden_bytes(await _body(request, response))
    return {
        "status": response.status,
        "headers": _headers(response, secrets),
        "body": bodies.decoded(body, header(response, "content-type"), header(response, "content-encoding")),
    }


def retry_after_s(value: str, date: str) -> float | None:
    """The seconds of a Retry-After field, at most a day; None for one that cannot be read. `date` is the answer's own
    Date: a time is meant by that clock."""
    if value.isascii() and value.isdigit():
        return min(float(value[:12]), RETRY_AFTER_S_MAX)
    until = _time(value)
    if until is None:
        return None
    return min(max(0.0, (until - (_time(date) or datetime.now(UTC))).total_seconds()), RETRY_AFTER_S_MAX)


def _unexpected(response: httpcore2.Response, text: str) -> Exception:
    if response.status not in RETRIABLE and response.status < 500:
        return NonRetriable(text)
    delay_s = retry_after_s(header(response, "retry-after"), header(response, "date"))
    return Retriable(text) if delay_s is None else RetryAfter(delay_s, text)


async def _description(request: HttpRequest, response: httpcore2.Response) -> str:
    """What was answered, with the begin of a body that is text."""
    try:
        body = (await bodies.read(response, EXCERPT_BYTES_MAX))[:EXCERPT_BYTES_MAX]
    except (*BROKEN, BadPacking):
        body = b""
    text = body.decode(errors="replace").strip() if b"\0" not in body else ""
    return f"{request.text} answered {_status(response.status)}" + (
        f": {shown(text, EXCERPT_CHARS_MAX)}" if text else ""
    )


def _status(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


async def _body(request: HttpRequest, response: httpcore2.Response) -> bytes:
    try:
        body = await bodies.read(response, PAYLOAD_BYTES_MAX + 1)
    except BROKEN as error:
        raise Retriable(f"the answer to {request.text} broke off: {broken_by(error)}") from None
    except BadPacking as error:
        raise Retriable(f"the answer to {request.text} cannot be unpacked: {error}") from None
    if len(body) > PAYLOAD_BYTES_MAX:
        raise NonRetriable(f"the answer to {request.text} has more than {PAYLOAD_BYTES_MAX} bytes, which is the most")
    return body


def _headers(response: httpcore2.Response, secrets: UsedSecrets) -> dict[str, str | list[str]]:
    """Names in lower case; several fields of one name joined by commas, cookies as a list."""
    found: dict[str, list[str]] = {}
    for name, value in response.headers:
        found.setdefault(name.lower().decode(), []).append(secrets.hidden_bytes(value).decode(errors="replace"))
    return {name: values if name == SEVERAL else ", ".join(values) for name, values in found.items()}


def _time(text: str) -> datetime | None:
    """The time of an HTTP date."""
    try:
        found = parsedate_to_datetime(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
