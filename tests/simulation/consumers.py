"""Pull consumers: durable ones with ack policy all, of one partition of the history or of all, and those of readers of
a whole stream, which acknowledge nothing and are in memory only."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from tests.simulation.streams import Message, Stream, matches

if TYPE_CHECKING:
    from tests.simulation.client import Client
    from tests.simulation.server import Server

HEARTBEAT_S = 2.0
WRITTEN_S = 0.1  # what a consumer knows is written so much later: killed before that, the broker has forgotten it


class Waiting:
    """One request for messages; it waits where its client's requests are answered."""

    __slots__ = ("client", "expires_at", "inbox", "left", "said_at")

    def __init__(self, client: Client, inbox: str, left: int, now: float, expires_s: float) -> None:
        self.client, self.inbox, self.left, self.expires_at, self.said_at = client, inbox, left, now + expires_s, now


class Consumer:
    """`floor` is the last sequence that is acknowledged with all before it. What was delivered waits `ack_wait_s` for
    that. One that is not `lasting` is in the broker's memory, and goes with it.

    As the real one, it takes the removal of what was delivered for its acknowledgement: by its sequence for that of all
    before it, too; by its subject only in what it says, `_told`, and while it is behind the first message of all.
    """

    def __init__(
        self, server: Server, name: str, filter_subject: str, ack_wait_s: float, start: int = 1, *, lasting: bool = True
    ) -> None:
        self._server, self.name, self.filter, self.lasting = server, name, filter_subject, lasting
        self._stream, self._ack_wait_s = server.history, ack_wait_s
        self.floor = self._written = start - 1
        self._told, self._start = 0, start
        self._written_at = server.now
        self._next: deque[Message] = deque(self._stream.matching(filter_subject, start))
        self._again: deque[Message] = deque()
        self._pending: dict[int, tuple[Message, int, float]] = {}
        self._number = 0
        self._requests: deque[Waiting] = deque()
        self._watched = False

    @property
    def unacknowledged(self) -> int:
        return len(self._next) + len(self._pending)

    def progress(self) -> dict[str, Any]:
        """How far it is, as the broker describes it."""
        return {
            "ack_floor": {"stream_seq": max(self.floor, self._told)},
            "delivered": {"stream_seq": max(self._pending, default=self.floor)},
            "num_pending": len(self._next),
            "num_ack_pending": len(self._pending),
            "num_waiting": len(self._requests),
            "config": {"opt_start_seq": self._start} | ({} if self.lasting else {"mem_storage": True}),
        }

    def takes(self, subject: str) -> bool:
        return matches(self.filter, subject)

    def offer(self, message: Message) -> None:
        """It has just been stored."""
        if message.seq <= self.floor:
            return  # it begins behind that
        self._next.append(message)
        self._pump()

    def ask(self, client: Client, inbox: str, batch: int, expires_s: float) -> None:
        self._requests.append(Waiting(client, inbox, batch, self._server.now, expires_s))
        self._watch()
        self._pump()

    def acknowledge(self, seq: int) -> None:
        """Everything up to there is done; a word about what was not delivered (in this life of the consumer) is
        ignored."""
        if seq not in self._pending and not any(message.seq == seq for message in self._again):
            return
        self._write()
        self.floor = max(self.floor, seq)
        self._pending = {one: found for one, found in self._pending.items() if one > seq}
        self._again = deque(message for message in self._again if message.seq > seq)

    def was_removed(self, seq: int) -> None:
        if seq in self._pending:
            self.acknowledge(seq)

    def some_were_purged(self) -> None:
        first_seq = next(iter(self._stream.messages), self._stream.last_seq + 1)
        if self.floor >= first_seq:
            return
        self.floor = first_seq - 1
        for seq in self._pending.keys() - self._stream.messages.keys():
            del self._pending[seq]
            self._told = max(self._told, seq)

    def reset(self, start: int) -> None:
        """Everything from there on comes again, counted from the beginning. Requests stay as they are."""
        self.floor, self._told = start - 1, 0
        self._pending.clear()
        self._again.clear()
        self._number = 0
        self._next = deque(self._stream.matching(self.filter, self.floor + 1))
        self._pump()

    def begin_again(self, *, killed: bool) -> None:
        """The broker has started again. What was delivered is waited for as before, nobody has asked for anything."""
        self._requests.clear()
        if killed:
            self._write()
            self.floor, before = max(self._written, self._told), self._server.now - WRITTEN_S
            self._pending = {seq: found for seq, found in self._pending.items() if found[2] <= before}
            self._again.clear()
            self._next = deque(self._stream.matching(self.filter, max(self._pending, default=self.floor) + 1))

    def _write(self) -> None:
        """Now and then; what has changed since is in memory only."""
        if self._server.now - self._written_at >= WRITTEN_S:
            self._written, self._written_at = self.floor, self._server.now

    def redeliver(self) -> None:
        """What is unacknowledged has waited too long."""
        self._again = deque(message for message, _, _ in self._pending.values())
        self._pump()

    def forget(self, client: Client) -> None:
        """Its connection is gone."""
        self._requests = deque(request for request in self._requests if request.client is not client)

    def _pump(self) -> None:
        while self._requests and (self._again or self._next):
            request = self._requests.popleft()
            if not request.client.listens(request.inbox):
                continue
            message = (self._again or self._next).popleft()
            if message.seq in self._stream.messages:  # else it was removed meanwhile
                self._deliver(request, message)
                request.left -= 1
            if request.left:
                self._requests.append(request)

    def _deliver(self, request: Waiting, message: Message) -> None:
        count = self._pending[message.seq][1] + 1 if message.seq in self._pending else 1
        self._pending[message.seq] = message, count, self._server.now
        self._number += 1
        request.said_at = self._server.now
        left = len(self._next) + len(self._again)
        reply = f"$JS.ACK.{self._stream.name}.{self.name}.{count}.{message.seq}.{self._number}.{message.at_ns}.{left}"
        item = message.subject.encode(), reply.encode(), message.data, message.own_headers
        self._server.deliver(request.client, self.name, request.inbox, item)

    def _watch(self) -> None:
        if not self._watched:
            self._watched = True
            self._server.later(HEARTBEAT_S, self._look)

    def _look(self) -> None:
        """Requests that are over, heartbeats, deliveries that were not acknowledged in time."""
        now = self._server.now
        kept: deque[Waiting] = deque()
        for request in self._requests:
            if not request.client.listens(request.inbox):
                continue
            if now >= request.expires_at:
                status = (
                    b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: %d\r\nNats-Pending-Bytes: 0\r\n\r\n"
                    % request.left
                )
                self._server.deliver(request.client, self.name, request.inbox, (b"", b"", b"", status))
                continue
            if now - request.said_at >= HEARTBEAT_S:
                request.said_at = now
                self._server.deliver(
                    request.client, self.name, request.inbox, (b"", b"", b"", b"NATS/1.0 100 Idle Heartbeat\r\n\r\n")
                )
            kept.append(request)
        self._requests = kept
        late = [message for message, _, at in self._pending.values() if now - at >= self._ack_wait_s]
        waiting = {message.seq for message in self._again}
        self._again.extend(message for message in late if message.seq not in waiting)
        self._pump()
        self._watched = bool(self._requests or self._pending)
        if self._watched:
            self._server.later(HEARTBEAT_S, self._look)


