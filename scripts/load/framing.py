"""The answers of an HTTP/1.1 server as heads, pieces of bodies and ends; and a body of server-sent events as events."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, TypeAlias

from httptools import HttpParserError, HttpResponseParser

HEAD_BYTES_MAX = 1 << 20  # several times what is read at once
NO_BODY = frozenset({204, 304})


class BadAnswerError(Exception):
    """The server sent what is no HTTP/1.1 answer; the connection is of no more use."""


class Head(NamedTuple):
    """The beginning of an answer; header names are in lower case. `closes`: no answer follows on this connection."""

    status: int
    headers: dict[bytes, bytes]
    closes: bool


class End(Enum):
    """The end of an answer."""

    END = "end"


Part: TypeAlias = Head | bytes | End


class Framing:
    """Owned by one connection, as long as it lives. After a BadAnswerError it must not be fed again.

    The parser calls the methods that begin with `on_`.
    """

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._headers: dict[bytes, bytes] = {}
        self._in_head, self._head_bytes = False, 0
        self.on_body = self._parts.append
        self._parser = HttpResponseParser(self)

    def feed(self, data: bytes) -> list[Part]:
        """The parts that are complete now. Raises BadAnswerError."""
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            raise BadAnswerError(f"this is no answer: {error.__context__ or error}") from error
        if self._in_head:
            self._count_head(len(data))
        parts = self._parts[:]
        self._parts.clear()
        return parts

    def on_message_begin(self) -> None:
        self._headers = {}
        self._in_head, self._head_bytes = True, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        self._in_head = False
        status, headers, keep_alive = self._parser.get_status_code(), self._headers, self._parser.should_keep_alive()
        if not keep_alive and _ends_with_connection(status, headers):
            raise BadAnswerError("it does not say how long it is")
        self._headers = {}  # of the trailers, which nobody reads
        self._parts.append(Head(status, headers, not keep_alive))

    def on_message_complete(self) -> None:
        self._parts.append(End.END)

    def _count_head(self, size: int) -> None:
        """The first piece counts whole, though it may begin with the end of another answer."""
        self._head_bytes += size
        if self._head_bytes > HEAD_BYTES_MAX:
            raise BadAnswerError("the head of an answer has no end")


class Happening(NamedTuple):
    """One server-sent event; comments are none."""

    id: str
    type: str
    data: bytes


class Happenings:
    """Owned by the reader of one stream. It takes line ends as this service writes them: a single line feed."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, piece: bytes) -> list[Happening]:
        """The events that are complete now."""
        *blocks, self._buffer = (self._buffer + piece).split(b"\n\n")
        return [_happening(block) for block in blocks if b"data:" in block]


def _ends_with_connection(status: int, headers: dict[bytes, bytes]) -> bool:
    return status not in NO_BODY and b"content-length" not in headers and b"transfer-encoding" not in headers


def _happening(block: bytes) -> Happening:
    fields = dict(line.split(b": ", 1) for line in block.split(b"\n") if b": " in line and not line.startswith(b":"))
    return Happening(
        fields.get(b"id", b"").decode(), fields.get(b"event", b"message").decode(), fields.get(b"data", b"")
    )
