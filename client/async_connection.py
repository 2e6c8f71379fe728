"""Sends requests without blocking the event loop: one response, pages, or a stream of events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import lru_cache, partial
from typing import TypeVar

import httpx2

from penstock.client import responses
from penstock.client.address import options, segment, stream_timeout, whole
from penstock.client.api_request import ApiRequest, PagedRequest
from penstock.client.sending.errors import ServiceError
from penstock.client.sending.pools import LIMITS, Pools
from penstock.client.sending.retries import Retries
from penstock.client.views import EventView
from penstock.config.limits import BODY_BYTES_MAX
from penstock.config.process.traces import trace_headers

T = TypeVar("T")
SSE = httpx2.ServerSentEvent


class AsyncConnection:
    """Owned by an AsyncClient; its connections are kept for its lifetime."""

    def __init__(self, base_url: str, token: str | None, timeout_s: float, retries: int) -> None:
        """Raises Invalid when `base_url` is no http:// or https:// address, or the token cannot be sent."""
        self._timeout_s = timeout_s
        self.retries = retries
        shared = options(base_url, token, timeout_s)
        self._pools = Pools(lambda: httpx2.AsyncClient(**shared, limits=LIMITS))
        self._whole = lru_cache(partial(whole, shared["base_url"]))  # of one path, requests follow each other

    async def close(self) -> None:
        await self._pools.close()

    async def send(self, request: ApiRequest[T]) -> T:
        """The result of a request, which is sent again where that is safe. Raises the error that its response stands
        for."""
        retries = Retries(request, self.retries)
        while True:
            try:
                return await self._send(request, retries.headers)
            except ServiceError as error:
                await asyncio.sleep(retries.pause_s(error))

    async def _send(self, request: ApiRequest[T], headers: Mapping[str, str]) -> T:
        with responses.translated(), self._pools.free() as http:
            response = await http.request(
                request.method,
                self._whole(request.url),
                content=request.content,
                headers={**headers, **trace_headers()},
                timeout=self._timeout_s + request.wait_s,
            )
        request.check(response)
        return request.read(response)

    async def items(self, request: PagedRequest[T]) -> AsyncGenerator[T]:
        """The items of all pages, each page fetched when the one before is used up."""
        if request.limit == 0:
            return
        taken = 0
        async for item in self._items(request):
            yield item
            taken += 1
            if taken == request.limit:  # before the next page is fetched
                return

    async def _items(self, request: PagedRequest[T]) -> AsyncGenerator[T]:
        following: httpx2.URL | None = request.url
        while following is not None:
            response = await self.send(ApiRequest("GET", following, lambda got: got))
            for item in responses.decode(response, list[request.kind]):  # type: ignore[name-defined]
                yield item
            following = responses.next_page(response)

    @asynccontextmanager
    async def stream(self, run_id: str, after: int) -> AsyncIterator[AsyncIterator[EventView]]:
        """The events of one connection. Raises Unavailable when it is not made, LostError when it breaks."""
        async with self.listen(f"/runs/{segment(run_id)}/events", after, responses.event) as events:
            yield events

    @asynccontextmanager
    async def listen(
        self, url: httpx2.URL | str, after: int, read: Callable[[SSE], T | None]
    ) -> AsyncIterator[AsyncIterator[T]]:
        """As `stream`, of any server-sent events; `read` gives None for those that only keep the connection open."""
        timeout = stream_timeout(self._timeout_s)
        headers = {"Last-Event-ID": str(after)} if after else {}
        with responses.translated(), self._pools.free() as http:
            async with http.sse(url, headers=headers, timeout=timeout, max_event_size=BODY_BYTES_MAX) as source:
                if source.response.status_code != httpx2.codes.OK:
                    await source.response.aread()
                responses.check(source.response)
                yield _read(source, read)


async def _read(source: httpx2.EventSource, read: Callable[[SSE], T | None]) -> AsyncIterator[T]:
    with responses.translated_stream(source.response):
        async for message in source:
            if (event := read(message)) is not None:
                yield event
