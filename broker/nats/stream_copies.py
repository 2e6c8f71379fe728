"""Copies of whole streams: the broker sends one in pieces while the stream is in use, and makes a stream of one again.

A copy is the stream as it was when it was asked for, or a little later, without gaps. The broker sends a few pieces and
waits until they are acknowledged. Its end is an empty message with a status.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

from msgspec import Struct
from nats.aio.msg import Msg
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from penstock.broker.nats.connection import Broker, api_answer
from penstock.engine.errors import NotFound, Unavailable

PIECE_BYTES = 128 * 1024
PIECE_S_MAX = 30.0
STORED_S_MAX = 600.0  # the broker reads a restored stream before it answers
LISTENS_S_MAX = 10.0  # a broker of a cluster may answer before the others know where to send the pieces
GOOD = "204"
STATUS = "Status"
DESCRIPTION = "Description"


class StreamCopy(Struct, frozen=True):
    """A stream's configuration and state, in the broker's form."""

    config: dict[str, Any]
    state: dict[str, Any]


async def copy_stream(broker: Broker, stream: str, write: Callable[[bytes], object]) -> StreamCopy:
    """Give the pieces of a copy to `write`, in order, without the stream's consumers. Raises ApiError, Unavailable."""
    inbox, pieces = broker.new_inbox(), asyncio.Queue[Msg]()
    async with broker.listening(inbox, pieces.put):
        request = {"deliver_subject": inbox, "no_consumers": True, "chunk_size": PIECE_BYTES}
        answer = await broker.api(f"STREAM.SNAPSHOT.{stream}", request)
        async for piece in _pieces(broker, stream, pieces):
            write(piece)
    return StreamCopy(answer["config"], answer["state"])


async def _pieces(broker: Broker, stream: str, pieces: asyncio.Queue[Msg]) -> AsyncIterator[bytes]:
    while True:
        async with broker.deadline(PIECE_S_MAX, f"broker: no further piece of the stream {stream}"):
            msg = await pieces.get()
        if not msg.data:
            _check_end(stream, msg)
            return
        yield msg.data
        if msg.reply:
            await broker.publish(msg.reply, b"")


def _check_end(stream: str, msg: Msg) -> None:
    headers = msg.headers or {}
    if (status := headers.get(STATUS, GOOD)) != GOOD:
        raise Unavailable(f"broker: the copy of {stream} broke off: {status} {headers.get(DESCRIPTION, '')}".rstrip())


async def restore_stream(broker: Broker, copy: StreamCopy, pieces: Iterable[bytes]) -> dict[str, Any]:
    """Make the stream of a copy again; the broker's description of it. Raises Conflict for one that exists, ApiError,
    Unavailable."""
    stream = copy.config["name"]
    request = {"config": copy.config, "state": copy.state}
    to = (await broker.api(f"STREAM.RESTORE.{stream}", request))["deliver_subject"]
    send = _once_it_listens(broker.request)
    for piece in pieces:
        api_answer((await send(to, piece, PIECE_S_MAX)).data)
        send = broker.request
    return api_answer((await send(to, b"", STORED_S_MAX)).data)


def _once_it_listens(request: Callable[..., Awaitable[Msg]]) -> Callable[..., Awaitable[Msg]]:
    """The request, repeated for a while when nothing listens: then nobody has received it."""
    return AsyncRetrying(
        retry=retry_if_exception_type(NotFound),
        wait=wait_random_exponential(0.05, 0.5),
        stop=stop_after_delay(LISTENS_S_MAX),
        reraise=True,
    ).wraps(request)
