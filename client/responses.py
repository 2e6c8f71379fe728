"""What a response means: its body as a struct, or the error that its status stands for (sending/errors.py).

Without a response it is UnavailableError, or Unreachable when the request was not even sent.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from typing import TypeVar

import httpx2
import msgspec
from msgspec import Raw, Struct

from penstock.client.sending.errors import BY_STATUS, NotFoundError, ServiceError, UnavailableError, Unreachable
from penstock.client.views import EventView

PROBLEM = "application/problem+json"
PROBLEM_TYPE = "urn:penstock:problem:"
NOT_RUNNING = "Is it running? `penstock serve` starts it; `base_url` of the client says where it is."

T = TypeVar("T")


class ErrorBody(Struct, frozen=True):
    """RFC 9457, as far as it is read. `missing` is what the request names and does not exist, where the status does not
    say so: a workflow."""

    type: str = ""
    problems: list[str] = []
    missing: str = ""

    @property
    def code(self) -> str | None:
        """The permanent name of the kind of error, if the response has it."""
        return self.type.removeprefix(PROBLEM_TYPE) or None


class LostError(Exception):
    """A stream broke after it had begun."""


def check(response: httpx2.Response) -> None:
    """Raise the error that a response stands for; its body must have been read."""
    if response.is_success:
        return
    found = problem(response)
    kind = NotFoundError if found.missing else BY_STATUS.get(response.status_code, ServiceError)
    raise kind(
        *found.problems,
        status=response.status_code,
        code=found.code,
        request=_request(response.request),
        retry_after_s=_retry_after_s(response.headers.get("Retry-After", "")),
    )


def problem(response: httpx2.Response) -> ErrorBody:
    """What is wrong, by an error response: one text or more."""
    if response.headers.get("Content-Type", "").startswith(PROBLEM):
        with suppress(msgspec.MsgspecError):
            found = msgspec.json.decode(response.content, type=ErrorBody)
            if found.problems:
                return found
    text = response.text.strip() or f"the service answered {response.status_code} {response.reason_phrase}"
    return ErrorBody(problems=text.splitlines())


def _retry_after_s(text: str) -> float | None:
    """The seconds of a Retry-After header, which has a number or a date; None without one that can be read."""
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except ValueError:
        return None


def _request(request: httpx2.Request) -> str:
    return f"{request.method} {request.url.path}"


def decode(response: httpx2.Response, kind: type[T]) -> T:
    """The body as `kind`. Raises ServiceError when it is something else."""
    try:
        return msgspec.json.decode(response.content, type=kind)
    except msgspec.MsgspecError as error:
        raise ServiceError(
            f"{response.url} answered what this client cannot read: {error}",
            status=response.status_code,
            request=_request(response.request),
        ) from error


def next_page(response: httpx2.Response) -> httpx2.URL | None:
    """Where the Link header of one page says that the next one is; None for the last page."""
    link = response.links.get("next")
    return response.url.join(link["url"]) if link else None


def event(message: httpx2.ServerSentEvent) -> EventView | None:
    """The event of a message in a stream; None for a message without one, which only keeps the connection open."""
    if not message.id:
        return None
    fields = msgspec.json.decode(message.data, type=dict[str, Raw])
    return msgspec.json.decode(msgspec.json.encode({**fields, "seq": int(message.id)}), type=EventView)


@contextmanager
def translated() -> Iterator[None]:
    """Translate the errors of a request that has no response. Raises Unreachable, also when all connections were in use
    for too long, UnavailableError."""
    try:
        yield
    except httpx2.PoolTimeout as error:
        raise Unreachable(
            f"all connections of the client were in use for too long: {_text(error)}", request=_request(error.request)
        ) from None
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        unreachable = Unreachable(f"the service cannot be reached: {_text(error)}", request=_request(error.request))
        unreachable.add_note(NOT_RUNNING)
        raise unreachable from None  # the errors of the layers below say no more, in eighty lines
    except httpx2.RequestError as error:
        raise UnavailableError(
            f"no answer from the service, what it did is unknown: {_text(error)}", request=_request(error.request)
        ) from error


@contextmanager
def translated_stream(response: httpx2.Response) -> Iterator[None]:
    """Translate the errors of a stream that has begun. Raises LostError, or ServiceError when it is unreadable."""
    try:
        yield
    except (httpx2.SSEError, msgspec.MsgspecError, ValueError) as error:
        raise ServiceError(
            f"{response.url} answered a stream that this client cannot read: {error}",
            status=response.status_code,
            request=_request(response.request),
        ) from error
    except httpx2.TransportError as error:
        raise LostError from error


def _text(error: httpx2.RequestError) -> str:
    return f"{error.request.url}: {str(error) or type(error).__name__}"
