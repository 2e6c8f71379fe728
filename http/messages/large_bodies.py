"""Large JSON texts as bodies of responses: a bounded number of bytes of them are in memory at once, from before they
are read until the client has taken them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from falcon.asgi import Request, Response
from msgspec import Raw

from penstock.broker.nats.errors import Within
from penstock.config.limits import (
    KIB,
    LARGE_BODIES_BYTES_MAX,
    LARGE_BODY_STALLED_S_MAX,
    LARGE_BODY_WAIT_S_MAX,
    PAYLOAD_BYTES_MAX,
)
from penstock.config.process.byte_gate import ByteGate, Share

PIECE_BYTES = 256 * KIB


class LargeBodies:
    """Owned by the backend."""

    def __init__(self) -> None:
        self.gate = ByteGate(LARGE_BODIES_BYTES_MAX)

    async def take(self, size: int) -> Share | None:
        """Wait until so many bytes may be read; None for so few that any number of them may be.

        Raises Unavailable when others have taken too long.
        """
        if size <= PAYLOAD_BYTES_MAX:
            return None
        return await self._take(size)

    async def take_all(self) -> Share:
        """As `take`, for what nobody knows the size of before it is read."""
        return await self._take(self.gate.most)

    async def _take(self, size: int) -> Share:
        async with Within(LARGE_BODY_WAIT_S_MAX, "many large payloads are being read at this time: try again later"):
            return await self.gate.take(size)


@contextmanager
def kept_unless_failed(share: Share | None) -> Iterator[None]:
    """Give it back if the block raises."""
    try:
        yield
    except BaseException:
        if share is not None:
            share.give_back()
        raise


def ok_large(req: Request, resp: Response, document: Raw | bytes, share: Share | None) -> None:
    """200 with a JSON text, in pieces; its share is given back when they are sent."""
    size = memoryview(document).nbytes
    if share is None or req.method == "HEAD":
        resp.data = bytes(document)
        if share is not None:
            share.give_back()
        return
    share.keep(size)
    resp.content_length = size
    resp.stream = _Sending(document, share)


class _Sending:
    """The pieces of a body. Owned by its response, which closes it. A client that takes nothing for
    LARGE_BODY_STALLED_S_MAX gets no more, and the server then closes the connection."""

    def __init__(self, document: Raw | bytes, share: Share) -> None:
        self._left, self._share = memoryview(document), share
        self._stalled = self._watch()

    def __aiter__(self) -> _Sending:
        return self

    async def __anext__(self) -> bytes:
        self._stalled.cancel()
        piece, self._left = bytes(self._left[:PIECE_BYTES]), self._left[PIECE_BYTES:]
        if not piece:
            raise StopAsyncIteration
        self._stalled = self._watch()
        return piece

    async def close(self) -> None:
        self._end()

    def _watch(self) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(LARGE_BODY_STALLED_S_MAX, self._end)

    def _end(self) -> None:
        self._stalled.cancel()
        self._left = memoryview(b"")
        self._share.give_back()
