"""Sends requests and blocks until they are answered: one response, pages, or a stream of events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

import httpx2

from penstock.client import responses
from penstock.client.address import options, segment, stream_timeout
from penstock.client.api_request import ApiRequest, PagedRequest
from penstock.client.sending.errors import ServiceError
from penstock.client.sending.retries import Retries
from penstock.client.views import EventView
from penstock.config.limits import BODY_BYTES_MAX
from penstock.config.process.traces import trace_headers

T = TypeVar("T")
SSE = httpx2.ServerSentEvent


class BlockingConnection:
    """Owned by a Client; one connection pool for its lifetime."""

    def __init__(self, base_url: str, token: str | None, timeout_s: float, retries: int) -> None:
        """Raises Invalid when `base_url` is no http:// or https:// address, or the token cannot be sent."""
        self._timeout_s = timeout_s
        self.retries = retries
        self._http = httpx2.Client(**options(base_url, token, timeout_s))

    def close(self) -> None:
        self._http.close()

    def send(self, request: ApiRequest[T]) -> T:
        """The result of a request, which is sent again where that is safe. Raises the error that its response stands
        for."""
        retries = Retries(request, self.retries)
        while True:
            try:
                return self._send(request, retries.headers)
            except ServiceError as error:
                time.sleep(retries.pause_s(error))

    def _send(self, request: ApiRequest[T], headers: Mapping[str, str]) -> T:
        with responses.translated():
            response = self._http.request(
                request.method,
                request.url,
                content=request.content,
                headers={**headers, **trace_headers()},
                timeout=self._timeout_s + request.wait_s,
            )
        request.check(response)
        return request.read(response)

    def items(self, request: PagedRequest[T]) -> Iterator[T]:
        """The items of all pages, each page fetched when the one before is used up."""
        return islice(self._items(request), request.limit)

    def _items(self, request: PagedRequest[T]) -> Iterator[T]:
        following: httpx2.URL | None = request.url
        while following is not None:
            response = self.send(ApiRequest("GET", following, lambda got: got))
            yield from responses.decode(response, list[request.kind])  # type: ignore[name-defined]
            following = responses.next_page(response)

    @contextmanager
    def stream(self, run_id: str, after: int) -> Iterator[Iterator[EventView]]:
        """The events of one connection. Raises Unavailable when it is not made, LostError when it breaks."""
        with self.listen(f"/runs/{segment(run_id)}/events", after, responses.event) as events:
            yield events

    @contextmanager
    def listen(self, url: httpx2.URL | str, after: int, read: Callable[[SSE], T | None]) -> Iterator[Iterator[T]]:
        """As `stream`, of any server-sent events; `read` gives None for those that only keep the connection open."""
        timeout = stream_timeout(self._timeout_s)
        headers = {"Last-Event-ID": str(after)} if after else {}
        with (
            responses.translated(),
            self._http.sse(url, headers=headers, timeout=timeout, max_event_size=BODY_BYTES_MAX) as source,
        ):
            if source.response.status_code != httpx2.codes.OK:
                source.response.read()
            responses.check(source.response)
            yield _read(source, read)


def _read(source: httpx2.EventSource, read: Callable[[SSE], T | None]) -> Iterator[T]:
    with responses.translated_stream(source.response):
        for message in source:
            if (event := read(message)) is not None:
                yield event
