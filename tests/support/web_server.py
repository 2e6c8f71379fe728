"""A server out in the world, as http steps meet them: it answers what a test scripts, byte for byte, and keeps what it
was asked."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple


class Asked(NamedTuple):
    """One request; names of headers in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


# None: no answer ever.
Script = Callable[[Asked], bytes | Awaitable[bytes] | None]


class WebServer:
    """Owned by `web_server`. `script` may be replaced at any time."""

    def __init__(self, script: Script) -> None:
        self.script, self.asked = script, list[Asked]()
        self.connections = 0
        self.port = 0
        self.writers: set[asyncio.StreamWriter] = set()
        self._arrived = asyncio.Event()

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    async def was_asked(self) -> None:
        """Return once a request has come."""
        await self._arrived.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.add(writer)
        try:
            while asked := await _request(reader):
                self.asked.append(asked)
                self._arrived.set()
                answer = self.script(asked)
                if answer is None:
                    await reader.read()  # until the client has gone
                    return
                if not isinstance(answer, bytes):
                    answer = await answer
                writer.write(answer)
                await writer.drain()
                if b"content-length" not in answer.lower():
                    return
        except ConnectionError:
            pass
        finally:
            writer.close()
            self.writers.discard(writer)


def answer(status: int = 200, body: bytes = b"", **headers: str) -> bytes:
    """The bytes of an answer; underscores in names are dashes."""
    given = {"content_length": str(len(body)), **headers}
    lines = [f"HTTP/1.1 {status} Whatever", *(f"{name.replace('_', '-')}: {value}" for name, value in given.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


@asynccontextmanager
async def web_server(
    script: Script, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[WebServer]:
    """Listening on a port of its own for the time of the block."""
    server = WebServer(script)
    listening = await asyncio.start_server(server.serve, host, 0, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        for writer in list(server.writers):
            writer.close()


async def _request(reader: asyncio.StreamReader) -> Asked | None:
    """The next request of a connection; None when it has ended."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    except asyncio.IncompleteReadError:
        return None
    method, target, _ = head[0].split(" ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
    return Asked(method, target, headers, await reader.readexactly(int(headers.get("content-length", "0"))))
