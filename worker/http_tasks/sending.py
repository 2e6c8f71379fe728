"""Sends a request and follows redirects, each hop checked like the first."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from importlib.metadata import version
from typing import Self
from urllib.parse import urljoin

import httpcore2
import httpx2

from penstock.engine.definition.http_requests import is_expected
from penstock.engine.definition.identifiers import quoted, shown
from penstock.worker.http_tasks.addresses import AddressRules
from penstock.worker.http_tasks.connecting import CheckedNetwork, Resolve, UnresolvedName, reason_of
from penstock.worker.http_tasks.request import HttpRequest, parse_url
from penstock.worker.tasks.failures import NonRetriable, Retriable

REDIRECTS_MAX = 10
# Below what servers keep an idle connection for: one that they close just then would cost an attempt.
KEPT_S = 2.0
KEPT_MAX = 100

_REDIRECTS = (301, 302, 303, 307, 308)
_OF_BODY = ("content-type", "content-encoding", "content-language", "content-location")
_FOR_ONE_HOST = frozenset({"authorization", "cookie"})


class HttpSender:
    """Owned by the worker; its connections are open for the time of its block. It keeps no cookies, asks no proxy."""

    def __init__(self, rules: AddressRules, resolve: Resolve) -> None:
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=httpx2.create_ssl_context(),
            max_connections=None,
            max_keepalive_connections=KEPT_MAX,
            keepalive_expiry=KEPT_S,
            network_backend=CheckedNetwork(rules, resolve),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._pool.aclose()

    @asynccontextmanager
    async def answer(self, request: HttpRequest) -> AsyncIterator[httpcore2.Response]:
        """The answer after all redirects, its body not yet read. Raises Retriable and NonRetriable."""
        hop, redirects = request, 0
        while True:
            response = await self._send(hop)
            try:
                location = _location(hop, response)
                if location is None:
                    yield response
                    return
            finally:
                await response.aclose()
            redirects += 1
            if redirects > REDIRECTS_MAX:
                raise NonRetriable(f"{request.text} was redirected more than {REDIRECTS_MAX} times")
            hop = redirected(hop, response.status, location)

    async def _send(self, request: HttpRequest) -> httpcore2.Response:
        url = request.url
        target = httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        try:
            return await self._pool.handle_async_request(
                httpcore2.Request(request.method, target, headers=_wire_headers(request), content=request.body)
            )
        except httpcore2.LocalProtocolError:  # its text may hold a header's value
            raise NonRetriable(f"{request.text} cannot be sent: HTTP does not allow such a request") from None
        except BROKEN as error:
            raise Retriable(f"{request.text} got no answer: {broken_by(error)}") from None


def redirected(request: HttpRequest, status: int, location: str) -> HttpRequest:
    """The request that follows a redirect to `location`. Raises NonRetriable for a url that no request may go to."""
    try:
        url = parse_url(urljoin(str(request.url.copy_with(fragment=None)), location))
    except (NonRetriable, ValueError) as error:
        raise NonRetriable(f"{request.text} was redirected to {quoted(location.partition('?')[0])}: {error}") from None
    headers = dict(request.headers)
    if not _is_same_place(request.url, url):
        headers = {name: value for name, value in headers.items() if name not in _FOR_ONE_HOST | request.with_secrets}
    method, body = request.method, request.body
    if (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST"):
        method, body = "GET", b""
        headers = {name: value for name, value in headers.items() if name not in _OF_BODY}
    return request._replace(method=method, url=url, headers=headers, body=body)


def _is_same_place(one: httpx2.URL, other: httpx2.URL) -> bool:
    """The same scheme, host and port; the default ports of http and https count as one on the way up to https."""
    if one.host != other.host:
        return False
    upgraded = (one.scheme, other.scheme) == ("http", "https") and one.port is None and other.port is None
    return upgraded or (one.scheme, one.port) == (other.scheme, other.port)


def _location(request: HttpRequest, response: httpcore2.Response) -> str | None:
    """Where the answer redirects to. A redirect that is expected is an answer."""
    if response.status not in _REDIRECTS or is_expected(response.status, request.expect):
        return None
    found = [value for name, value in response.headers if name.lower() == b"location"]
    return found[0].decode(errors="replace") if found else None


def _wire_headers(request: HttpRequest) -> list[tuple[bytes, bytes]]:
    headers: Mapping[str, bytes] = {
        "host": request.url.netloc,
        "user-agent": _user_agent(),
        "accept": b"*/*",
        "accept-encoding": b"gzip, deflate",
        **request.headers,
    }
    length = str(len(request.body)).encode()
    framed = {"content-length": length} if request.body or request.method in ("POST", "PUT", "PATCH") else {}
    return [(name.encode(), value) for name, value in {**headers, **framed}.items()]


@cache
def _user_agent() -> bytes:
    return f"penstock/{version('penstock')}".encode()


BROKEN = (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.RemoteProtocolError, OSError)


def broken_by(error: Exception) -> str:
    """What a connection failed by, in one line."""
    if isinstance(error, httpcore2.ConnectTimeout):
        return "no connection was made in time"
    if isinstance(error, UnresolvedName):
        return str(error)
    if isinstance(error, httpcore2.RemoteProtocolError):  # its text may hold what the server sent
        return "what came is no HTTP, or ends too early"
    cause: BaseException = error
    while (deeper := cause.__cause__ or cause.__context__) is not None:
        cause = deeper
    return shown(reason_of(cause), 500)
