"""The broker's client, with three shortcuts: a parser of our own takes apart what is read, and passes a delivery to its
reader at once; it is given what has come without a task between; and what is published in one pass of the event loop is
written together.

With the client's own methods each delivery costs patterns and copies, a header dictionary, a queue and a task switch
that no reader of a consumer needs, and each published message costs a coroutine and checks of what this service writes
itself: 3 us instead of 1. This class replaces the client's parser and its transport, overrides two private methods and
fills the client's own list of pending writes. Without the parser no consumer would receive anything; without the
transport nothing would come before its pass of the loop; without `_connect_command` a broker without TLS would receive
the credentials; without `_send_ping` a flush would return before the broker has what was published before it; without
the list nothing would be published. The tests of broker/ fail in each case.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.aio.subscription import Subscription

from penstock.broker.nats.wire.parser import QuickParser, Receive, ReceiveMany
from penstock.broker.nats.wire.transport import QuickTransport

LATER_S = 0.02  # until a message that may wait is written, if nothing else is before
WAITS_FROM_BYTES = 1 << 20


def _unsent_bytes(transport: Any) -> int:
    """How much the operating system has not taken yet; at least 1 where that is not known."""
    writer = getattr(transport, "_io_writer", None)
    return 1 if writer is None else int(writer.transport.get_write_buffer_size())


class BriefSubscription:
    """What the client needs of a subscription that lasts a moment, in order to renew it after a reconnect."""

    __slots__ = ("_id", "_subject")
    _queue, _max_msgs, _received = "", 0, 0
    _wait_for_msgs_task = _message_iterator = _pending_next_msgs_calls = None

    def __init__(self, number: int, subject: str) -> None:
        self._id, self._subject = number, subject


class QuickClient(Client):
    """Owned by one Broker. What is published in one pass of the event loop is written at its end, together: each write
    costs more than all else about a message, and wakes up the broker."""

    def __init__(self, *, tls: bool = False) -> None:
        """With `tls`, a connection without TLS is refused: whoever intercepts it could claim that the broker offers
        none."""
        super().__init__()
        self._tls = tls
        self.receivers: dict[int, Receive] = {}
        self._writes_later: asyncio.TimerHandle | None = None
        self._collects: list[Callable[[], None]] = []
        self._pass_ends = False
        self.takers: dict[bytes, ReceiveMany] = {}
        parser = QuickParser(self)
        self._ps = parser  # type: ignore[assignment]
        self._transport = QuickTransport(parser.take)

    async def receive(self, subject: str, receive: Receive) -> Subscription:
        """Subscribe with the shortcut; `stop_receiving` ends the subscription."""
        subscription = await self.subscribe(subject)
        self.receivers[subscription._id] = receive
        return subscription

    def receive_briefly(self, subject: str, receive: Receive) -> BriefSubscription:
        """As `receive`, without waiting, for the many subscriptions that last a moment; `stop_receiving_later` ends
        it."""
        self._sid += 1
        subscription = BriefSubscription(self._sid, subject)
        self._subs[self._sid] = subscription  # type: ignore[assignment]
        self.receivers[self._sid] = receive
        command = b"SUB %b  %d\r\n" % (subject.encode(), self._sid)
        if not self.write_soon(command) and self.is_connected:  # else the client does it when it has reconnected
            self.write_later(command)
        return subscription

    async def receive_many(self, subject: str, receive: Receive, take: ReceiveMany) -> Subscription:
        """As `receive`, of what `take` does not take."""
        subscription = await self.receive(subject, receive)
        self.takers[str(subscription._id).encode()] = take
        return subscription

    async def stop_receiving(self, subscription: Subscription) -> None:
        """End a subscription at once: messages in flight are dropped."""
        self.receivers.pop(subscription._id, None)
        self.takers.pop(str(subscription._id).encode(), None)
        await self.end(subscription)

    def stop_receiving_later(self, subscription: Subscription | BriefSubscription) -> None:
        """As `stop_receiving`, for a subscription to plain messages: the broker is notified with the next write."""
        self.receivers.pop(subscription._id, None)
        if subscription._id in self._subs:
            self._remove_sub(subscription._id)
            self.write_later(b"UNSUB %d\r\n" % subscription._id)

    async def end(self, subscription: Subscription) -> None:
        """End a subscription, also while the connection is lost: the client would otherwise renew it after the
        reconnect."""
        with suppress(nats.errors.Error, OSError):  # it has ended, or the connection is closed for good
            await subscription.unsubscribe()

    async def drain_receiving(self, subscription: Subscription, timeout_s: float) -> None:
        """As `stop_receiving`, but messages in flight are still received, unless the broker does not answer in time."""
        with suppress(nats.errors.Error, OSError, TimeoutError):
            async with asyncio.timeout(timeout_s):
                await subscription.drain()  # type: ignore[no-untyped-call]
        await self.stop_receiving(subscription)  # of one that could not be drained; to the others it does nothing

    async def write(self, commands: Sequence[bytes]) -> None:
        """Send messages made by `publish_command`. They count against the client's buffer; when it is full, this waits
        until it is written. Only for a live connection: without one, publish by the client, which refuses messages."""
        if not commands:
            return
        self._add(commands)
        assert self._flush_queue is not None
        if self._pending_data_size > self._max_pending_size > 0:
            await self._flush_pending(force_flush=True)
        elif self._flush_queue.empty():
            await self._flush_pending()

    def write_soon(self, *commands: bytes) -> bool:
        """Send messages made by `publish_command` at the end of this pass of the event loop; False, and nothing is
        sent, where that might have to wait."""
        if not self.is_connected or self._pending_data_size > WAITS_FROM_BYTES or self._transport is None:
            return False
        self._add(commands)
        self._end_pass_soon()
        return True

    def collect(self, collect: Callable[[], None]) -> None:
        """Have this called at the end of this pass of the event loop, before what was sent by `write_soon` is written:
        it may send more."""
        self._collects.append(collect)
        self._end_pass_soon()

    def _add(self, commands: Sequence[bytes]) -> None:
        size = sum(map(len, commands))
        self.stats["out_msgs"] += len(commands)
        self.stats["out_bytes"] += size
        self._pending.extend(commands)
        self._pending_data_size += size

    def _end_pass_soon(self) -> None:
        if not self._pass_ends:
            self._pass_ends = True
            asyncio.get_running_loop().call_soon(self._end_pass)

    def _end_pass(self) -> None:
        collects, self._collects = self._collects, []
        try:
            for collect in collects:
                collect()
        finally:
            self._pass_ends = False
            self._write_pending()
            if self._collects:
                self._end_pass_soon()

    def _write_pending(self) -> None:
        if not self._pending or not self.is_connected or self._transport is None:
            return
        if _unsent_bytes(self._transport) > 0:
            self._write_now()
            return
        with suppress(OSError, RuntimeError):  # the connection is lost: what is pending is written over the next one
            self._transport.writelines(self._pending)
            self.forget_unwritten()

    def write_later(self, command: bytes) -> None:
        """Send a message with the next one that is written, or after LATER_S: alone it would wake up the broker."""
        self._add((command,))
        if self._writes_later is None:
            self._writes_later = asyncio.get_running_loop().call_later(LATER_S, self._write_now)

    def _write_now(self) -> None:
        """Have the client's own task write what is pending; after a reconnect it does so in any case."""
        self._writes_later = None
        if self._pending and self.is_connected and self._flush_queue is not None and self._flush_queue.empty():
            self._flush_queue.put_nowait(asyncio.get_running_loop().create_future())

    def forget_unwritten(self) -> None:
        """Drop what was published and has not left this process."""
        self._pending, self._pending_data_size = [], 0

    async def _flush_pending(self, force_flush: bool = False) -> Any:
        """As the client's own, but while it has not noticed yet that the connection is lost, what is pending is kept
        for the next one: uvloop's error for a closed connection is none that the client expects."""
        try:
            return await super()._flush_pending(force_flush)
        except (OSError, RuntimeError):
            kept = asyncio.get_running_loop().create_future()
            kept.set_result(None)
            return kept

    async def written(self) -> None:
        """Return when all that was published has been passed to the operating system: it arrives even if this process
        is killed now."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        assert self._flush_queue is not None
        await self._flush_queue.put(written)  # not by the client's own way, which swallows a cancellation
        await written

    async def _send_ping(self, future: asyncio.Future[Any] | None = None) -> None:
        """Behind all that was published before. The client's own ping overtakes what waits to be written: its answer
        then says nothing about those messages, and a subscription that is drained loses what comes after it."""
        if self.is_connected and self._pending and self._transport is not None:
            self._transport.writelines(self._pending)
            self.forget_unwritten()
        await super()._send_ping(future)

    def _connect_command(self) -> bytes:
        """The first command, with the credentials. The client has started TLS before it if, and only if, the broker
        asks for it."""
        if self._tls and not self._server_info.get("tls_required"):
            raise nats.errors.Error("the broker offers no TLS, which the settings ask for")
        return super()._connect_command()
