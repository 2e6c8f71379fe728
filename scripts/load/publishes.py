"""What the broker takes for the least that one can ask of it: messages of 200 bytes, one at a time, each published with
an acknowledgement, to a stream of their own on disk, by the NATS client as it is. A latency in units of it says how
many such round trips it is worth, on any machine and however busy that is."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import nats
from nats.js import JetStreamContext

STREAM, SUBJECT = "bench-publishes", "bench.publishes"
MESSAGE = bytes(200)


class Publishes:
    """Owned by `publishes`; `times` are the seconds that each one took so far."""

    def __init__(self, stream: JetStreamContext) -> None:
        self._stream = stream
        self.times = list[float]()

    async def measure(self, count: int) -> None:
        for _ in range(count):
            begin = time.perf_counter()
            await self._stream.publish(SUBJECT, MESSAGE)
            self.times.append(time.perf_counter() - begin)


@asynccontextmanager
async def publishes(broker_url: str) -> AsyncIterator[Publishes]:
    """Publishes for the time of the block; their stream is gone after it."""
    client = await nats.connect(broker_url)
    try:
        stream = client.jetstream()
        await stream.add_stream(name=STREAM, subjects=[SUBJECT])
        yield Publishes(stream)
        await stream.delete_stream(STREAM)
    finally:
        await client.close()
