"""Continuous pulling from a consumer: requests overlap, are renewed at half, after a reconnect, and when the broker
goes quiet."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
from nats.aio.subscription import Subscription

from penstock.broker.nats.connection import Broker
from penstock.config.logging import get_logger
from penstock.config.process.background import restarting
from penstock.config.process.rate_limited_log import log_rate_limited
from penstock.engine.errors import PenstockError

EXPIRES_S = 30
BRIEF_S = 0.1
HEARTBEAT_S = 2
QUIET_S = 2 * HEARTBEAT_S
RECALL_S_MAX = 5.0
UNHELD_MAX = 100  # that are taken together
BESIDE_BYTES_MAX = 64 << 10  # what the broker counts of a message besides its payload, at most
PENDING = re.compile(rb"Nats-Pending-Messages: (\d+)")
UNUSED = re.compile(rb"MaxBytes\r\n(?s:.*)Nats-Pending-Bytes: (\d+)")

log = get_logger()


class Delivery:
    """One message of a consumer. `at` is the time at which the broker stored it, in s since the epoch; `deliveries`
    counts from 1.

    `number` counts all deliveries of its consumer from 1: a gap means that something was lost on the way. `pending` is
    the number of messages that the consumer had not delivered yet. `headers` are raw.
    """

    __slots__ = ("_broker", "at", "data", "deliveries", "headers", "number", "pending", "reply", "seq", "subject")
    deliveries: int
    seq: int
    number: int
    at: float
    pending: int

    def __init__(self, broker: Broker, subject: str, reply: str, data: bytes, headers: bytes = b"") -> None:
        self._broker, self.subject, self.reply, self.data, self.headers = broker, subject, reply, data, headers

    def __getattr__(self, name: str) -> Any:
        """Parse the numbers when one of them is read first: a reader of the body only does not pay for it."""
        tokens = self.reply.split(".")  # as `_numbers`, which costs a call more for each delivery
        first = 4 if len(tokens) == 9 else 6
        self.deliveries, self.seq, self.number, at_ns, self.pending = map(int, tokens[first : first + 5])
        self.at = at_ns // 1000 / 1e6  # whole microseconds, as in every other read: a replay gives the very same state
        return object.__getattribute__(self, name)

    def read_place(self) -> None:
        """Parse `deliveries`, `seq` and `at` now: who needs them of each delivery pays half for them so."""
        tokens = self.reply.split(".")
        first = 4 if len(tokens) == 9 else 6
        self.deliveries, self.seq = int(tokens[first]), int(tokens[first + 1])
        self.at = int(tokens[first + 3]) // 1000 / 1e6

    async def ack(self) -> None:
        await self._broker.publish(self.reply, b"+ACK")

    def ack_soon(self) -> None:
        """As `ack`, with the next message that is written, or a moment later: of a process that dies before, or loses
        its connection, the message comes again."""
        self._broker.publish_later(self.reply, b"+ACK")

    async def give_back(self, delay_s: float = 0.0) -> None:
        """Let the broker deliver it again, after `delay_s`."""
        body = b'-NAK {"delay": %d}' % int(delay_s * 1e9) if delay_s else b"-NAK"
        await self._broker.publish(self.reply, body)

    async def in_progress(self) -> None:
        """Extend the deadline of its acknowledgement by the consumer's ack wait."""
        await self._broker.publish(self.reply, b"+WPI")


def consumer_in(reply: str) -> str:
    """The name of the consumer that delivered a message, from the subject of its acknowledgement."""
    tokens = reply.split(".")  # as `_numbers`
    return tokens[3 if len(tokens) == 9 else 5]


def deliveries_in(reply: str) -> int:
    """How often a message was delivered, from the subject of its acknowledgement."""
    return int(_numbers(reply)[0])


def stored_at(reply: str) -> float:
    """When the broker stored a message, from the same; as `Delivery.at`."""
    return int(_numbers(reply)[3]) // 1000 / 1e6


