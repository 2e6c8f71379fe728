"""Whether there is reason to wait: the client of a request is still there, and the process is not about to stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from functools import partial
from typing import Any, TypeVar

from falcon.asgi import Request

from penstock.config.process.background import start

T = TypeVar("T")
Receive = Callable[[], Awaitable[Mapping[str, Any]]]


class Incoming:
    """The events of a request's body, as the server has them. `cut_short`: it ended with the connection, and not by
    itself."""

    def __init__(self, receive: Receive) -> None:
        self._receive, self.cut_short = receive, False

    async def __call__(self) -> Mapping[str, Any]:
        event = await self._receive()
        self.cut_short = self.cut_short or event["type"] == "http.disconnect"
        return event


class PatientRequest(Request):
    """A request whose server can be asked for news of its client, once its body has been read."""

    def __init__(
        self, scope: dict[str, Any], receive: Receive, first_event: dict[str, Any] | None = None, options: Any = None
    ) -> None:
        self.receive, self.incoming = receive, Incoming(receive)
        super().__init__(scope, self.incoming, first_event, options)


class Presence:
    """Owned by one request. `gone` becomes true when its client has closed the connection. Then, or when the process
    stops, `over` is set and `leave` called: nothing is to be waited for any more."""

    def __init__(self) -> None:
        self.left, self.over = asyncio.Event(), asyncio.Event()
        self.leave: Callable[[], None] = lambda: None

    @property
    def gone(self) -> bool:
        return self.left.is_set()

    async def watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.left.set()

    def end(self) -> None:
        self.over.set()
        self.leave()


class Audience:
    """All who wait in this process for something that may come. Owned by the backend."""

    def __init__(self) -> None:
        self.dismissed = False
        self._ends: set[Callable[[], None]] = set()

    def dismiss(self) -> None:
        """The process is about to stop: have everybody answered with what there is, and nobody wait from here on."""
        self.dismissed = True
        for end in list(self._ends):
            end()

    @asynccontextmanager
    async def presence(self, req: Request) -> AsyncIterator[Presence]:
        """Watched for the time of the block."""
        assert isinstance(req, PatientRequest)
        found = Presence()
        watching = start(found.watch(req.receive), name="presence", over=found.end)
        try:
            with self._among(found.end):
                yield found
        finally:
            watching.cancel()  # and not waited for: it would only hold the answer back

    @asynccontextmanager
    async def limit(self, seconds: float | None = None) -> AsyncIterator[None]:
        """A time limit for the block. Raises TimeoutError, at once when the process stops."""
        async with asyncio.timeout(seconds) as limit:
            with self._among(partial(_expire, limit)):
                yield

    async def while_there(self, items: AsyncGenerator[T]) -> AsyncGenerator[T]:
        """The items, until the process stops."""
        async with aclosing(items):
            while True:
                try:
                    async with self.limit():
                        item = await anext(items)
                except (StopAsyncIteration, TimeoutError):
                    return
                yield item

    @contextmanager
    def _among(self, end: Callable[[], None]) -> Iterator[None]:
        self._ends.add(end)
        try:
            if self.dismissed:
                end()
            yield
        finally:
            self._ends.discard(end)


def _expire(limit: asyncio.Timeout) -> None:
    if not limit.expired():
        limit.reschedule(0)
