"""The front end's server: `gunicorn -c python:penstock.config.gunicorn penstock.http.app:application`.

Every name in lower case that gunicorn knows is one of its settings. Values come from SERVICE_* and the configuration
file; a bad one ends the start with one line.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
from functools import partial
from typing import Any

from gunicorn import glogging
from gunicorn.asgi.protocol import ASGIProtocol
from gunicorn.workers import gasgi

from penstock.config import limits
from penstock.config.log_setup import configure
from penstock.config.logging import get_logger
from penstock.config.process import rate_limited_log
from penstock.config.process.background import FAILURES
from penstock.config.process.ports import trouble
from penstock.config.process.stopping import ON_STOP
from penstock.config.settings import Settings, SettingsError, load
from penstock.telemetry.warnings import WARNINGS

ANSWERS = {
    "token": "who bears api_token, or a key",
    "protected": "this machine alone, or who bears a key, once there is one: create it, or set api_token or insecure",
    "insecure": "everybody who reaches it, since insecure is set and no api_token; once there is a key, who bears one",
}
FILES_KEPT = 128
FILES_MAX = 2**20
READ_AGAIN_S = 0.05
LAST_REQUESTS_S = 1.0  # for what clients have just sent over connections that they keep open
SOCKETS_HANDED_OVER = ("GUNICORN_FD", "LISTEN_FDS")  # by a former gunicorn, by systemd
WORKER_SHUTDOWN_S = int(limits.HTTP_SHUTDOWN_S) - 1  # the rest is for closing the application, before the arbiter kills

log = get_logger()


class Logger(glogging.Logger):  # type: ignore[misc]
    """gunicorn's own log, through ours."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        configure(_settings.log, "http")
        self.error_log.handlers.clear()
        self.error_log.propagate = True


class HttpConnection(ASGIProtocol):  # type: ignore[misc]
    """A connection with a time limit for its first request, and one of a bounded number: gunicorn waits for the first
    request for ever, and accepts any number."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.worker.connections.add(self)
        if self.worker.nr_conns > self.worker.worker_connections:
            self._send_error_response(503, "too many connections\n", [("Retry-After", "1")])
            self._close_transport()
        else:
            self._arm_keepalive_timer()  # as before every later request; the end of its head disarms it

    def connection_lost(self, exc: Exception | None) -> None:
        self.worker.connections.discard(self)
        super().connection_lost(exc)

    def close_if_idle(self) -> None:
        """Close it if it has no request, or one whose head has not arrived yet."""
        if self._keepalive_handle is not None:
            super()._keepalive_timeout()

    def _keepalive_timeout(self) -> None:
        """Read once more before closing.

        A loop that was held up runs its timers before it reads. A request may have come in time, and closing a
        connection with unread bytes resets it.
        """
        self._keepalive_handle = self.worker.loop.call_later(READ_AGAIN_S, self._close_without_request)

    def _close_without_request(self) -> None:
        if not self._request_ready.is_set():
            super()._keepalive_timeout()


class HttpWorker(gasgi.ASGIWorker):  # type: ignore[misc]
    """A process that stops in order. From SIGTERM on it accepts no connection, and waiting requests are answered with
    what there is.

    Connections that come while the process is busy wait in the socket's backlog, which is gunicorn's: uvloop's own is
    100, and the kernel answers the next ones with cookies, and resets those whose request then comes in two parts.

    Connections without a request are closed LAST_REQUESTS_S later: a request that was just sent is still answered.
    Requests have WORKER_SHUTDOWN_S to be answered, then the application has some time to close. gunicorn's own worker
    checks for the signal once a second, accepts connections until then, and waits for idle ones in vain.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.connections: set[HttpConnection] = set()
        self._serving: asyncio.Task[None] | None = None

    def init_signals(self) -> None:
        """Install gunicorn's handlers, but let SIGTERM end a process that does not serve yet."""
        super().init_signals()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _setup_event_loop(self) -> None:
        super()._setup_event_loop()
        self.loop.create_server = partial(self.loop.create_server, backlog=self.cfg.backlog)

    async def _serve(self) -> None:
        self._serving = asyncio.current_task()
        self.loop.add_signal_handler(signal.SIGTERM, self.handle_exit_signal)
        await super()._serve()

    def handle_exit_signal(self) -> None:
        if not self.alive:
            return
        super().handle_exit_signal()
        for server in self.servers:
            server.close()
        self.state.get(ON_STOP, _nothing)()
        self.loop.call_later(LAST_REQUESTS_S, self._close_idle)
        if self.servers and self._serving is not None:
            self._serving.cancel()  # out of its sleep

    def _close_idle(self) -> None:
        for connection in list(self.connections):
            connection.close_if_idle()


def _nothing() -> None:
    """Called at the stop if the application has not started."""


def when_ready(server: Any) -> None:
    """Log once at the start whom the control plane answers."""
    mode = _settings.http.mode
    say = log.warning if mode == "insecure" else log.info
    say("control_plane", mode=mode, answers=ANSWERS[mode], listen=str(_settings.http.listen))


def on_starting(server: Any) -> None:
    """End the start with one line if a port is in use; gunicorn would try it five times. Sockets that are handed over
    are in use by design."""
    if any(os.environ.get(name) for name in SOCKETS_HANDED_OVER):
        return
    for address in server.cfg.address:
        problem = isinstance(address, tuple) and trouble("the HTTP port", address[0], address[1])
        if problem:
            raise SystemExit(f"Error: {problem}")


def pre_fork(server: Any, worker: Any) -> None:
    """Number the workers. A worker that replaces another one gets its number, so that its metrics keep their name."""
    taken = {other.number for other in server.WORKERS.values()}
    worker.number = next(number for number in range(len(taken) + 1) if number not in taken)


def post_worker_init(worker: Any) -> None:
    """Exclude what is loaded from garbage collection, since it is never freed, and collect less often."""
    gasgi.ASGIProtocol = HttpConnection  # where the worker looks it up; it takes no other
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def post_fork(server: Any, worker: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # else the arbiter's own handler would take it here, for nothing
    worker.cfg.set("graceful_timeout", WORKER_SHUTDOWN_S)
    configure(_settings.log, f"http-{worker.number}")
    WARNINGS.clear()
    FAILURES.clear()
    rate_limited_log.reset()


def _connections_max() -> int:
    """The most connections of one process. Some file descriptors are left for everything else."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(files - FILES_KEPT, files // 2) if files != resource.RLIM_INFINITY else FILES_MAX


def _load() -> Settings:
    try:
        return load().settings
    except SettingsError as error:
        raise SystemExit(f"Error: {error}") from error


_settings = _load()

proc_name = "penstock-http"
bind = str(_settings.http.listen)
workers = _settings.http.workers
worker_class = HttpWorker
asgi_loop = "uvloop"
asgi_lifespan = "on"
control_socket_disable = True
logger_class = Logger
loglevel = _settings.log.level
accesslog = None
graceful_timeout = int(limits.HTTP_SHUTDOWN_S)
timeout = 30
# longer than clients keep idle connections, so that none is closed under a request; as long may a head take
keepalive = 15
worker_connections = _connections_max()
limit_request_line = 8190
limit_request_fields = 100
limit_request_field_size = 8190
worker_tmp_dir = "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: S108 - gunicorn's heartbeat file, never on a disk
