"""Ends waiting requests: when the client has closed the connection, and when the process is about to stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from falcon.asgi import Request

from penstock.config.process.background import start

T = TypeVar("T")
Receive = Callable[[], Awaitable[Mapping[str, Any]]]

WATCHED_AFTER_S = 1.0


class Incoming:
    """The events of a request's body, from the server. `cut_short` is true when the connection ended before the body
    did."""

    __slots__ = ("_receive", "cut_short")

    def __init__(self, receive: Receive) -> None:
        self._receive, self.cut_short = receive, False

    async def __call__(self) -> Mapping[str, Any]:
        event = await self._receive()
        self.cut_short = self.cut_short or event["type"] == "http.disconnect"
        return event


class WatchableRequest(Request):
    """A request whose `receive` says, once the body has been read, that the client has closed the connection. `whole`
    is its body if that came with its head, as most do: then nothing waits for it."""

    def __init__(
        self, scope: dict[str, Any], receive: Receive, first_event: dict[str, Any] | None = None, options: Any = None
    ) -> None:
        self.receive, self.incoming = receive, Incoming(receive)
        whole = first_event is not None and not first_event.get("more_body")
        self.whole: bytes | None = first_event.get("body", b"") if first_event is not None and whole else None
        super().__init__(scope, self.incoming, first_event, options)


class Presence:
    """Owned by one request, and in use for the time of a block. `gone` is true when its client has closed the
    connection. Then, and also when the process stops, `over` is set and `leave` is called, so that nothing waits any
    longer.

    The connection is watched from `after_s` on: a watch is a task, and most answers come sooner. Whether the client has
    gone is known before that, too, where the server says so at once.
    """

    def __init__(self, waiters: Waiters | None = None, receive: Receive | None = None, after_s: float = 0.0) -> None:
        self.left, self.over = asyncio.Event(), asyncio.Event()
        self.leave: Callable[[], None] = lambda: None
        self._waiters, self._receive, self._after_s = waiters, receive, after_s
        self._request = getattr(receive, "__self__", None)  # uvicorn's own
        self._timer: asyncio.TimerHandle | None = None
        self._watching: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Presence:
        assert self._waiters is not None
        self._waiters.add(self.end)
        if self._after_s:
            self._timer = asyncio.get_running_loop().call_later(self._after_s, self._watch)
        else:
            self._watch()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._waiters is not None
        self._waiters.remove(self.end)
        if self._timer is not None:
            self._timer.cancel()
        if self._watching is not None:
            self._watching.cancel()  # and not waited for: it would only hold the answer back

    @property
    def gone(self) -> bool:
        return self.left.is_set() or getattr(self._request, "disconnected", False) is True

    async def watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.left.set()

    def end(self) -> None:
        self.over.set()
        self.leave()

    def _watch(self) -> None:
        assert self._receive is not None
        self._watching = start(self.watch(self._receive), name="presence", over=self.end)


class Waiters:
    """All waiting requests of this process. Owned by the backend."""

    def __init__(self) -> None:
        self.stopped = False
        self._ends: set[Callable[[], None]] = set()

    def stop(self) -> None:
        """End all waiting, now and from now on, because the process is about to stop. Requests are answered with what
        is available."""
        self.stopped = True
        for end in list(self._ends):
            end()

    def presence(self, req: Request, after_s: float = 0.0) -> Presence:
        """The presence of the client of `req`, for the time of a block."""
        assert isinstance(req, WatchableRequest)
        return Presence(self, req.receive, after_s)

    @asynccontextmanager
    async def limit(self, seconds: float | None = None) -> AsyncIterator[asyncio.Timeout]:
        """A time limit for the block. Raises TimeoutError, at once when the process stops."""
        async with asyncio.timeout(seconds) as limit:
            with self._among(partial(_expire, limit)):
                yield limit

    def limit_for(self, req: Request, seconds: float) -> CallerLimit:
        """As `limit`, and also over when the client of `req` has left."""
        assert isinstance(req, WatchableRequest)
        return CallerLimit(self, req.receive, seconds)

    async def until_stopped(self, items: AsyncGenerator[T]) -> AsyncGenerator[T]:
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
        self.add(end)
        try:
            yield
        finally:
            self.remove(end)

    def add(self, end: Callable[[], None]) -> None:
        """Have this called when the process stops, at once if it does already, until it is removed."""
        self._ends.add(end)
        if self.stopped:
            end()

    def remove(self, end: Callable[[], None]) -> None:
        self._ends.discard(end)


class CallerLimit:
    """A time limit for a block, in s. Raises TimeoutError, also when the process stops or the client has left. That is
    noticed from WATCHED_AFTER_S on: most answers come sooner, and watching a client costs a task.

    Owned by one request. A class: two generators in its place take three times as long, for each call.
    """

    __slots__ = ("_receive", "_seconds", "_timeout", "_timer", "_waiters", "_watching")

    def __init__(self, waiters: Waiters, receive: Receive, seconds: float) -> None:
        self._waiters, self._receive, self._seconds = waiters, receive, seconds
        self._timeout = asyncio.timeout(None)
        self._watching: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()
        self._call_later(WATCHED_AFTER_S, self._watch)
        self._waiters.add(self._end)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._waiters.remove(self._end)
        assert self._timer is not None
        self._timer.cancel()
        if self._watching is not None:
            self._watching.cancel()
        await self._timeout.__aexit__(kind, error, trace)

    def _call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call this in so many seconds, or `_end` when the time is over before."""
        if seconds >= self._seconds:
            seconds, callback = self._seconds, self._end
        self._seconds -= seconds
        self._timer = asyncio.get_running_loop().call_later(seconds, callback)

    def _watch(self) -> None:
        found = Presence()
        found.leave = self._end
        self._watching = start(found.watch(self._receive), name="presence", over=found.end)
        self._call_later(self._seconds, self._end)

    def _end(self) -> None:
        _expire(self._timeout)


def _expire(limit: asyncio.Timeout) -> None:
    if not limit.expired():
        limit.reschedule(0)
