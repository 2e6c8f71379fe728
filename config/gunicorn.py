"""The front end's server: `gunicorn -c python:penstock.config.gunicorn penstock.http.app:application`.

Every name in lower case that gunicorn knows is one of its settings. Values come from SERVICE_* and the configuration
file; a bad one ends the start with one line.
"""

from __future__ import annotations

import gc
import os
from typing import Any

from gunicorn import glogging

from penstock.config import limits
from penstock.config.logging import configure
from penstock.config.settings import Settings, SettingsError, load
from penstock.config.warnings import WARNINGS

WORKER_SHUTDOWN_S = int(limits.HTTP_SHUTDOWN_S) - 1  # the rest is for closing the application, before the arbiter kills


class Logger(glogging.Logger):  # type: ignore[misc]
    """gunicorn's own log, through ours."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        configure(_settings.log, "http")
        self.error_log.handlers.clear()
        self.error_log.propagate = True


def pre_fork(server: Any, worker: Any) -> None:
    """Number the workers: one that takes another's place has its number, so that its metrics go on under the same name."""
    taken = {other.number for other in server.WORKERS.values()}
    worker.number = next(number for number in range(len(taken) + 1) if number not in taken)


def post_worker_init(worker: Any) -> None:
    """What has been loaded stays for good: the collector need not look at it again and again, nor come every few requests."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def post_fork(server: Any, worker: Any) -> None:
    worker.cfg.set("graceful_timeout", WORKER_SHUTDOWN_S)
    configure(_settings.log, f"http-{worker.number}")
    WARNINGS.clear()


def _load() -> Settings:
    try:
        return load().settings
    except SettingsError as error:
        raise SystemExit(f"Error: {error}") from error


_settings = _load()

proc_name = "penstock-http"
bind = str(_settings.http.listen)
workers = _settings.http.workers
worker_class = "asgi"
asgi_loop = "uvloop"
asgi_lifespan = "on"
control_socket_disable = True
logger_class = Logger
loglevel = _settings.log.level
accesslog = None
graceful_timeout = int(limits.HTTP_SHUTDOWN_S)
timeout = 30
keepalive = 15  # longer than clients keep idle connections, so that none is closed under a request
limit_request_line = 8190
limit_request_fields = 100
limit_request_field_size = 8190
worker_tmp_dir = "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: S108 - gunicorn's heartbeat file, never on a disk
