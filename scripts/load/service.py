"""A service of one's own: `penstock serve` on free ports, with a process group and a data directory of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import sample
from typing import NamedTuple

import orjson

from penstock.broker.embedded.child_program import ChildProgram

from .client import Client
from .connection import LostError
from .processes import Roles, roles

SERVE = "from penstock.cli.main import main; main()"
PORTS = range(10_000, 30_000)  # those of connections are above, from 32,768 on by default
READY_S_MAX = 60.0
READY_LOOK_S = 0.005
STOP_S_MAX = 20.0


class Service(NamedTuple):
    """It lives as long as the block of `service`. `ready_s` is from its start to the first yes of /ready."""

    url: str
    broker_url: str
    roles: Roles
    ready_s: float
    ports: tuple[int, int]

    def kill(self) -> None:
        """All of it, at once: first the process that would start the others again."""
        for pids in (self.roles["serve"], *self.roles.values()):
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@asynccontextmanager
async def service(
    directory: Path,
    shards: int | None = None,
    fsync: str | None = None,
    bridge_token: str | None = None,
    ports: tuple[int, int] | None = None,
    otlp_endpoint: str | None = None,
    archive_after: str | None = None,
) -> AsyncIterator[Service]:
    """A service that is ready, for the time of the block. Raises RuntimeError with its last words when it does not get
    there.

    `ports`, of HTTP and of the broker, are those of one that was killed and is to go on.
    """
    port, broker_port = ports or free_ports(2)
    options = {
        "listen": f"127.0.0.1:{port}",
        "broker-port": broker_port,
        "data-dir": directory / "data",
        "shards": shards,
        "fsync": fsync,
        "bridge-token": bridge_token,
        "otlp-endpoint": otlp_endpoint,
        "archive-after": archive_after,
    }
    log = directory / "serve.log"
    begin = time.perf_counter()
    command = _start(options, log)
    try:
        url = f"http://127.0.0.1:{port}"
        await _ready(url, command, log)
        ready_s = time.perf_counter() - begin
        yield Service(
            url, f"nats://127.0.0.1:{broker_port}", roles(command.pid, dict(_named(log))), ready_s, (port, broker_port)
        )
    finally:
        command.terminate()
        # In a thread: this loop must go on closing connections, for the service gives open ones time to end.
        await asyncio.to_thread(command.join, STOP_S_MAX)
        command.kill()


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, and that the system gives to no connection meanwhile."""
    found: list[int] = []
    for port in sample(PORTS, len(PORTS)):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError(f"no {count} ports from {PORTS.start} to {PORTS.stop - 1} are free")


def _start(options: dict[str, object], log: Path) -> ChildProgram:
    """Our environment without the settings in it: what is measured are the defaults."""
    flags = [word for name, value in options.items() if value is not None for word in (f"--{name}", str(value))]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SERVICE_")}
    with log.open("ab") as output:
        return ChildProgram(
            [sys.executable, "-c", SERVE, "serve", "--log-format", "json", *flags],
            {**environ, "SERVICE_CONFIG": ""},
            output,
        )


async def _ready(url: str, command: ChildProgram, log: Path) -> None:
    client = Client(url)
    deadline = time.monotonic() + READY_S_MAX
    while not await _is_ready(client):
        if command.exitcode is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the service did not get ready; its log ends with:\n{_last_words(log)}")
        await asyncio.sleep(READY_LOOK_S)
    client.close()


async def _is_ready(client: Client) -> bool:
    try:
        return await client.ready()
    except LostError:
        return False


def _last_words(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-5:])


def _named(log: Path) -> Iterator[tuple[str, int]]:
    """Name and process id of each process that the supervisor has started, from its log."""
    for line in log.read_bytes().splitlines():
        if b'"process_started"' in line:
            entry = orjson.loads(line)
            yield entry["name"], entry["child"]
