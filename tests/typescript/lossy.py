"""A way to a service on which answers are lost."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.service import Service

CONNECT = b"POST /v1/workers/connect"
BYTES = 1 << 16


def body_size(head: bytes) -> int:
    found = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
    return int(found[1]) if found else 0


@asynccontextmanager
async def losing_answers(
    service: Service, losses: int, of: bytes = b""
) -> AsyncIterator[tuple[str, list[tuple[bytes, bytes]]]]:
    """A way to the service on which the first answers are lost, of requests with `of` in their heads; yields its
    address and those requests that it has passed on, as heads and bodies."""
    requests: list[tuple[bytes, bytes]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to, back = await asyncio.open_connection(*service.http_address)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                body = await reader.readexactly(body_size(head))
                back.write(head + body)
                if head.startswith(CONNECT):
                    await copy(to, writer)
                    return
                answer = await to.readuntil(b"\r\n\r\n")
                answer += await to.readexactly(body_size(answer))
                if of in head:
                    requests.append((head, body))
                    if len(requests) <= losses:
                        return
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            back.close()
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", requests


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(BYTES):
        writer.write(data)
        await writer.drain()
