"""Requests to the application in this process, as a client on the same machine sends them: from a loopback address, to
one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from falcon.testing import ASGIConductor

from penstock.http.app import Application

LOOPBACK = "127.0.0.1"


class _Served:
    """The application, with the scope of a server: the framework's own has an iterator as the peer, which can be read
    once."""

    def __init__(self, app: Application) -> None:
        self._app = app

    def __getattr__(self, name: str) -> Any:
        return getattr(self._app, name)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if isinstance(client := scope.get("client"), Iterator):
            scope["client"] = tuple(client)
        await self._app(scope, receive, send)


class Conductor(ASGIConductor):
    """The framework's own leaves the peer's address out, and is for another host. Both can be given with each
    request."""

    def __init__(self, app: Application) -> None:
        super().__init__(_Served(app))

    async def simulate_request(self, *args: Any, **more: Any) -> Any:
        return await super().simulate_request(*args, **{"remote_addr": LOOPBACK, "host": LOOPBACK, **more})
