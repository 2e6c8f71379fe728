"""Reads a whole stream in batches, for projections. The reader requests each batch, so under load it runs seldom."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import orjson

from penstock.broker.nats.connection import Broker
from penstock.broker.nats.consumers import ConsumerConfig, create_consumer
from penstock.broker.nats.leader import Stored
from penstock.broker.nats.pull import BESIDE_BYTES_MAX, Delivery, stored_at
from penstock.broker.nats.wire.parser import END
from penstock.engine.errors import PenstockError

FORGET_AFTER_S = 10
GRACE_S = 2.0


class Lost(Exception):
    """Something did not arrive, or the consumer is gone: start again after the last message that was read."""


class Read(NamedTuple):
    """One message of a stream, as it came; `reply` has its numbers, `headers` are raw."""

    subject: bytes
    reply: bytes
    headers: bytes
    data: bytes

    @property
    def seq(self) -> int:
        """Its sequence in the stream. A `Delivery` takes three times as long to find it, with all else."""
        tokens = self.reply.split(b".")
        return int(tokens[5 if len(tokens) == 9 else 7])

    @property
    def at(self) -> float:
        """When the broker stored it, in s since the epoch."""
        return stored_at(self.reply.decode())

    def delivery(self, broker: Broker) -> Delivery:
        """The message with all that is known of it."""
        return Delivery(broker, self.subject.decode(), self.reply.decode(), self.data, self.headers)

    def stored(self) -> Stored:
        """The message as a direct read has it."""
        return Stored(self.subject.decode(), self.seq, self.at, self.data, headers=self.headers)


class ReadBatch(NamedTuple):
    """Consecutive messages of a stream: the number of all, the wanted ones, and the last of all without its body."""

    messages: int
    reads: list[Read]
    last: Delivery | None

    def __add__(self, more: ReadBatch) -> ReadBatch:  # type: ignore[override]
        return ReadBatch(self.messages + more.messages, self.reads + more.reads, more.last or self.last)

    @property
    def wanted(self) -> list[Delivery]:
        """The wanted messages with all that is known of them."""
        return [] if self.last is None else [one.delivery(self.last._broker) for one in self.reads]


class Tail:
    """Owned by whoever opened it (`open_tail`). One fetch at a time."""

    def __init__(self, broker: Broker, subject: str, inbox: str, unwanted: tuple[bytes, ...]) -> None:
        self._broker, self._subject, self._inbox, self._unwanted = broker, subject, inbox, unwanted
        self._bytes_max = broker.max_payload + BESIDE_BYTES_MAX
        self._received = 0
        self._kept: list[Read] = []
        self._count = self._wanted = 0
        self._last = b"", b""
        self._done = asyncio.Event()

    async def waiting(self, most: int) -> ReadBatch:
        """The messages after the last delivery, fewer where they are large; empty when there is none. Raises Lost,
        Unavailable."""
        return await self._fetch({"batch": most, "no_wait": True, "max_bytes": self._bytes_max}, GRACE_S)

    async def next(self, wait_s: float) -> ReadBatch:
        """The next message as soon as there is one, or an empty batch. Raises Lost, Unavailable."""
        return await self._fetch({"batch": 1, "expires": int(wait_s * 1e9)}, wait_s + GRACE_S)

    async def _fetch(self, request: dict[str, Any], timeout_s: float) -> ReadBatch:
        self._kept, self._count, self._wanted = [], 0, request["batch"]
        self._done.clear()
        await self._broker.publish(self._subject, orjson.dumps(request), reply=self._inbox)
        try:
            async with asyncio.timeout(timeout_s):
                await self._done.wait()
        except TimeoutError as error:
            raise Lost("no answer") from error
        return self._complete()

    def _complete(self) -> ReadBatch:
        if self._wanted < 0:
            raise Lost("the consumer is gone")
        if not self._count:
            return ReadBatch(0, [], None)
        self._received += self._count
        last = Read(*self._last, b"", b"").delivery(self._broker)
        if last.number != self._received:
            raise Lost(f"{last.number - self._received} deliveries did not arrive")
        return ReadBatch(self._count, self._kept, last)

    def _take(self, read: bytes, at: int, number: bytes) -> int:
        """Take the messages from a place on out of what was read. Most are unwanted, and must cost next to nothing."""
        find, begins, unwanted, count = read.find, read.startswith, self._unwanted, self._count
        bound, last = len(read) - len(END), None
        while (end := find(END, at)) > 0:
            words = read[at:end].split(b" ")  # a message with headers and reply has six
            if len(words) != 6 or words[2] != number:
                break
            begin = end + len(END)
            body, stop = begin + int(words[4]), begin + int(words[5])
            if stop > bound:
                break
            last, count, at = words, count + 1, stop + len(END)
            if not begins(unwanted, body):
                self._kept.append(Read(words[1], words[3], read[begin:body], read[body:stop]))
        if last is not None:
            self._last = last[1], last[3]
            self._counted(count)
        return at

    def _receive(self, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        """Called for what `_take` leaves: messages without headers, those that came in pieces, and what is none."""
        if reply:
            self._last = subject, reply
            if not data.startswith(self._unwanted):
                self._kept.append(Read(subject, reply, headers, data))
            self._counted(self._count + 1)
        elif headers[9:12] in (b"404", b"408") or b"MaxBytes" in headers:
            self._done.set()
        elif not headers[13:].startswith(b"Batch Completed"):  # which comes after the last message that was asked for
            self._lost()

    def _counted(self, count: int) -> None:
        self._count = count
        if count >= self._wanted:
            self._done.set()

    async def _give_up(self) -> None:
        self._lost()

    def _lost(self) -> None:
        self._wanted = -1
        self._done.set()


@asynccontextmanager
async def open_tail(
    broker: Broker, stream: str, after: int, *, unwanted: tuple[bytes, ...] = (), brief: bool = False
) -> AsyncIterator[Tail]:
    """A reader of everything after this sequence, for the time of the block, by a consumer that the broker removes soon
    after. `brief`: it is removed at the end, as one that stays far behind makes each removal by subject expensive.

    Messages whose bodies begin with one of `unwanted` are counted and not returned.
    """
    consumer = ConsumerConfig(stream=stream, start_seq=after + 1, ack_policy="none", forget_after_s=FORGET_AFTER_S)
    name = await create_consumer(broker, consumer)
    tail = Tail(broker, f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}", broker.new_inbox(), unwanted)
    subscription = await broker.client.receive_many(tail._inbox, tail._receive, tail._take)
    broker.on_reconnect.append(tail._give_up)
    try:
        yield tail
    finally:
        broker.on_reconnect.remove(tail._give_up)
        await broker.client.stop_receiving(subscription)
        if brief:
            with suppress(PenstockError):  # it goes in FORGET_AFTER_S then
                await broker.remove(f"CONSUMER.DELETE.{stream}.{name}")
