"""Programs of the systems: started, waited for, asked to be users, and ended by their ids."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from load.processes import descendants

from penstock.broker.embedded.child_program import ChildProgram

from .system import Skipped
from .users import Load

Command = Sequence[str | Path]

SCRIPTS = Path(__file__).resolve().parent.parent
READY_S_MAX, LOOK_S = 60.0, 0.05
STOP_S_MAX = 10.0
LINE_BYTES_MAX = 64 << 20
WORDS_MAX = 300


@asynccontextmanager
async def program(
    command: Command, log: Path, environ: Mapping[str, str] | None = None, inherited: Collection[int] = ()
) -> AsyncIterator[ChildProgram]:
    """A program for the time of the block, and all that it started; it finds the modules in scripts/. What it says
    goes to `log`."""
    words = [str(word) for word in command]
    with log.open("ab") as output:
        child = ChildProgram(words, {**os.environ, "PYTHONPATH": str(SCRIPTS), **(environ or {})}, output, inherited)
    try:
        yield child
    finally:
        everyone = descendants(child.pid)
        child.terminate()
        await asyncio.to_thread(child.join, STOP_S_MAX)
        child.kill()
        for pid in everyone - {child.pid}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@asynccontextmanager
async def users(command: Command, log: Path) -> AsyncIterator[tuple[Load, ChildProgram]]:
    """A program that is the users it is asked to be, for the time of the block (see users.serve)."""
    ours, theirs = socket.socketpair()
    try:
        child = program([*command, str(theirs.fileno())], log, inherited=[theirs.fileno()])
        async with child as started:
            theirs.close()
            reader, writer = await asyncio.open_connection(sock=ours, limit=LINE_BYTES_MAX)
            await _line(reader, log)

            async def load(users: int, seconds: float) -> list[float]:
                writer.write(json.dumps([users, seconds]).encode() + b"\n")
                return list(json.loads(await _line(reader, log)))

            yield load, started
            writer.close()
    finally:
        theirs.close()
        ours.close()


async def listening(port: int, child: ChildProgram, log: Path) -> None:
    """Return once somebody listens on this port. Raises Skipped when the program has ended, or takes too long."""
    deadline = time.monotonic() + READY_S_MAX
    while True:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        if child.exitcode is not None or time.monotonic() > deadline:
            raise Skipped(f"it does not start: {last_words(log)}")
        await asyncio.sleep(LOOK_S)


def last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n")
    return " ".join(line.strip() for line in lines[-4:] if line.strip())[-WORDS_MAX:]


async def _line(reader: asyncio.StreamReader, log: Path) -> bytes:
    if line := await reader.readline():
        return line
    raise Skipped(f"its program has ended: {last_words(log)}")
