"""What a response means: its body as a struct, or the engine's error that its status stands for.

400 is Invalid, 401 Denied, 403 Forbidden, 404 NotFound, 409 Conflict, 413 TooLarge, 503 Unavailable, anything else that
is no success PenstockError. Without a response it is Unavailable, or Unreachable when the request was not even sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import httpx2
import msgspec
from msgspec import Raw

from penstock.client.views import EventView
from penstock.engine import errors

ERRORS: Mapping[int, type[errors.PenstockError]] = {
    401: errors.Denied,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    413: errors.TooLarge,
    503: errors.Unavailable,
}

T = TypeVar("T")


class Unreachable(errors.Unavailable):
    """No service listens at that address: the request was not sent."""


class LostError(Exception):
    """A stream broke after it had begun."""


def check(response: httpx2.Response) -> None:
    """Raise the error that a response stands for; its body must have been read."""
    if response.is_success:
        return
    text = response.text.strip() or f"the service answered {response.status_code} {response.reason_phrase}"
    if response.status_code == httpx2.codes.BAD_REQUEST:
        raise errors.Invalid(*text.splitlines())
    raise ERRORS.get(response.status_code, errors.PenstockError)(text)


def decode(response: httpx2.Response, kind: type[T]) -> T:
    """The body as `kind`. Raises PenstockError when it is something else."""
    try:
        return msgspec.json.decode(response.content, type=kind)
    except msgspec.MsgspecError as error:
        raise errors.PenstockError(f"{response.url} answered what this client cannot read: {error}") from error


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
    """Translate the errors of a request that has no response. Raises Unreachable, Unavailable."""
    try:
        yield
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        raise Unreachable(f"the service cannot be reached: {_text(error)}") from error
    except httpx2.RequestError as error:
        raise errors.Unavailable(f"no answer from the service, what it did is unknown: {_text(error)}") from error


@contextmanager
def translated_stream(response: httpx2.Response) -> Iterator[None]:
    """Translate the errors of a stream that has begun. Raises LostError, or PenstockError when it is unreadable."""
    try:
        yield
    except (httpx2.SSEError, msgspec.MsgspecError, ValueError) as error:
        raise errors.PenstockError(f"{response.url} answered a stream that this client cannot read: {error}") from error
    except httpx2.TransportError as error:
        raise LostError from error


def _text(error: httpx2.RequestError) -> str:
    return f"{error.request.url}: {str(error) or type(error).__name__}"
