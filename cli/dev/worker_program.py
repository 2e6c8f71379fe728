"""A process with the user's code: `python -m penstock.cli.dev.worker_program FILE DESCRIPTOR PARENT`.

It imports what workers need, and waits on the socket DESCRIPTOR for a byte. Then it loads FILE, serves it until
SIGTERM, and says on the socket how that went (messages.py). So a reload takes the time of the user's imports only. It
gets SIGTERM also when the process PARENT, which started it, ends.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import uvloop

import penstock.authoring.codecs
import penstock.client.async_client
import penstock.worker.transports.direct  # noqa: F401 - loaded before the user's code is, as the others here
from penstock.cli.dev.loading import LoadedCode, load, problems_of
from penstock.cli.dev.messages import CodeProblem, Message, Refused, Serving
from penstock.cli.dev.problems import problem_of
from penstock.config.log_setup import configure
from penstock.config.process.parent import end_with
from penstock.config.settings import Settings
from penstock.config.settings import load as load_settings
from penstock.worker.authored import register


def main(file: str, descriptor: str, parent: str) -> int:
    """Returns 1 if the code cannot be served."""
    end_with(int(parent))
    app, command = Path(file), socket.socket(fileno=int(descriptor))
    os.set_inheritable(command.fileno(), False)  # programs of the user's would keep the command waiting for its end
    if not command.recv(1):
        return 0
    refused = _serve(app, command)
    if refused:
        _say(command, Refused(refused))
    return bool(refused)


def _serve(app: Path, command: socket.socket) -> list[CodeProblem]:
    """Until SIGTERM; returns what is wrong with the code, if it is."""
    settings = load_settings({}).settings
    configure(settings.log, "worker")
    try:
        loaded = load(app)
        problems = problems_of(loaded.workflows, app)
        if not problems:
            uvloop.run(_working(loaded, settings, command))
    except (Exception, SystemExit) as error:  # whatever the user's module raises
        return [problem_of(error, app)]
    return problems


async def _working(loaded: LoadedCode, settings: Settings, command: socket.socket) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with AsyncExitStack() as stack:
        await register(loaded.unserved, os.environ["SERVICE_URL"], settings.http.api_token)
        for worker in loaded.workers:
            await stack.enter_async_context(worker.running())
        _say(command, Serving(sorted(flow.name for flow in loaded.workflows), loaded.tasks))
        await stopped.wait()


def _say(command: socket.socket, message: Message) -> None:
    command.sendall(msgspec.json.encode(message) + b"\n")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
