"""Pipelined publishing: many messages in flight, one future each, sent again until the broker answers.

The client's own publish_async is not used: its future never ends when the broker answers with an error.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import nats.errors
import orjson

from penstock.broker.nats.connection import Broker
from penstock.broker.nats.errors import NOT_THERE, ApiError, translated
from penstock.broker.nats.wire.commands import message_bytes, publish_command
from penstock.config.logging import get_logger
from penstock.config.process.background import begin, restarting
from penstock.config.process.rate_limited_log import log_rate_limited
from penstock.engine.errors import Full, TooLarge, Unavailable
from penstock.telemetry.meters import Meters

RESEND_S = 2.0
WRITTEN_S_MAX = 5.0
# Messages without an answer; beyond this, or beyond their bytes, callers that can wait do so. The answer to a shard's
# heartbeat comes after those to all that was sent before it.
IN_FLIGHT_MAX = 4000
IN_FLIGHT_BYTES_MAX = 64 << 20
TOGETHER_BYTES = 256 << 10
# room for them: they count too, and for a message over its limit the broker cuts the connection at each repeat
HEADER_BYTES_MAX = 4096
# no message has so many bytes of them: of a body that leaves more room they need not be counted
HEADERS_COUNTED = 64 << 10
AT_ONCE_MAX = 64  # messages that are written without a task
NO_HEADERS: dict[str, str] = {}

log = get_logger()


class _Sent:
    """One message in flight."""

    __slots__ = ("data", "future", "headers", "sent_at", "since", "subject", "wait_if_full")

    def __init__(
        self,
        subject: str,
        data: bytes,
        headers: dict[str, str] | None,
        wait_if_full: bool,
        future: asyncio.Future[bytes],
    ) -> None:
        self.subject, self.data, self.headers, self.wait_if_full, self.future = (
            subject,
            data,
            headers,
            wait_if_full,
            future,
        )
        self.since = self.sent_at = time.monotonic()


class Publisher:
    """Owned by whoever opened it (`open_publisher`); one inbox receives all answers of the broker."""

    def __init__(self, broker: Broker, meters: Meters) -> None:
        self._broker = broker
        self._latency = meters.histogram("penstock_publish_seconds")
        meters.reading("penstock_publishes_in_flight", lambda: self.in_flight)
        self._prefix = broker.new_inbox() + "."
        self._cut = len(self._prefix)
        self._count = 0
        self._waiting: dict[str, _Sent] = {}
        self._queue: dict[str, None] = {}
        self._bytes = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._loop = asyncio.get_running_loop()
        self._flushes: set[asyncio.Task[None]] = set()

    @property
    def in_flight(self) -> int:
        """The number of messages without an answer so far."""
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """Whether no more should be sent because too much is without an answer; see `room`."""
        return len(self._waiting) >= IN_FLIGHT_MAX or self._bytes >= IN_FLIGHT_BYTES_MAX

    @property
    def body_bytes_max(self) -> int:
        """The maximum size of a body with headers of any length: `send` checks the real size."""
        return self._broker.max_payload - HEADER_BYTES_MAX

    def send(
        self, subject: str, data: bytes, headers: dict[str, str] | None = None, *, wait_if_full: bool = True
    ) -> asyncio.Future[bytes]:
        """Queue one message; the future has the broker's answer (see `ack_seq`). It is sent again until answered: give
        a message id.

        The future raises Conflict for a stale expectation, TooLarge, and ApiError for another refusal. It does not end
        while the broker is away, nor while the storage is full, unless `wait_if_full` is false: then it raises Full.
        The caller sets the deadline; cancelling the future ends the repeats.
        """
        self._count += 1
        key = str(self._count)
        future: asyncio.Future[bytes] = self._loop.create_future()
        self._waiting[key] = _Sent(subject, data, headers, wait_if_full, future)
        self._bytes += len(data)
        self._enqueue(key)
        return future

    async def erase(self, stream: str, seq: int) -> None:
        """Delete one message, for good, if it is there. Of many, each costs less than a call of `Broker.remove`, and is
        repeated like a message that is sent."""
        try:
            await self.send(f"$JS.API.STREAM.MSG.DELETE.{stream}", orjson.dumps({"seq": seq, "no_erase": True}))
        except ApiError as error:
            if error.err_code not in NOT_THERE:
                raise

    def _enqueue(self, key: str) -> None:
        self._queue[key] = None
        if len(self._queue) == 1:
            self._flush_soon()

    async def room(self) -> None:
        """Return when it is not `full`. A caller that sends many messages for one cause awaits this between them.

        Each answer lets one caller go on, so that thousands of them do not all wake up for each.
        """
        while self.full:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter

    async def written(self) -> None:
        """Return when all that was sent so far has left for the broker; the futures have its answers. Raises
        Unavailable."""
        async with self._broker.deadline(WRITTEN_S_MAX, "broker: the connection does not accept data"):
            await asyncio.sleep(0)  # what was sent in this pass of the loop is written by now, or has a task
            if self._flushes:
                await asyncio.wait(self._flushes)
            await self._broker.client.written()

    async def _flush(self) -> None:
        queue, self._queue = self._queue, {}
        prefix, client = self._prefix, self._broker.client
        together: list[bytes] = []
        size, small = 0, self._broker.max_payload - HEADERS_COUNTED if client.is_connected else -1
        for key in queue:
            sent = self._waiting.get(key)
            if sent is None:
                continue
            command = None
            if len(sent.data) <= small:
                command = publish_command(sent.subject, prefix + key, sent.data, sent.headers or NO_HEADERS)
            if command is not None:
                together.append(command)
                size += len(command)
            if command is None or size > TOGETHER_BYTES:
                await client.write(together)
                together, size = [], 0
            if command is None:
                await self._publish(key, sent)
        await client.write(together)

    async def _publish(self, key: str, sent: _Sent) -> None:
        """Publish one message by the client, which refuses what it cannot buffer."""
        if len(sent.data) > self._broker.max_payload - HEADERS_COUNTED and self._is_too_large(sent):
            self._too_large(key, sent)
            return
        with suppress(nats.errors.Error, OSError):  # the client's buffer is full: the sweep sends again
            await self._broker.client.publish(sent.subject, sent.data, self._prefix + key, sent.headers)

    def _is_too_large(self, sent: _Sent) -> bool:
        """Also true for a body whose few headers would fit: a stored message must have room for the headers of a dead
        letter."""
        return max(len(sent.data) + HEADER_BYTES_MAX, message_bytes(sent.data, sent.headers)) > self._broker.max_payload

    def _too_large(self, key: str, sent: _Sent) -> None:
        self._forget(key)
        if not sent.future.done():
            size = message_bytes(sent.data, sent.headers)
            sent.future.set_exception(TooLarge(f"a message of {size} bytes is larger than the broker accepts"))

    def _answered(self, subject: bytes, _reply: bytes, data: bytes, _headers: bytes) -> None:
        if not data:  # no stream stores the subject at this moment: the sweep sends again
            return
        key = subject[self._cut :].decode()
        if b'"error"' in data:
            self._refused(key, data)
            return
        sent = self._forget(key)
        if sent is not None and not sent.future.done():
            self._latency.observe(time.monotonic() - sent.since)
            sent.future.set_result(data)

    def _refused(self, key: str, data: bytes) -> None:
        error = translated(orjson.loads(data)["error"])
        sent = self._waiting.get(key)
        if sent is None:
            return
        if isinstance(error, Unavailable) and (sent.wait_if_full or not isinstance(error, Full)):
            self._complain(error)  # full, busy or starting: the sweep sends again
            return
        self._forget(key)
        if not sent.future.done():
            sent.future.set_exception(error)

    def _forget(self, key: str) -> _Sent | None:
        """Remove it from the messages in flight, if it is there."""
        sent = self._waiting.pop(key, None)
        if sent is not None:
            self._bytes -= len(sent.data)
            if self._waiters and not self.full:
                self._let_go_on(1)
        return sent

    def _let_go_on(self, callers: int) -> None:
        while self._waiters and callers:
            waiter = self._waiters.popleft()
            if not waiter.done():  # else it was cancelled
                waiter.set_result(None)
                callers -= 1

    def _complain(self, error: Unavailable) -> None:
        """Log a refusal, rate-limited: thousands of messages may be refused every few seconds."""
        log_rate_limited(log, "broker_refused", error=str(error), waiting=len(self._waiting))

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(RESEND_S / 2)
            self._resend(time.monotonic() - RESEND_S)

    def _resend(self, sent_before: float) -> None:
        """Send again what was sent too long ago; drop messages whose future was cancelled."""
        for key, sent in list(self._waiting.items()):
            if sent.future.done():
                self._forget(key)
            elif sent.sent_at < sent_before and self._broker.connected and key not in self._queue:
                sent.sent_at = time.monotonic()
                self._queue[key] = None
        if self._queue:
            self._flush_soon()
        if not self.full:  # a caller that was let go on may not have sent anything
            self._let_go_on(len(self._waiters))

    def _flush_soon(self) -> None:
        self._broker.client.collect(self._flush_now)

    def _flush_now(self) -> None:
        """Write the queue at once, which is the usual case; what may have to wait has a task."""
        if self._queue and not self._wrote():
            self._flush_in_task()

    def _wrote(self) -> bool:
        if len(self._queue) > AT_ONCE_MAX:
            return False
        prefix, small = self._prefix, self._broker.max_payload - HEADERS_COUNTED
        commands: list[bytes] = []
        for key in self._queue:
            sent = self._waiting.get(key)
            if sent is None:
                continue
            if len(sent.data) > min(small, TOGETHER_BYTES // AT_ONCE_MAX):
                return False
            command = publish_command(sent.subject, prefix + key, sent.data, sent.headers or NO_HEADERS)
            if command is None:
                return False
            commands.append(command)
        if commands and not self._broker.client.write_soon(*commands):
            return False
        self._queue = {}
        return True

    def _flush_in_task(self) -> None:
        task = begin(self._flush(), name="publisher_flush")
        self._flushes.add(task)
        task.add_done_callback(self._flushes.discard)

    async def _reconnected(self) -> None:
        self._resend(time.monotonic())

    def _abandon(self) -> None:
        """Cancel all that is still without an answer: whoever waits for one would wait, and be in memory, for ever."""
        for sent in self._waiting.values():
            sent.future.cancel()
        for waiter in self._waiters:
            waiter.cancel()
        self._waiting.clear()


@asynccontextmanager
async def open_publisher(broker: Broker, meters: Meters | None = None) -> AsyncIterator[Publisher]:
    """A publisher for the time of the block. The outcome of messages without an answer at its end is unknown; their
    futures are cancelled then."""
    publisher = Publisher(broker, meters or Meters())
    subscription = await broker.client.receive(publisher._prefix + "*", publisher._answered)
    broker.on_reconnect.append(publisher._reconnected)
    try:
        async with restarting(publisher._sweep, name="publisher_resend"):
            yield publisher
    finally:
        broker.on_reconnect.remove(publisher._reconnected)
        publisher._abandon()
        await broker.client.stop_receiving(subscription)


def ack_seq(answer: bytes) -> int:
    """The stream sequence in a publish answer; a duplicate's is the first one's."""
    seq = orjson.loads(answer)["seq"]
    assert isinstance(seq, int)
    return seq
