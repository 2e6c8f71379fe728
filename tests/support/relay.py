"""A way to a service on which requests for one path are lost: their connections break, and new ones are refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

BYTES = 1 << 16


class Relay:
    """Owned by a test, by way of `relay`. `refused` counts the requests that came after the path was lost."""

    def __init__(self, port: int, request: bytes) -> None:
        self.port = 0
        self.refused = 0
        self._target, self._request = port, request
        self._lost = False
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def lose(self) -> None:
        self._lost = True
        for writer in self._open:
            writer.transport.abort()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._carry(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            there, here = await asyncio.open_connection("127.0.0.1", self._target)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._requests(reader, here, writer))
                group.create_task(_copy(there, writer))
        self._open.discard(writer)

    async def _requests(
        self, reader: asyncio.StreamReader, there: asyncio.StreamWriter, back: asyncio.StreamWriter
    ) -> None:
        """A request begins with what is read at once: the client sends one after the other."""
        with suppress(OSError):
            while data := await reader.read(BYTES):
                if data.startswith(self._request):
                    if self._lost:
                        self.refused += 1
                        break
                    self._open.add(back)
                there.write(data)
                await there.drain()
        there.close()

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(BYTES):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def relay(port: int, request: str) -> AsyncIterator[Relay]:
    """A way to this port of 127.0.0.1 for the time of the block; `request` is what is to be lost: `POST /path`."""
    one = Relay(port, request.encode())
    server = await asyncio.start_server(one.accept, "127.0.0.1", 0)
    one.port = server.sockets[0].getsockname()[1]
    try:
        yield one
    finally:
        server.close()
        one.close()
