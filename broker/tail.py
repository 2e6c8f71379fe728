"""Reading a whole stream in gulps: what a projection does. Its reader says when it wants more, so under load it wakes seldom."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson

from penstock.broker.connection import Broker
from penstock.broker.pull import Delivery

FORGOTTEN_S = 10
GRACE_S = 2.0


class Lost(Exception):
    """Something did not arrive, or the consumer is gone: begin anew after the last message that was read."""


class Tail:
    """Owned by whoever opened it (`open_tail`). One fetch at a time."""

    def __init__(self, broker: Broker, subject: str, inbox: str) -> None:
        self._broker, self._subject, self._inbox = broker, subject, inbox
        self._received = 0
        self._found: list[Delivery] = []
        self._wanted = 0
        self._done = asyncio.Event()

    async def waiting(self, most: int) -> list[Delivery]:
        """What the stream holds beyond the last delivery, in order; nothing when there is nothing. Raises Lost, Unavailable."""
        return await self._fetch({"batch": most, "no_wait": True}, GRACE_S)

    async def next(self, wait_s: float) -> list[Delivery]:
        """The next message as soon as there is one, or nothing. Raises Lost, Unavailable."""
        return await self._fetch({"batch": 1, "expires": int(wait_s * 1e9)}, wait_s + GRACE_S)

    async def _fetch(self, request: dict[str, Any], patience_s: float) -> list[Delivery]:
        self._found, self._wanted = [], request["batch"]
        self._done.clear()
        await self._broker.publish(self._subject, orjson.dumps(request), reply=self._inbox)
        try:
            async with asyncio.timeout(patience_s):
                await self._done.wait()
        except TimeoutError as error:
            raise Lost("no answer") from error
        return self._complete()

    def _complete(self) -> list[Delivery]:
        found, self._found = self._found, []
        self._received += len(found)
        if self._wanted < 0:
            raise Lost("the consumer is gone")
        if found and found[-1].number != self._received:
            raise Lost(f"{found[-1].number - self._received} deliveries did not arrive")
        return found

    async def _receive(self, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        if reply:
            self._found.append(Delivery(self._broker, subject.decode(), reply.decode(), data))
            if len(self._found) == self._wanted:
                self._done.set()
            return
        if headers[9:12] in (b"404", b"408"):
            self._done.set()
        else:
            await self._give_up()

    async def _give_up(self) -> None:
        self._wanted = -1
        self._done.set()


@asynccontextmanager
async def open_tail(broker: Broker, stream: str, after: int) -> AsyncIterator[Tail]:
    """A reader of everything after this sequence, for the time of the block, by a consumer that the broker forgets soon after."""
    config: dict[str, Any] = {
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": after + 1,
        "ack_policy": "none",
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": FORGOTTEN_S * 10**9,
    }
    made = await broker.api(f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": config})
    tail = Tail(broker, f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{made['name']}", broker.new_inbox())
    subscription = await broker.client.receive(tail._inbox, tail._receive)
    broker.on_reconnect.append(tail._give_up)
    try:
        yield tail
    finally:
        broker.on_reconnect.remove(tail._give_up)
        await broker.client.stop_receiving(subscription)
