"""The client's connection: requests, pages and streams, with errors translated in this one place.

Error answers and failed connections become the engine's errors: 400 Invalid, 401 Denied, 403 Forbidden, 404 NotFound,
409 Conflict, 413 TooLarge, 503 and no answer Unavailable, anything else PenstockError.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar
from urllib.parse import quote

import httpx2
import msgspec
from msgspec import Raw

from penstock.client.views import EventView
from penstock.config.limits import BODY_BYTES_MAX
from penstock.engine import errors

STREAM_SILENCE_S_MAX = 60.0  # then the connection counts as lost

ERRORS: Mapping[int, type[errors.PenstockError]] = {
    401: errors.Denied,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    413: errors.TooLarge,
    503: errors.Unavailable,
}

T = TypeVar("T")


class Connection:
    """Owned by a client; one connection pool for its lifetime."""

    def __init__(self, base_url: str, token: str | None, timeout_s: float) -> None:
        """Raises Invalid when `base_url` is no http:// or https:// address, or the token cannot be sent."""
        self._timeout_s = timeout_s
        url = _checked_url(base_url)
        if token and not (token.isascii() and token.isprintable()):
            raise errors.Invalid("the token may hold printable ASCII characters only")
        self._http = httpx2.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=timeout_s,
            verify=url.scheme == "https",
            trust_env=url.host not in ("localhost", "127.0.0.1", "::1"),  # no proxy to ourselves
        )

    def close(self) -> None:
        self._http.close()

    def pages(self, url: httpx2.URL, kind: type[T]) -> Iterator[T]:
        following: httpx2.URL | None = url
        while following is not None:
            response = self.send("GET", following)
            yield from decode(response, list[kind])  # type: ignore[valid-type]
            link = response.links.get("next")
            following = response.url.join(link["url"]) if link else None

    @contextmanager
    def stream(self, run_id: str, after: int) -> Iterator[Iterator[EventView]]:
        """The events of one connection. Raises Unavailable when it is not made, LostError when it breaks."""
        timeout = httpx2.Timeout(self._timeout_s, read=STREAM_SILENCE_S_MAX)
        headers = {"Last-Event-ID": str(after)} if after else {}
        path = f"/runs/{segment(run_id)}/events"
        with (
            _translated(),
            self._http.sse(path, headers=headers, timeout=timeout, max_event_size=BODY_BYTES_MAX) as source,
        ):
            if source.response.status_code != httpx2.codes.OK:
                source.response.read()
            _check(source.response)
            yield _events(source)

    def send(
        self, method: str, url: str | httpx2.URL, *, content: bytes = b"", headers: Mapping[str, str] = {}
    ) -> httpx2.Response:
        with _translated():
            response = self._http.request(method, url, content=content, headers=headers)
        _check(response)
        return response


class Unreachable(errors.Unavailable):
    """There is nobody at that address: nothing was done."""


class LostError(Exception):
    """A stream broke after it had begun."""


def _events(source: httpx2.EventSource) -> Iterator[EventView]:
    try:
        for message in source:
            if message.id:
                yield _event(message)
    except (httpx2.SSEError, msgspec.MsgspecError, ValueError) as error:
        raise errors.PenstockError(
            f"{source.response.url} answered a stream that this client cannot read: {error}"
        ) from error
    except httpx2.TransportError as error:
        raise LostError from error


def _event(message: httpx2.ServerSentEvent) -> EventView:
    fields = msgspec.json.decode(message.data, type=dict[str, Raw])
    return msgspec.json.decode(msgspec.json.encode({**fields, "seq": int(message.id)}), type=EventView)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        raise Unreachable(f"the service cannot be reached: {_text(error)}") from error
    except httpx2.RequestError as error:
        raise errors.Unavailable(f"no answer from the service, what it did is unknown: {_text(error)}") from error


def _text(error: httpx2.RequestError) -> str:
    return f"{error.request.url}: {str(error) or type(error).__name__}"


def _check(response: httpx2.Response) -> None:
    """Raise the error that an answer stands for."""
    if response.is_success:
        return
    text = response.text.strip() or f"the service answered {response.status_code} {response.reason_phrase}"
    if response.status_code == httpx2.codes.BAD_REQUEST:
        raise errors.Invalid(*text.splitlines())
    raise ERRORS.get(response.status_code, errors.PenstockError)(text)


def decode(response: httpx2.Response, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(response.content, type=kind)
    except msgspec.MsgspecError as error:
        raise errors.PenstockError(f"{response.url} answered what this client cannot read: {error}") from error


def _checked_url(text: str) -> httpx2.URL:
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL as error:
        raise errors.Invalid(f"{text!r} is no address of a service: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise errors.Invalid(
            f"{text!r} is no address of a service: it must begin with http:// or https://, as http://localhost:8080 does"
        )
    return url


def segment(name: str) -> str:
    """One segment of a path, whatever `name` holds."""
    return name.replace(".", "%2E") if name in (".", "..") else quote(name, safe="")
