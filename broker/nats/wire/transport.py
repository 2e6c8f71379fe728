"""The connection to the broker: what comes is passed on at once."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from urllib.parse import ParseResult

from nats.aio.transport import TcpTransport

Take = Callable[[bytes], bytes]
"""Takes what was read. Returns what the reading task must handle, empty for nothing."""


class _Incoming(asyncio.StreamReaderProtocol):
    def __init__(self, reader: asyncio.StreamReader, take: Take) -> None:
        super().__init__(reader)
        self._take = take
        self.is_awaited = False  # the reading task has handled all that came, and waits for more

    def data_received(self, data: bytes) -> None:
        if self.is_awaited:
            data = self._take(data)
            if not data:
                return
            self.is_awaited = False
        super().data_received(data)


class QuickTransport(TcpTransport):
    """Owned by one client. What comes while the client's reading task waits goes to `take` first: the task would see it
    a pass of the event loop later, and costs as much as handling a message. A connection with TLS has only the
    task."""

    def __init__(self, take: Take) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._take = take
        self._incoming: _Incoming | None = None

    async def connect(self, uri: ParseResult, buffer_size: int, connect_timeout: int) -> None:
        """As the client's own, which gives no way to pass a protocol. Raises OSError, TimeoutError."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=buffer_size, loop=loop)
        incoming = _Incoming(reader, self._take)
        async with asyncio.timeout(connect_timeout):
            transport, _ = await loop.create_connection(lambda: incoming, uri.hostname or "", uri.port or 0)
        self._incoming = incoming
        self._bare_io_reader = self._io_reader = reader
        self._bare_io_writer = self._io_writer = asyncio.StreamWriter(transport, incoming, reader, loop)

    async def connect_tls(
        self, uri: str | ParseResult, ssl_context: ssl.SSLContext, buffer_size: int, connect_timeout: int
    ) -> None:
        """Go on with TLS: it reads by a protocol of its own."""
        self._incoming = None
        await super().connect_tls(uri, ssl_context, buffer_size, connect_timeout)

    def __bool__(self) -> bool:
        """The client makes a transport of its own in place of one that is not there."""
        return True

    async def read(self, buffer_size: int) -> bytes:
        """What has come and is to be handled by the reading task; empty at the end of the connection."""
        incoming = self._incoming
        if incoming is None:
            return bytes(await super().read(buffer_size))
        incoming.is_awaited = True
        try:
            return bytes(await super().read(buffer_size))
        finally:
            incoming.is_awaited = False
