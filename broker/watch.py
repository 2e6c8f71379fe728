"""Watching one run live: the broker sends a copy of each stored event to whoever listens, for nothing when nobody does.

Copies may get lost with a connection, so what is missing is read from the stream: each copy names the event before it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from penstock.broker import names
from penstock.broker.connection import Broker
from penstock.broker.direct import DirectReader, Stored
from penstock.engine.errors import Unavailable

QUIET_S = 2.0
SEQUENCES = re.compile(rb"Nats-Sequence: (\d+)\r\n(?:.*\r\n)*?Nats-Last-Sequence: (\d+)")


class _Copy:
    """An event as it was just stored; `before` is the sequence of the same run's event before it."""

    __slots__ = ("before", "data", "seq")

    def __init__(self, headers: bytes, data: bytes) -> None:
        found = SEQUENCES.search(headers)
        assert found is not None, headers
        self.seq, self.before, self.data = int(found[1]), int(found[2]), data


async def watch(broker: Broker, reader: DirectReader, run_id: str, after: int) -> AsyncGenerator[Stored | None, None]:
    """The run's events after a sequence, then each new one as it is stored; None after every quiet 2 s. Ends never."""
    subject = names.stored_subject(run_id)
    async with _copies(broker, run_id) as copies:
        read_now = True
        while True:
            if read_now:
                for stored in await _read(reader, subject, after):
                    after = stored.seq
                    yield stored
            copy = await _next(copies)
            # A quiet time may also mean that copies were lost: a reconnect shows in nothing else.
            read_now = copy is None or copy.before > after
            if copy is None:
                yield None
            elif not read_now and copy.seq > after:
                after = copy.seq
                yield Stored(subject, copy.seq, 0.0, copy.data)


@asynccontextmanager
async def _copies(broker: Broker, run_id: str) -> AsyncIterator[asyncio.Queue[_Copy]]:
    queue: asyncio.Queue[_Copy] = asyncio.Queue()

    async def receive(subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        queue.put_nowait(_Copy(headers or b"", data))

    subscription = await broker.client.receive(names.watch_subject(run_id), receive)
    try:
        yield queue
    finally:
        if broker.connected:
            await broker.client.stop_receiving(subscription)


async def _next(copies: asyncio.Queue[_Copy]) -> _Copy | None:
    try:
        async with asyncio.timeout(QUIET_S):
            return await copies.get()
    except TimeoutError:
        return None


async def _read(reader: DirectReader, subject: str, after: int) -> list[Stored]:
    try:
        return await reader.subject(names.HISTORY, subject, after + 1)
    except Unavailable:
        return []  # the broker is away: the next quiet time reads again