class Reader:
    """The consumer of one that reads a whole stream from a sequence on. It goes when nobody has asked it for
    `forget_after_s`."""

    def __init__(self, server: Server, name: str, stream: Stream, start: int, forget_after_s: float) -> None:
        self._server, self._name, self._stream, self._forget_after_s = server, name, stream, forget_after_s
        self._next, self._number, self._used_at = start, 0, server.now
        self._request: Waiting | None = None
        server.later(forget_after_s, self._look)

    def ask(self, client: Client, inbox: str, batch: int, expires_s: float | None) -> None:
        """`expires_s` None: give what there is, and do not wait."""
        self._used_at = self._server.now
        self._request = Waiting(client, inbox, batch, self._server.now, expires_s or 0.0)
        self.pump()
        if self._request is not None:
            if expires_s is None:
                self._status(
                    self._request, b"408 Request Timeout" if self._request.left < batch else b"404 No Messages"
                )
            else:
                self._server.later(expires_s, self._expire, self._request)

    def pump(self) -> None:
        """Give what was asked for, as far as it is there."""
        while (request := self._request) is not None and (message := self._first()) is not None:
            self._next, self._number = message.seq + 1, self._number + 1
            pending = sum(seq > message.seq for seq in self._stream.messages)
            place = f"{self._stream.name}.{self._name}.1.{message.seq}.{self._number}.{message.at_ns}.{pending}"
            item = message.subject.encode(), f"$JS.ACK.{place}".encode(), message.data, message.own_headers
            self._server.deliver(request.client, self._name, request.inbox, item)
            request.left -= 1
            self._used_at = self._server.now
            if not request.left:
                self._request = None

    def _first(self) -> Message | None:
        return next((one for seq, one in self._stream.messages.items() if seq >= self._next), None)

    def _expire(self, request: Waiting) -> None:
        if self._request is request:
            self._status(request, b"408 Request Timeout")

    def _status(self, request: Waiting, status: bytes) -> None:
        self._request, self._used_at = None, self._server.now
        self._server.deliver(
            request.client, self._name, request.inbox, (b"", b"", b"", b"NATS/1.0 %b\r\n\r\n" % status)
        )

    def _look(self) -> None:
        waits = self._request is not None and self._request.client.listens(self._request.inbox)
        left = self._used_at + self._forget_after_s - self._server.now
        if waits or left > 0:
            self._server.later(self._forget_after_s if waits else left, self._look)
        elif self._server.readers.get(self._name) is self:
            del self._server.readers[self._name]
