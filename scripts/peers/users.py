"""Users who start a run, wait for its end, and start the next one; and how a program in another environment is asked to
be them.

Every system is loaded by this code, so it needs nothing but the standard library.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable

Run = Callable[[], Awaitable[object]]
Load = Callable[[int, float], Awaitable[list[float]]]
"""Takes how many users and for how many seconds; returns the seconds that each of their runs took."""


async def load(run: Run, users: int, seconds: float) -> list[float]:
    """Users of `run`, which starts one and returns at its end."""
    times: list[float] = []
    end = time.perf_counter() + seconds

    async def user() -> None:
        while (begin := time.perf_counter()) < end:
            await run()
            times.append(time.perf_counter() - begin)

    await asyncio.gather(*(user() for _ in range(users)))
    return times


def load_in_threads(run: Callable[[], object], users: int, seconds: float) -> list[float]:
    """The same with a function that blocks: each user is a thread."""
    times: list[float] = []
    end = time.perf_counter() + seconds

    def user() -> None:
        while (begin := time.perf_counter()) < end:
            run()
            times.append(time.perf_counter() - begin)

    threads = [threading.Thread(target=user) for _ in range(users)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times


async def serve(load: Load) -> None:
    """Be the users that the other end of the socket asks for, whose number is the program's last argument, until it is
    closed: `[users, seconds]` a line, answered by a line of times. An empty line is the greeting."""
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=int(sys.argv[-1])))
    writer.write(b"\n")
    while line := await reader.readline():
        writer.write(json.dumps(await load(*json.loads(line))).encode() + b"\n")
        await writer.drain()
    writer.close()
