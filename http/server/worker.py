"""A process of the front end under gunicorn. `config/gunicorn.py` names its class."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from contextlib import suppress
from types import FrameType
from typing import Any

from gunicorn.arbiter import Arbiter
from uvicorn.config import Config
from uvicorn.server import Server
from uvicorn_worker import UvicornWorker  # type: ignore[import-untyped]

from penstock.config.limits import HTTP_SHUTDOWN_S
from penstock.config.process.stopping import ON_STOP
from penstock.http.server.connection import ConnectionBounds, ConnectionState, HttpConnection
from penstock.http.server.cut_off import CutOff

LAST_REQUESTS_S = 1.0  # for what clients have just sent over connections that they keep open
# The rest of the time is for closing the application, before gunicorn kills the process.
ANSWERS_S = HTTP_SHUTDOWN_S - 1.0 - LAST_REQUESTS_S
NOTIFY_S = 0.5  # uvicorn looks once a second
QUICKLY = (signal.SIGINT, signal.SIGQUIT)
NAME = [("Server", "gunicorn")]


class HttpServer(Server):
    """uvicorn's server, which stops in order. From SIGTERM on it accepts no connection, and waiting requests are
    answered with what there is.

    Connections without a request are closed LAST_REQUESTS_S later: a request that was just sent is still answered.
    Then requests have ANSWERS_S to be answered, before they are cut off.
    """

    def __init__(self, config: Config, bounds: ConnectionBounds) -> None:
        super().__init__(config)
        self.server_state: ConnectionState = ConnectionState(bounds)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop. uvicorn's own would in the end send the signal to the process once more."""
        self.should_exit = True
        self.force_exit = self.force_exit or sig in QUICKLY

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        self.lifespan.state.get(ON_STOP, _nothing)()
        self.server_state.stopping = True
        await self._last_requests()
        await super().shutdown(sockets)

    async def _last_requests(self) -> None:
        if self.server_state.connections:
            self.server_state.empty.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_REQUESTS_S):
                    await self.server_state.empty.wait()


class HttpWorker(UvicornWorker):  # type: ignore[misc]
    """Owned by gunicorn, which ends it with SIGTERM and replaces it when it says nothing for a while."""

    CONFIG_KWARGS = {  # noqa: RUF012 - as in the class that reads it
        "http": HttpConnection,
        "loop": "uvloop",
        "ws": "none",
        "lifespan": "on",
        "access_log": False,
        "proxy_headers": False,  # the socket's address is that of the client
        "server_header": False,
        "headers": NAME,
        "timeout_notify": NOTIFY_S,
        "timeout_graceful_shutdown": ANSWERS_S,
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        told = logging.getLogger("uvicorn.error")  # gunicorn's log goes through ours
        told.propagate = True
        told.setLevel(logging.WARNING)

    async def _serve(self) -> None:
        self.config.app = CutOff(self.wsgi)
        server = self._server = HttpServer(self.config, self._bounds())
        self._install_sigquit_handler()
        await server.serve(sockets=self.sockets)
        if not server.started:
            sys.exit(Arbiter.WORKER_BOOT_ERROR)

    async def callback_notify(self) -> None:
        """Show gunicorn that this process lives; stop if gunicorn itself has died."""
        self.notify()
        if self.ppid != os.getppid():
            self._server.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._server.handle_exit(sig, frame)

    def _bounds(self) -> ConnectionBounds:
        cfg = self.cfg
        return ConnectionBounds(
            cfg.worker_connections, cfg.limit_request_line, cfg.limit_request_fields, cfg.limit_request_field_size
        )


def _nothing() -> None:
    """Called at the stop if the application has not started."""
