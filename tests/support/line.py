"""A line to a server that is slow, or cut: connections stay, and what is sent meanwhile arrives when it is mended, late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

BYTES = 1 << 16
CHUNKS_MAX = 1024


class Line:
    """Owned by a test, by way of `line`. `latency_s` is added in each direction."""

    def __init__(self, port: int) -> None:
        self.port = 0
        self.latency_s = 0.0
        self._target = port
        self._whole = asyncio.Event()
        self._whole.set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def cut(self) -> None:
        self._whole.clear()

    def mend(self) -> None:
        self._whole.set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, here = await asyncio.open_connection("127.0.0.1", self._target)
        for one, other in ((reader, here), (there, writer)):
            on_its_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(CHUNKS_MAX)
            for work in (self._take(one, on_its_way), self._deliver(on_its_way, other)):
                task = asyncio.create_task(work)
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _take(self, reader: asyncio.StreamReader, on_its_way: asyncio.Queue[tuple[float, bytes]]) -> None:
        """To the end, which is no bytes."""
        data = b"begin"
        while data:
            data = b""
            with suppress(OSError):
                data = await reader.read(BYTES)
            await on_its_way.put((asyncio.get_running_loop().time() + self.latency_s, data))

    async def _deliver(self, on_its_way: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while True:
                due, data = await on_its_way.get()
                await asyncio.sleep(due - asyncio.get_running_loop().time())
                await self._whole.wait()
                if not data:
                    break
                writer.write(data)
                await writer.drain()
        writer.close()

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()


@asynccontextmanager
async def line(port: int) -> AsyncIterator[Line]:
    """A line to this port of 127.0.0.1, for the time of the block."""
    one = Line(port)
    server = await asyncio.start_server(one.accept, "127.0.0.1", 0)
    one.port = server.sockets[0].getsockname()[1]
    try:
        yield one
    finally:
        server.close()
        one.close()
