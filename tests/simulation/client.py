"""A connection to the simulated broker, with the face of broker/nats/client.py: in the place of its QuickClient.

What is written for one part of the broker stays in order, as does what one part of the broker writes; nothing else
does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import nats.errors

from tests.simulation.loop import Life
from tests.simulation.streams import matches

if TYPE_CHECKING:
    from tests.simulation.server import Server

MAX_PAYLOAD = 8 << 20
FLUSH_S_MAX = 10.0

Receive = Callable[[bytes, bytes, bytes, bytes], Awaitable[None] | None]
Item = tuple[bytes, bytes, bytes, bytes]
Callback = Callable[[], Awaitable[None]]


class Told(NamedTuple):
    """A message as callbacks get it."""

    subject: str
    reply: str
    data: bytes
    headers: Mapping[str, str] | None = None


class Subscription:
    def __init__(
        self, client: Client, subject: str, receive: Receive | None, cb: Callable[[Any], Awaitable[None]] | None
    ) -> None:
        self.client, self.subject, self.receive, self.cb = client, subject, receive, cb

    async def unsubscribe(self) -> None:
        self.client.forget(self)


class Written(NamedTuple):
    subject: str
    data: bytes
    reply: str
    headers: Mapping[str, str] | None


class Client:
    """Owned by one life of a process. `kind` (engine or front) is what faults choose by."""

    max_payload = MAX_PAYLOAD
    pending_data_size = 0

    def __init__(self, server: Server, life: Life, kind: str) -> None:
        self.server, self.life, self.kind = server, life, kind
        self.is_connected = not server.down
        self.closed = False
        self._there = asyncio.Event()
        self.era = 0  # counts connections
        self.number = server.count_client()
        self.out: dict[str, float] = {}
        self.into: dict[str, float] = {}
        self.on_disconnected: Callback | None = None
        self.on_reconnected: Callback | None = None
        self._server_info: dict[str, object] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._requests: dict[str, asyncio.Future[bytes]] = {}
        self._buffer: list[Written] = []
        self._inboxes = 0

    async def connect(self) -> None:
        """Return once there is a broker."""
        if not self.is_connected:
            await self._there.wait()

    def new_inbox(self) -> str:
        self._inboxes += 1
        return f"_INBOX.{self.number}.{self._inboxes}"

    async def publish(
        self, subject: str, data: bytes = b"", reply: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        if self.life.ended:
            return
        written = Written(subject, data, reply, headers)
        if self.is_connected:
            self.server.send(self, written)
        else:
            self._buffer.append(written)

    async def write(self, commands: Sequence[bytes]) -> None:
        """Publish messages as `publish_command` made them."""
        for command in commands:
            await self.publish(*_parsed(command))

    def write_soon(self, *commands: bytes) -> bool:
        return False

    def collect(self, collect: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(collect)

    def write_later(self, command: bytes) -> None:
        subject, data, reply, headers = _parsed(command)
        if self.life.ended:
            return
        written = Written(subject, data, reply, headers)
        if self.is_connected:
            self.server.send(self, written)
        else:
            self._buffer.append(written)

    async def request(
        self, subject: str, data: bytes = b"", timeout: None = None, headers: Mapping[str, str] | None = None
    ) -> Told:
        inbox = self.new_inbox()
        answer = self._requests[inbox] = asyncio.get_running_loop().create_future()
        try:
            await self.publish(subject, data, inbox, headers)
            return Told(inbox, "", await answer)
        finally:
            del self._requests[inbox]

    async def flush(self) -> None:
        if not self.is_connected:
            await asyncio.sleep(FLUSH_S_MAX)
            raise nats.errors.TimeoutError
        await asyncio.sleep(max([self.server.now, *self.out.values()]) - self.server.now + 2 * self.server.latency_s())

    def forget_unwritten(self) -> None:
        self._buffer.clear()

    async def written(self) -> None:
        await asyncio.sleep(0)

    async def subscribe(
        self, subject: str, queue: str = "", cb: Callable[[Any], Awaitable[None]] | None = None, **_: object
    ) -> Subscription:
        return self._subscribe(Subscription(self, subject, None, cb))

    async def receive(self, subject: str, receive: Receive) -> Subscription:
        return self._subscribe(Subscription(self, subject, receive, None))

    async def receive_many(self, subject: str, receive: Receive, take: object) -> Subscription:
        return await self.receive(subject, receive)

    async def stop_receiving(self, subscription: Subscription) -> None:
        self.forget(subscription)

    async def drain_receiving(self, subscription: Subscription, timeout_s: float) -> None:
        self.server.stop_listening(subscription)
        await self.flush()
        self.forget(subscription)

    async def end(self, subscription: Subscription) -> None:
        self.forget(subscription)

    async def close(self) -> None:
        self.is_connected, self.closed = False, True
        self.server.drop(self)

    def _subscribe(self, subscription: Subscription) -> Subscription:
        self._subscriptions[subscription.subject] = subscription
        self.server.listen(subscription)
        return subscription

    def forget(self, subscription: Subscription) -> None:
        if self._subscriptions.get(subscription.subject) is subscription:
            del self._subscriptions[subscription.subject]
        self.server.stop_listening(subscription)

    def listens(self, subject: str) -> bool:
        return self._found(subject) is not None

    def _found(self, subject: str) -> Subscription | None:
        found = self._subscriptions.get(subject) or self._subscriptions.get(subject[: subject.rfind(".")] + ".*")
        if found is not None or subject.startswith("_INBOX"):
            return found
        return next((one for pattern, one in self._subscriptions.items() if matches(pattern, subject)), None)

    def arrive(self, era: int, inbox: str, items: list[Item]) -> None:
        """What the broker has sent reaches the process, if the connection over which it came still stands."""
        if era != self.era or self.life.ended:
            return
        for subject, reply, data, headers in items:
            answer = self._requests.get(inbox)
            if answer is not None:
                if not answer.done():
                    answer.set_result(data)
                continue
            found = self._found(inbox)
            if found is None:
                continue
            if found.receive is not None:
                _at_once(found.receive, subject or inbox.encode(), reply, data, headers)
            elif found.cb is not None:
                told = Told(subject.decode() or inbox, reply.decode(), data)
                asyncio.get_running_loop().create_task(found.cb(told))  # type: ignore[arg-type]

    def no_responders(self, inbox: str) -> None:
        answer = self._requests.get(inbox)
        if answer is not None and not answer.done():
            answer.set_exception(nats.errors.NoRespondersError())

    def disconnect(self) -> None:
        """The connection is lost with what is on its way; what is written from now on waits for the next one."""
        if not self.is_connected or self.life.ended:
            return
        self.is_connected = False
        self.era += 1
        self.server.drop(self)
        if self.on_disconnected is not None:
            self.server.loop.spawn(self.life, self.on_disconnected())  # type: ignore[arg-type]

    def reconnect(self) -> None:
        if self.is_connected or self.closed or self.life.ended or self.server.down:
            return
        self.is_connected = True
        self._there.set()
        self.out.clear()
        self.into.clear()
        for subscription in self._subscriptions.values():
            self.server.listen(subscription)
        buffer, self._buffer = self._buffer, []
        for written in buffer:
            self.server.send(self, written)
        if self.on_reconnected is not None:
            self.server.loop.spawn(self.life, self.on_reconnected())  # type: ignore[arg-type]


def _at_once(receive: Receive, *message: bytes) -> None:
    """The reading loop does not wait for who receives."""
    try:
        receiving = receive(*message)
        if receiving is None:
            return
        receiving.send(None)  # type: ignore[attr-defined]
    except (StopIteration, asyncio.CancelledError):  # the latter: the process died over it
        return
    raise AssertionError("a receiver of the reading loop waited")


def _parsed(command: bytes) -> tuple[str, bytes, str, dict[str, str]]:
    """Subject, data, reply and headers of a PUB or HPUB command."""
    first, rest = command.split(b"\r\n", 1)
    kind, subject, reply, *lengths = first.split(b" ")
    if kind == b"PUB":
        return subject.decode(), rest[: int(lengths[0])], reply.decode(), {}
    head_bytes, all_bytes = lengths
    lines = rest[: int(head_bytes)].decode().split("\r\n")[1:-2]
    headers = dict(line.split(": ", 1) for line in lines)
    return subject.decode(), rest[int(head_bytes) : int(all_bytes)], reply.decode(), headers
