"""A line to a server that is slow, or cut: connections stay, and what is sent meanwhile arrives when it is mended,
late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from threading import Thread

BYTES = 1 << 16
CHUNKS_MAX = 1024


class Line:
    """Owned by a test, by way of `line`. `latency_s` is added in each direction. `late` is what clients sent while it
    was cut."""

    def __init__(self, port: int) -> None:
        self.port = 0
        self.latency_s = 0.0
        self.late = bytearray()
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

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._carry(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Both ways. The server does not hear of who comes while the line is cut, as it would not of the first
        packet."""
        with suppress(OSError):
            await self._whole.wait()
            there, here = await asyncio.open_connection("127.0.0.1", self._target)
            async with asyncio.TaskGroup() as group:
                for one, other, late in ((reader, here, self.late), (there, writer, bytearray())):
                    on_its_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(CHUNKS_MAX)
                    group.create_task(self._take(one, on_its_way, late))
                    group.create_task(self._deliver(on_its_way, other))
        writer.close()

    async def _take(
        self, reader: asyncio.StreamReader, on_its_way: asyncio.Queue[tuple[float, bytes]], late: bytearray
    ) -> None:
        """To the end, which is no bytes."""
        data = b"begin"
        while data:
            data = b""
            with suppress(OSError):
                data = await reader.read(BYTES)
            if not self._whole.is_set():
                late += data
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


class Lines:
    """All the lines of one host, which are cut and mended together. Owned by a test, by way of `lines`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, each: Sequence[Line]) -> None:
        self._loop, self._each = loop, each

    @property
    def ports(self) -> set[int]:
        return {one.port for one in self._each}

    @property
    def url(self) -> str:
        """Every line's address, comma-separated."""
        return ",".join(one.url for one in self._each)

    @property
    def late(self) -> bytes:
        return b"".join(one.late for one in self._each)

    def cut(self) -> None:
        self._change(Line.cut)

    def mend(self) -> None:
        self._change(Line.mend)

    def _change(self, change: Callable[[Line], None]) -> None:
        """It is so when this returns."""

        async def all_of_them() -> None:
            for one in self._each:
                change(one)

        asyncio.run_coroutine_threadsafe(all_of_them(), self._loop).result()


@contextmanager
def lines(ports: Sequence[int]) -> Iterator[Lines]:
    """A line to each of these ports, for the time of the block, in a loop of their own: a test that blocks does not
    hold them up."""
    with _loop_in_a_thread() as loop:
        stack = AsyncExitStack()
        opened = [
            asyncio.run_coroutine_threadsafe(stack.enter_async_context(line(port)), loop).result() for port in ports
        ]
        try:
            yield Lines(loop, opened)
        finally:
            asyncio.run_coroutine_threadsafe(stack.aclose(), loop).result()


@contextmanager
def _loop_in_a_thread() -> Iterator[asyncio.AbstractEventLoop]:
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        loop = runner.get_loop()
        thread = Thread(target=loop.run_forever)
        thread.start()
        try:
            yield loop
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
