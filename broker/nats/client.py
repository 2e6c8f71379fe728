"""The broker's client, with two shortcuts: what a consumer delivers goes straight from the parser to its reader, and
messages that are published together are handed over together.

On the client's own way each delivery pays for a header dictionary, a queue and a wake-up that no reader of a consumer
needs, and each message published for a coroutine and for checks of what we write ourselves: 3 us in place of 1. It
overrides two private methods and fills the client's own list of what is to be written: without the first no consumer
would receive anything, without the second a broker that offers no TLS would be told our credentials, without the list
nothing would be published; no run of the tests of broker/ would overlook any of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

import nats.errors
from nats.aio.client import Client
from nats.aio.subscription import Subscription

HEADERS_BESIDE = len("NATS/1.0\r\n\r\n")
HEADER_BESIDE = len(": \r\n")

Receive = Callable[[bytes, bytes, bytes, bytes], Awaitable[None]]
"""Takes subject, reply subject (empty: a status), body and raw headers. It runs in the reading loop: it must not
wait."""


def message_bytes(data: bytes, headers: Mapping[str, str] | None) -> int:
    """What the broker counts of a message: its body, and its headers as they are written, in bytes."""
    if not headers:
        return len(data)
    return (
        len(data)
        + HEADERS_BESIDE
        + sum(len(name) + len(value.encode()) + HEADER_BESIDE for name, value in headers.items())
    )


def publish_command(subject: str, reply: str, data: bytes, headers: Mapping[str, str]) -> bytes | None:
    """A message with headers as it is written to the broker. None for what would be taken for more than it is: a line
    break in a header, a space in the subject."""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if (
        lines.count("\n") != len(headers)
        or lines.count("\r") != len(headers)
        or " " in subject
        or not subject.isprintable()
    ):
        return None
    head = f"NATS/1.0\r\n{lines}\r\n".encode()
    return b"HPUB %b %b %d %d\r\n%b%b\r\n" % (
        subject.encode(),
        reply.encode(),
        len(head),
        len(head) + len(data),
        head,
        data,
    )


class QuickClient(Client):
    """Owned by one Broker."""

    def __init__(self, *, tls: bool = False) -> None:
        """With `tls`, a connection in the clear is none: whoever stands between could say that there is no TLS."""
        super().__init__()
        self._tls = tls
        self._receivers: dict[int, Receive] = {}

    async def receive(self, subject: str, receive: Receive) -> Subscription:
        """Subscribe with the shortcut; end it with `stop_receiving`."""
        subscription = await self.subscribe(subject)
        self._receivers[subscription._id] = receive
        return subscription

    async def stop_receiving(self, subscription: Subscription) -> None:
        """Nothing is received any more, from this moment on, also of what is on its way."""
        self._receivers.pop(subscription._id, None)
        await self.end(subscription)

    async def end(self, subscription: Subscription) -> None:
        """Also while the connection is away: the client would otherwise ask for it anew when that is back, and keep
        what comes."""
        with suppress(nats.errors.Error, OSError):  # it has ended, or the connection is closed for good
            await subscription.unsubscribe()

    async def drain_receiving(self, subscription: Subscription, timeout_s: float) -> None:
        """As `stop_receiving`, after what is on its way has come; without an answer in time, that is not waited for."""
        with suppress(nats.errors.Error, OSError, TimeoutError):
            async with asyncio.timeout(timeout_s):
                await subscription.drain()  # type: ignore[no-untyped-call]
        await self.stop_receiving(subscription)  # of one that could not be drained; to the others it does nothing

    async def write(self, commands: Sequence[bytes]) -> None:
        """Send messages as `publish_command` made them. They count against the client's buffer; beyond it, this waits
        until it is written.

        Only while there is a connection: what is published without one is for the client to refuse.
        """
        if not commands:
            return
        size = sum(map(len, commands))
        self._pending.extend(commands)
        self._pending_data_size += size
        self.stats["out_msgs"] += len(commands)
        self.stats["out_bytes"] += size
        assert self._flush_queue is not None
        if self._pending_data_size > self._max_pending_size > 0:
            await self._flush_pending(force_flush=True)
        elif self._flush_queue.empty():
            await self._flush_pending()

    def forget_unwritten(self) -> None:
        """What was published and has not left this process never does."""
        self._pending, self._pending_data_size = [], 0

    async def written(self) -> None:
        """Return once all that was published has been handed to the system: it arrives even if this process is killed
        now."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        assert self._flush_queue is not None
        await self._flush_queue.put(written)  # not by the client's own way, which swallows a cancellation
        await written

    def _connect_command(self) -> bytes:
        """Our first words, with the credentials; the client has begun TLS before them if the broker asks for it, and
        only then."""
        if self._tls and not self._server_info.get("tls_required"):
            raise nats.errors.Error("the broker offers no TLS, which the settings ask for")
        return super()._connect_command()

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        receive = self._receivers.get(sid)
        if receive is None:
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        try:
            await receive(subject, reply, data, headers or b"")
        except Exception as error:  # as the client does for callbacks: the connection belongs to others too
            await self._error_cb(error)
