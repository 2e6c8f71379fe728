"""Consumers of those who follow some subjects of a stream: several requests at a time, nothing is acknowledged, and
they are in the broker's memory only."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from tests.simulation.consumers import HEARTBEAT_S, Waiting
from tests.simulation.streams import Message, Stream, matches

if TYPE_CHECKING:
    from tests.simulation.client import Client
    from tests.simulation.server import Server

NS = 10**9


class Follower:
    """It goes when nobody has asked it for as long as its configuration says."""

    def __init__(self, server: Server, name: str, stream: Stream, config: dict[str, Any]) -> None:
        self._server, self.name, self._stream = server, name, stream
        self._filters: list[str] = config["filter_subjects"]
        self._forget_after_s, self._used_at, self._number = config["inactive_threshold"] / NS, server.now, 0
        self._requests: deque[Waiting] = deque()
        start = config["opt_start_seq"]
        self._next = deque(one for one in stream.messages.values() if one.seq >= start and self._takes(one))
        server.later(HEARTBEAT_S, self._look)

    def offer(self, message: Message) -> None:
        """It has just been stored."""
        if message.stream == self._stream.name and self._takes(message):
            self._next.append(message)
            self._pump()

    def ask(self, client: Client, inbox: str, batch: int, expires_s: float) -> None:
        self._used_at = self._server.now
        self._requests.append(Waiting(client, inbox, batch, self._server.now, expires_s))
        self._pump()

    def _takes(self, message: Message) -> bool:
        return any(matches(one, message.subject) for one in self._filters)

    def _pump(self) -> None:
        while self._requests and self._next:
            request = self._requests[0]
            if not request.client.listens(request.inbox):
                self._requests.popleft()
                continue
            message = self._next.popleft()
            if message.seq not in self._stream.messages:
                continue
            self._number += 1
            place = f"{self._stream.name}.{self.name}.1.{message.seq}.{self._number}.{message.at_ns}.{len(self._next)}"
            item = message.subject.encode(), f"$JS.ACK.{place}".encode(), message.data, message.own_headers
            self._server.deliver(request.client, self.name, request.inbox, item)
            request.said_at = self._server.now
            request.left -= 1
            if not request.left:
                self._requests.popleft()

    def _look(self) -> None:
        """Requests that are over, heartbeats, and its own end."""
        if self._server.followers.get(self.name) is not self:
            return
        now, kept = self._server.now, deque[Waiting]()
        for request in self._requests:
            if not request.client.listens(request.inbox):
                continue
            self._used_at = now
            if now >= request.expires_at:
                left = f"Nats-Pending-Messages: {request.left}\r\nNats-Pending-Bytes: 0\r\n\r\n"
                self._status(request, f"NATS/1.0 408 Request Timeout\r\n{left}".encode())
                continue
            if now - request.said_at >= HEARTBEAT_S:
                request.said_at = now
                self._status(request, b"NATS/1.0 100 Idle Heartbeat\r\n\r\n")
            kept.append(request)
        self._requests = kept
        if now - self._used_at >= self._forget_after_s:
            del self._server.followers[self.name]
        else:
            self._server.later(HEARTBEAT_S, self._look)

    def _status(self, request: Waiting, status: bytes) -> None:
        self._server.deliver(request.client, self.name, request.inbox, (b"", b"", b"", status))
