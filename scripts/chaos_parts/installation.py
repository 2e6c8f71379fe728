"""The service that the storm goes over, with its workers: `penstock serve` on free ports, with data of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import orjson
from load.processes import children
from load.service import SERVE, free_ports

from .places import Place, Places, alive

STORE_BYTES_MAX = 384 * 1024 * 1024
SHARDS = 2
HTTP_WORKERS = 2
BRIDGE_TOKEN = "chaos-bridge"
WEBHOOK_SECRET = "chaos-hooks"
ARCHIVE_AFTER, ARCHIVES_OF = "10s", 2  # one of so many seeds has its runs archived
HTTP_TASKS = "http-worker"  # what the supervisor calls the worker for http steps
SCRIPTS = Path(__file__).resolve().parent.parent


def archives(seed: int) -> bool:
    return seed % ARCHIVES_OF == 0


class Installation:
    """Owned by the storm. `executions` is where the workers write down what they carry out."""

    def __init__(self, directory: Path, places: Places, workers: int, seed: int) -> None:
        http_port, broker_port = free_ports(2)
        self.url, self.broker_url = f"http://127.0.0.1:{http_port}", f"nats://127.0.0.1:{broker_port}"
        self.directory, self.executions = directory, directory / "executions"
        self.executions.mkdir()
        self._log, self._read_to, self._names = directory / "serve.log", 0, dict[str, int]()
        options = {
            "listen": f"127.0.0.1:{http_port}",
            "broker-port": broker_port,
            "data-dir": directory / "data",
            "max-store-bytes": STORE_BYTES_MAX,
            "shards": SHARDS,
            "http-workers": HTTP_WORKERS,
            "bridge-token": BRIDGE_TOKEN,
            "webhook-secret": WEBHOOK_SECRET,
            "builtin-workers": "http",
            "http-allow": "127.0.0.1",
            "log-format": "json",
            **({"archive-after": ARCHIVE_AFTER} if archives(seed) else {}),
        }
        flags = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        self.serve = places.add(
            Place("serve", [sys.executable, "-c", SERVE, "serve", *flags], environ_with({}), self._log)
        )
        self._workers = {
            "worker": [
                places.add(self._worker(f"worker-{number}", "nats", directory, seed)) for number in range(workers)
            ],
            "bridge-worker": [places.add(self._worker("bridge-worker", "bridge", directory, seed))],
        }

    def pids(self, role: str) -> list[int]:
        """The processes of a role that live now, in an order that lasts: shard, http-worker, http-tasks, http,
        services, broker, serve, worker, bridge-worker."""
        if role in self._workers:
            return [place.pid for place in self._workers[role] if place.pid]
        serve = self.serve.pid
        if serve is None:
            return []
        living, named = set(alive(serve)), self._named()
        match role:
            case "serve":
                return [serve]
            case "shard":
                found = [pid for name, pid in sorted(named.items()) if name.startswith("shard-")]
            case "http-worker":
                found = sorted(children(named.get("http", 0)))
            case "http-tasks":  # the service's own worker
                found = [named[HTTP_TASKS]] if HTTP_TASKS in named else []
            case _:
                found = [named[role]] if role in named else []
        return [pid for pid in found if pid in living]

    def log_lines(self) -> list[dict[str, object]]:
        """All that the service has logged, over all its lives."""
        return [
            orjson.loads(line)
            for line in self._log.read_bytes().splitlines()
            if line.startswith(b"{") and line.endswith(b"}")
        ]

    def last_words(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-10:])

    def _worker(self, name: str, transport: str, directory: Path, seed: int) -> Place:
        given = {"SERVICE_BROKER_URL": self.broker_url, "SERVICE_URL": self.url, "SERVICE_BRIDGE_TOKEN": BRIDGE_TOKEN}
        arguments = [sys.executable, "-m", "chaos_parts.worker", name, transport, str(self.executions), str(seed)]
        return Place(name, arguments, environ_with({**given, "SERVICE_LOG_LEVEL": "error"}), directory / f"{name}.log")

    def _named(self) -> Mapping[str, int]:
        """The last process id of each child, from the supervisor's log."""
        with self._log.open("rb") as log:
            log.seek(self._read_to)
            for line in log:
                if not line.endswith(b"\n"):
                    break
                self._read_to += len(line)
                if b'"process_started"' in line and line.startswith(b"{"):
                    entry = orjson.loads(line)
                    self._names[entry["name"]] = entry["child"]
        return self._names


def environ_with(given: Mapping[str, str]) -> dict[str, str]:
    """Ours without the settings in it, so that it has the defaults; and workers find their module."""
    path = os.pathsep.join(filter(None, (str(SCRIPTS), os.environ.get("PYTHONPATH"))))
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SERVICE_")}
    return {**clean, "SERVICE_CONFIG": "", "PYTHONPATH": path, **given}
