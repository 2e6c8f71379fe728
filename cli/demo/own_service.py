"""A service of a command's own: `penstock serve` on free ports, with data that are removed at the end or kept."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from penstock.broker.embedded.child_program import ChildProgram
from penstock.cli.demo.starting import await_ready, last_lines
from penstock.client import Client
from penstock.config.process.ports import trouble
from penstock.engine.errors import Unavailable

HOST = "127.0.0.1"
PORT_WANTED = 8080
STOP_S_MAX = 20.0


@contextmanager
def own_service(
    token: str | None, data: Path | None = None, options: Sequence[str] = ()
) -> Iterator[Mapping[str, str]]:
    """The variables that lead to a service that is ready, for the time of the block. `data` is the directory of its
    data, None: one that is removed at the end; `options` are more of those of `penstock serve`. Raises Unavailable when
    it does not get there."""
    with (
        tempfile.TemporaryDirectory(prefix="penstock-demo-") as directory,
        Path(directory, "serve.log").open("w+b") as log,
    ):
        port, broker_port = _free_port(PORT_WANTED), _free_port()
        listen = [f"--listen={HOST}:{port}", f"--broker-port={broker_port}", "--broker-url="]
        stored = f"--data-dir={data or Path(directory, 'data')}"
        command = [sys.executable, "-P", "-m", "penstock.cli.main", "serve", *listen, stored, *options]
        service = ChildProgram(command, _environ(token), log)
        try:
            url = f"http://{HOST}:{port}"
            _await(url, token, service, log.name)
            yield {"SERVICE_URL": url, "SERVICE_BROKER_URL": f"nats://{HOST}:{broker_port}"}
        finally:
            service.terminate()
            service.join(STOP_S_MAX)
            service.kill()


def _await(url: str, token: str | None, service: ChildProgram, log: str) -> None:
    with Client(url, token) as client:
        try:
            await_ready(client, url, lambda: service.exitcode is not None)
        except Unavailable as error:
            with open(log, "rb") as said:
                raise Unavailable(f"the service did not start:\n{last_lines(said)}") from error


def _environ(token: str | None) -> Mapping[str, str]:
    """Ours without the settings in it, which are those of another service."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SERVICE_")}
    return {**kept, "SERVICE_CONFIG": "", **({"SERVICE_API_TOKEN": token} if token else {})}


def _free_port(wanted: int = 0) -> int:
    """This port if nobody listens on it, else any such port."""
    if wanted and trouble("the port", HOST, wanted) is None:
        return wanted
    with socket.create_server((HOST, 0)) as probe:
        return int(probe.getsockname()[1])
