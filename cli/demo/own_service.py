"""A service of a command's own: `penstock serve` on free ports, with data that are removed at the end or kept."""

from __future__ import annotations

import os
import select
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from penstock.broker.embedded.child_program import ChildProgram
from penstock.cli.demo.starting import await_ready, last_lines
from penstock.client import Client
from penstock.config.process.ports import trouble
from penstock.engine.errors import PenstockError, Unavailable

HOST = "127.0.0.1"
PORT_WANTED = 8080
ANY = 0
IN_USE = "in use"
STOP_S_MAX = 20.0


class OwnService:
    """A service that is ready. `variables` lead to it."""

    def __init__(self, variables: Mapping[str, str], program: ChildProgram, log: str) -> None:
        self.variables, self._program, self._log = variables, program, log

    def await_end(self) -> str:
        """Block until its process has ended, and return the last lines of its log, if that is still there."""
        ended = select.poll()
        ended.register(self._program.sentinel, select.POLLIN)
        ended.poll()
        try:
            return _last_lines(self._log)
        except FileNotFoundError:  # the block is over, and the log with it
            return ""


@contextmanager
def own_service(token: str | None, data: Path | None = None, options: Sequence[str] = ()) -> Iterator[OwnService]:
    """A service for the time of the block. `data` is the directory of its data, None: one that is removed at the end;
    `options` are more of those of `penstock serve`. Raises Unavailable when it does not get there."""
    with (
        tempfile.TemporaryDirectory(prefix="penstock-demo-") as directory,
        Path(directory, "serve.log").open("w+b") as log,
        ExitStack() as programs,
    ):
        kept = [f"--data-dir={data or Path(directory, 'data')}", *options]
        for wanted in (PORT_WANTED, ANY, ANY):
            port, broker_port = _free_port(wanted), _free_port()
            listen = [f"--listen={HOST}:{port}", f"--broker-port={broker_port}", "--broker-url="]
            command = [sys.executable, "-P", "-m", "penstock.cli.main", "serve", *listen, *kept]
            program = programs.enter_context(_running(command, token, log))
            url, broker_url = f"http://{HOST}:{port}", f"nats://{HOST}:{broker_port}"
            if _is_ready(url, broker_url, token, program):
                variables = {"SERVICE_URL": url, "SERVICE_BROKER_URL": broker_url}
                yield OwnService(variables, program, log.name)
                return
            ended_by_itself = program.exitcode is not None
            programs.close()
            if ended_by_itself and IN_USE not in _last_lines(log.name):
                break
        raise Unavailable(f"the service did not start:\n{_last_lines(log.name)}")


@contextmanager
def _running(command: Sequence[str], token: str | None, log: IO[bytes]) -> Iterator[ChildProgram]:
    program = ChildProgram(command, _environ(token), log)
    try:
        yield program
    finally:
        program.terminate()
        program.join(STOP_S_MAX)
        program.kill()


def _is_ready(url: str, broker_url: str, token: str | None, program: ChildProgram) -> bool:
    """Whether it is ready, and no other service that was given the same port a moment before."""
    with Client(url, token) as client:
        try:
            await_ready(client, url, lambda: program.exitcode is not None)
            return client.broker().address == broker_url
        except PenstockError:
            return False


def _last_lines(log: str) -> str:
    with open(log, "rb") as said:
        return last_lines(said)


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
