"""Requests that the server ends before they are answered, because it stops, are answered 503."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any, TypeAlias

from penstock.engine.errors import Unavailable
from penstock.http.messages.errors import answer_to

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Application: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]

REASON = "the service stops; whether the request took effect is not known"


class CutOff:
    """An ASGI application around another one.

    uvicorn cancels the task of a request that takes too long at a stop, and answers what raises with 500.
    """

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        try:
            await self._application(scope, receive, send)
        except CancelledError:
            if scope["type"] != "http":
                raise
            with suppress(RuntimeError):  # uvicorn: the response has begun; it closes the connection
                await _refuse(scope, send)


async def _refuse(scope: Message, send: Send) -> None:
    accept = next((value for name, value in scope["headers"] if name == b"accept"), b"")
    status, headers, body = answer_to(Unavailable(REASON), accept.decode("latin-1"))
    fields = [(name.encode(), value.encode()) for name, value in headers.items()]
    fields += [(b"content-length", str(len(body)).encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})