def _numbers(reply: str) -> list[str]:
    tokens = reply.split(
        "."
    )  # $JS.ACK[.<domain>.<account>].<stream>.<consumer>.<deliveries>.<seq>.<number>.<time>.<pending>
    first = 4 if len(tokens) == 9 else 6
    return tokens[first : first + 5]


def _now_ms() -> int:
    """A whole number: the interpreter keeps the memory of a float for the next float, wherever it is. Those that many
    pulls hold would stay scattered over all the memory of a burst, none of which could be returned."""
    return int(time.monotonic() * 1000)


class Pull:
    """The deliveries of one consumer, for as long as `open_pull` holds it.

    `batch` bounds the number of requested messages. Of large messages fewer come: the answer to one request is no
    larger than `bytes_max`, unless it is a single message. `room` (the number of messages that the owner can take now)
    delays the next request: when it returned 0, `top_up` must be called when there is room again. `before` is awaited
    before each start on a new inbox, the first one included: nothing is delivered while it runs.
    """

    def __init__(
        self,
        broker: Broker,
        stream: str,
        consumer: str,
        take: Callable[[Delivery], None],
        batch: int,
        room: Callable[[], int] | None,
        before: Callable[[], Awaitable[None]] | None,
        expires_s: int,
        bytes_max: int | None,
    ) -> None:
        self._broker, self._take, self._batch, self._room, self._before = broker, take, batch, room, before
        self._terms = {"expires": expires_s * 10**9, "idle_heartbeat": HEARTBEAT_S * 10**9}
        largest = broker.max_payload + BESIDE_BYTES_MAX
        self._bytes_max = largest if bytes_max is None else min(bytes_max, largest)
        self._outsized = False
        self._stream, self.consumer = stream, consumer
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._subscription: Subscription | None = None
        self._inbox = ""
        self._left = 0
        self._last_message_ms = _now_ms()
        self._broken = self._closed = False
        self._renewing = asyncio.Lock()

    async def top_up(self) -> None:
        """Request more if less than half of the requested messages is still to come."""
        if (count := self._missing()) and (asking := self._ask(count)) is not None:
            await asking

    def _missing(self) -> int:
        """How many messages to request now."""
        if self._broken:
            return 0
        room = self._batch if self._room is None else min(self._batch, self._room())
        return max(0, room - self._left) if self._left <= room // 2 else 0

    async def ask_briefly(self, count: int) -> None:
        """Request messages that are there now, with a short expiry. Raises Unavailable."""
        if not self._broken:
            self._left += count
            request = {"batch": count, "expires": int(BRIEF_S * 10**9), "max_bytes": self._bytes_max}
            await self._broker.publish(self._subject, orjson.dumps(request), reply=self._inbox)

    @property
    def left(self) -> int:
        """The number of requested messages that have not come."""
        return self._left

    async def recall(self) -> None:
        """Cancel what was requested. When this returns, `take` got all messages that were on their way.

        Meanwhile `room` must return 0; `top_up` requests again. Without a connection there is nothing to cancel.
        """
        old = self._subscription
        if old is None or not self._broker.connected:
            return
        self._subscription = None
        await self._broker.client.drain_receiving(old, RECALL_S_MAX)
        await self._renew()

    async def _renew(self) -> None:
        """Start again on a new inbox: earlier requests are void, and what they still bring is redelivered."""
        async with self._renewing:  # a reconnect and the watch may both request it
            self._broken = True
            await self._stop()
            if self._before is not None and not self._closed:
                await self._before()
            if self._closed:  # closed meanwhile: messages requested now would not reach the next reader
                return
            self._inbox, self._left = self._broker.new_inbox(), 0
            self._subscription = await self._broker.client.receive(self._inbox, self._receive)
            if self._closed:
                await self._stop()
                return
            self._last_message_ms, self._broken = _now_ms(), False
            await self.top_up()

    async def _stop(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            await self._broker.client.stop_receiving(subscription)

    async def _close(self) -> None:
        """Take and request nothing more, also while a renewal is running."""
        self._closed = self._broken = True
        await self._stop()

    def _ask(self, count: int) -> Awaitable[None] | None:
        """Request messages; what it returns is to be awaited."""
        if self._outsized:  # the next message alone is larger
            request, self._outsized = {"batch": 1, **self._terms}, False
        else:
            request = {"batch": count, "max_bytes": self._bytes_max, **self._terms}
        self._left += request["batch"]
        body = orjson.dumps(request)
        if self._broker.publish_soon(self._subject, body, self._inbox):
            return None
        return self._broker.publish(self._subject, body, reply=self._inbox)

    def _receive(self, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> Awaitable[None] | None:
        self._last_message_ms = _now_ms()
        if reply:
            self._left -= 1
            self._take(Delivery(self._broker, subject.decode(), reply.decode(), data, headers))
        else:
            self._status(headers)
        return self._ask(count) if self._left <= self._batch // 2 and (count := self._missing()) else None

    def _status(self, headers: bytes) -> None:
        """Handle a line such as `NATS/1.0 408 Request Timeout`, with the number of messages that the request still
        lacks."""
        status = headers[9:12]
        if status == b"503":
            self._last_message_ms = 0  # the consumer is unavailable: the watch requests again
        elif status != b"100":
            found, unused = PENDING.search(headers), UNUSED.search(headers)
            self._left = max(0, self._left - int(found[1])) if found else 0
            self._outsized = unused is not None and int(unused[1]) == self._bytes_max

    async def _watch(self) -> None:
        while True:
            begin = _now_ms()
            await asyncio.sleep(HEARTBEAT_S)
            now = _now_ms()
            if now - begin > 2000 * HEARTBEAT_S:  # this process was paused: what came meanwhile is not read yet
                self._last_message_ms = now
            if not self._broker.connected:
                continue
            if self._broken or (self._left and now - self._last_message_ms > 1000 * QUIET_S):
                log_rate_limited(log, "pull_quiet", stream=self._stream, consumer=self.consumer)
                await self._safely_renew()
            elif not self._left:
                await self.top_up()

    async def _safely_renew(self) -> None:
        try:
            await self._renew()
        except PenstockError as error:
            log_rate_limited(log, "pull_not_renewed", consumer=self.consumer, error=str(error))


@asynccontextmanager
async def open_pull(
    broker: Broker,
    stream: str,
    consumer: str,
    take: Callable[[Delivery], None],
    *,
    batch: int,
    room: Callable[[], int] | None = None,
    before: Callable[[], Awaitable[None]] | None = None,
    expires_s: int = EXPIRES_S,
    bytes_max: int | None = None,
) -> AsyncIterator[Pull]:
    """Pass deliveries of the consumer to `take` (which must not wait) for the time of the block.

    `expires_s` is how long the broker holds one request: at least 5, because of its heartbeats. `bytes_max` is as much
    as the largest message, unless it is given.
    """
    pull = Pull(broker, stream, consumer, take, batch, room, before, expires_s, bytes_max)
    await pull._renew()
    broker.on_reconnect.append(pull._safely_renew)
    async with restarting(pull._watch, name="pull_watch"):
        try:
            yield pull
        finally:  # at once, before the watch has ended: later deliveries would be lost to other readers
            broker.on_reconnect.remove(pull._safely_renew)
            await pull._close()


async def take_unheld(broker: Broker, stream: str, consumer: str) -> list[Delivery]:
    """Some messages that are there and that no other client holds: the caller holds them from now on."""
    found: list[Delivery] = []
    async with open_pull(broker, stream, consumer, found.append, batch=UNHELD_MAX, room=lambda: 0) as pull:
        await pull.ask_briefly(UNHELD_MAX)
        await asyncio.sleep(2 * BRIEF_S)  # until the request is over for certain
    return found
