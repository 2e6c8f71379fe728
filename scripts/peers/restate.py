"""Restate: its server, and the service with the handlers as its Python pages show it, served by hypercorn."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from load.connection import Answer, Pool
from load.processes import descendants
from load.service import free_ports

from .packages import modules_with, python_with
from .processes import Command, listening, program
from .system import Running, Skipped, System
from .users import load

SERVER = "@restatedev/restate-server@1.7.12"
SDK = ("restate-sdk[serde]==1.3.0", "hypercorn==0.18.0")
BINARY = "@restatedev/restate-server-*/bin/restate-server"
INPUT = b'{"n":1}'


@asynccontextmanager
async def start(directory: Path, handler: str) -> AsyncIterator[Running]:
    """Users send a request to the server's ingress, whose answer is the end of the run."""
    python, binary = python_with("restate", *SDK), _binary()
    ingress, admin, node, port = free_ports(4)
    environ = {
        "RESTATE_DISABLE_TELEMETRY": "true",
        "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ingress}",
        "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
    }
    command: Command = [binary, "--base-dir", directory, "--bind-address", f"127.0.0.1:{node}", "--listen-mode", "tcp"]
    service: Command = [python, "-m", "hypercorn", "peers.restate_program:app", "--bind", f"127.0.0.1:{port}"]
    logs = directory / "server.log", directory / "service.log"
    async with program(command, logs[0], environ) as server, program(service, logs[1]) as serving:
        for at, child, log in ((ingress, server, logs[0]), (admin, server, logs[0]), (port, serving, logs[1])):
            await listening(at, child, log)
        await _registered(admin, port)
        pool = Pool("127.0.0.1", ingress)

        async def run() -> object:
            return _good(await pool.request("POST", f"/Chain/{handler}", INPUT))

        yield Running(
            lambda users, seconds: load(run, users, seconds),
            lambda: descendants(server.pid) | descendants(serving.pid),
        )
        pool.close()


SYSTEMS = (
    System(
        "Restate, steps in the handler",
        f"{SERVER}, {SDK[0]}; steps are `run_typed` in the one process of the service, served by hypercorn; the "
        "defaults, with which its log is synced",
        lambda directory: start(directory, "run"),
    ),
    System(
        "Restate, steps as calls",
        "the same, each step a call of a handler of another service in the same process",
        lambda directory: start(directory, "call"),
    ),
)


def _binary() -> Path:
    found = next(modules_with("restate-server", SERVER).glob(BINARY), None)
    if found is None:
        raise Skipped(f"{SERVER} has no program for this machine")
    return found


async def _registered(admin: int, port: int) -> None:
    """Let the server know of the service."""
    pool = Pool("127.0.0.1", admin)
    body = msgspec.json.encode({"uri": f"http://127.0.0.1:{port}"})
    _good(await pool.request("POST", "/deployments", body))
    pool.close()


def _good(answer: Answer) -> bytes:
    if answer.status >= 300:
        raise Skipped(f"it answers {answer.status}: {answer.body[:200].decode(errors='replace')}")
    return answer.body
