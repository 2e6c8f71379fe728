"""Finds out who each request of the control plane comes from, before it is routed. Protocol: HTTP answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any

from falcon.asgi import Request, Response

from penstock.config.process.author import set_author
from penstock.http.messages.callers import caller_of
from penstock.http.middleware.credentials import Credentials
from penstock.http.middleware.paths import is_control_plane

SIGN_IN = "/session"


class Auth:
    """Refuses what shows no valid credentials where they are needed."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    async def process_request(self, req: Request, resp: Response) -> None:
        set_author(None)
        if is_control_plane(req.path) and not self._is_sign_in(req):
            caller = req.context.caller = await self._credentials.of_control_plane(req)
            set_author(caller.name)

    async def process_response(self, req: Request, resp: Response, resource: object, req_succeeded: bool) -> None:
        """A stream ends when the key with which it was asked for is not valid any more, or one is needed now."""
        if resp.sse is None and resp.stream is None:
            return
        caller = caller_of(req)
        if self._credentials.ends(caller):
            valid = partial(self._credentials.still_valid, req, caller)
            if resp.sse is not None:
                resp.sse = _as_long_as(valid, resp.sse)
            elif isinstance(resp.stream, AsyncGenerator):
                resp.stream = _as_long_as(valid, resp.stream)

    def _is_sign_in(self, req: Request) -> bool:
        """Whether a request shows its key in its body, which the responder checks."""
        return req.path == SIGN_IN and req.method == "POST" and self._credentials.needed


async def _as_long_as(valid: Callable[[], Awaitable[bool]], items: Any) -> AsyncGenerator[Any]:
    async with aclosing(items):
        async for item in items:
            if not await valid():
                return
            yield item
