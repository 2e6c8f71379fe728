"""Whether the client of a request is still there: told by the server, to whoever waits long enough to care."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from falcon.asgi import Request

Receive = Callable[[], Awaitable[Mapping[str, Any]]]


class PatientRequest(Request):
    """A request whose server can be asked for news of its client, once its body has been read."""

    def __init__(self, scope: dict[str, Any], receive: Receive, first_event: dict[str, Any] | None = None, options: Any = None) -> None:
        super().__init__(scope, receive, first_event, options)
        self.receive = receive


class Presence:
    """Owned by one request. `gone` becomes true when its client has closed the connection; `leave` is called then, at most once."""

    def __init__(self) -> None:
        self.left = asyncio.Event()
        self.leave: Callable[[], None] = lambda: None

    @property
    def gone(self) -> bool:
        return self.left.is_set()

    async def watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.left.set()
        self.leave()


@asynccontextmanager
async def presence(req: Request) -> AsyncIterator[Presence]:
    """Watched for the time of the block."""
    assert isinstance(req, PatientRequest)
    found = Presence()
    watching = asyncio.create_task(found.watch(req.receive))
    try:
        yield found
    finally:
        watching.cancel()  # and not waited for: it would only hold the answer back
