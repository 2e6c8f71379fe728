"""HTTP/1.1 over kept connections, for as little CPU as Python allows: the load must not be what is measured."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple, cast

from .framing import BadAnswerError, End, Framing, Head

CONNECT_S_MAX = 5.0
BREAKS = (OSError, TimeoutError)

OnPiece = Callable[[bytes], None]


class LostError(Exception):
    """The connection broke, or was never made; what the service did with the request is unknown."""


class Answer(NamedTuple):
    """`body` is empty when its pieces were taken one by one."""

    status: int
    body: bytes
    headers: Mapping[bytes, bytes] = {}


class _Asked:
    """A request without its whole answer so far."""

    __slots__ = ("future", "head", "on_piece", "pieces")

    def __init__(self, future: asyncio.Future[Answer], on_piece: OnPiece | None) -> None:
        self.future, self.on_piece = future, on_piece
        self.pieces: list[bytes] = []
        self.head: Head | None = None


class Connection(asyncio.Protocol):
    """One connection, owned by a Pool; several requests may be on their way, answers come in their order."""

    def __init__(self, headers: bytes) -> None:
        self._headers = headers
        self._asked: deque[_Asked] = deque()
        self._framing = Framing()
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def request(
        self, method: str, target: str, body: bytes = b"", headers: bytes = b"", on_piece: OnPiece | None = None
    ) -> asyncio.Future[Answer]:
        """Send a request; the future gives the answer, or raises LostError. `headers` are whole lines."""
        assert self._transport is not None
        asked = _Asked(self._loop.create_future(), on_piece)
        self._asked.append(asked)
        head = f"{method} {target} HTTP/1.1\r\nContent-Length: {len(body)}\r\n".encode()
        self._transport.write(b"".join((head, self._headers, headers, b"\r\n", body)))
        return asked.future

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            for part in self._framing.feed(data):
                self._take(part)
        except BadAnswerError as error:
            self._fail(error)
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc)

    def _take(self, part: Head | bytes | End) -> None:
        if not self._asked:
            raise BadAnswerError("an answer came that nobody asked for")
        asked = self._asked[0]
        if isinstance(part, bytes):
            (asked.on_piece or asked.pieces.append)(part)
        elif isinstance(part, Head):
            asked.head = part
        else:
            self._finish(self._asked.popleft())

    def _finish(self, asked: _Asked) -> None:
        assert asked.head is not None
        if asked.head.closes:
            self.close()
        if not asked.future.done():
            asked.future.set_result(Answer(asked.head.status, b"".join(asked.pieces), asked.head.headers))

    def _fail(self, error: Exception | None) -> None:
        while self._asked:
            future = self._asked.popleft().future
            if not future.done():
                future.set_exception(LostError(f"the connection broke: {error or 'the service closed it'}"))


class Pool:
    """Kept connections to one service, one request at a time on each; as many as there are requests at once."""

    def __init__(self, host: str, port: int, token: str | None = None) -> None:
        self._host, self._port = host, port
        authorization = f"Authorization: Bearer {token}\r\n" if token else ""
        self._headers = f"Host: {host}:{port}\r\nContent-Type: application/json\r\n{authorization}".encode()
        self._idle: list[Connection] = []

    async def request(self, method: str, target: str, body: bytes = b"", headers: bytes = b"") -> Answer:
        """One request and its answer. Raises LostError."""
        connection = await self._take()
        try:
            return await connection.request(method, target, body, headers)
        except asyncio.CancelledError:
            connection.close()
            raise
        finally:
            self._give(connection)

    async def stream(self, target: str, headers: bytes, on_piece: OnPiece) -> asyncio.Future[Answer]:
        """Ask for an answer whose pieces go to `on_piece`; the future ends when it has ended. Cancelling it closes the
        connection."""
        connection = await self._take()
        whole = connection.request("GET", target, headers=headers, on_piece=on_piece)
        whole.add_done_callback(lambda _: self._after_stream(connection, whole))
        return whole

    def close(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    def _after_stream(self, connection: Connection, whole: asyncio.Future[Answer]) -> None:
        if whole.cancelled():
            connection.close()
        self._give(connection)

    async def _take(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.open:
                return connection
        return await self._connect()

    def _give(self, connection: Connection) -> None:
        if connection.open:
            self._idle.append(connection)

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_S_MAX):
                _, connection = await loop.create_connection(lambda: Connection(self._headers), self._host, self._port)
        except BREAKS as error:
            raise LostError(f"{self._host}:{self._port} cannot be reached: {error or 'no answer'}") from error
        return connection
