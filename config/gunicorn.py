"""The front end's server: `gunicorn -c python:penstock.config.gunicorn penstock.http.app:application`.

Every name in lower case that gunicorn knows is one of its settings. Values come from SERVICE_* and the configuration
file; a bad one ends the start with one line. The process that serves is in http/server.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
from typing import Any

from gunicorn import glogging

from penstock.config import limits
from penstock.config.log_setup import configure
from penstock.config.logging import get_logger
from penstock.config.process import rate_limited_log
from penstock.config.process.background import FAILURES
from penstock.config.process.ports import trouble
from penstock.config.settings import Settings, SettingsError, load
from penstock.telemetry.warnings import WARNINGS

ANSWERS = {
    "token": "who bears api_token, or a key",
    "protected": "this machine alone, or who bears a key, once there is one: create it, or set api_token or insecure",
    "insecure": "everybody who reaches it, since insecure is set and no api_token; once there is a key, who bears one",
}
FILES_KEPT = 128
FILES_MAX = 2**20
SOCKETS_HANDED_OVER = ("GUNICORN_FD", "LISTEN_FDS")  # by a former gunicorn, by systemd

log = get_logger()


class Logger(glogging.Logger):  # type: ignore[misc]
    """gunicorn's own log, through ours."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        configure(_settings.log, "http")
        self.error_log.handlers.clear()
        self.error_log.propagate = True


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
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def post_fork(server: Any, worker: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # else the arbiter's own handler would take it here, for nothing
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
worker_class = "penstock.http.server.worker.HttpWorker"
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
