"""What an HTTP/1.1 server sends, cut into heads, pieces of bodies and ends; and a body of server-sent events cut into
events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import NamedTuple, TypeAlias

HEAD_BYTES_MAX = 64 << 10
NO_BODY = frozenset({204, 304})


class BadAnswerError(Exception):
    """The server sent what is no HTTP/1.1 answer; the connection is of no more use."""


class Head(NamedTuple):
    """The beginning of an answer; header names are in lower case."""

    status: int
    headers: dict[bytes, bytes]

    @property
    def closes(self) -> bool:
        return self.headers.get(b"connection", b"").lower() == b"close"


class End(Enum):
    """The end of an answer."""

    END = "end"


Part: TypeAlias = Head | bytes | End


class Framing:
    """Owned by one connection, as long as it lives. After a BadAnswerError it must not be fed again."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._left = 0
        self._cut: Callable[[], Part | None] = self._head

    def feed(self, data: bytes) -> Iterator[Part]:
        """The parts that are complete now. Raises BadAnswerError."""
        self._buffer += data
        while (part := self._cut()) is not None:
            yield part

    def _head(self) -> Head | None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > HEAD_BYTES_MAX:
                raise BadAnswerError("the head of an answer has no end")
            return None
        lines = bytes(self._buffer[:end]).split(b"\r\n")
        del self._buffer[: end + 4]
        head = _parsed(lines)
        self._cut = self._body_of(head)
        return head

    def _body_of(self, head: Head) -> Callable[[], Part | None]:
        if head.headers.get(b"transfer-encoding", b"").lower() == b"chunked":
            return self._chunk_size
        length = head.headers.get(b"content-length")
        if length is None and head.status not in NO_BODY:
            raise BadAnswerError("an answer does not say how long it is")
        self._left = int(length or 0)
        return self._sized if self._left else self._end

    def _sized(self) -> bytes | None:
        piece = self._piece()
        if not self._left:
            self._cut = self._end
        return piece

    def _chunk_size(self) -> Part | None:
        line = self._line()
        if line is None:
            return None
        self._left = _hex(line)
        self._cut = self._chunk if self._left else self._trailer
        return self._cut()

    def _chunk(self) -> bytes | None:
        piece = self._piece()
        if not self._left:
            self._cut = self._chunk_end
        return piece

    def _chunk_end(self) -> Part | None:
        if self._line() is None:
            return None
        self._cut = self._chunk_size
        return self._cut()

    def _trailer(self) -> Part | None:
        while (line := self._line()) is not None:
            if not line:
                return self._end()
        return None

    def _end(self) -> End:
        self._cut = self._head
        return End.END

    def _piece(self) -> bytes | None:
        """As much of the body as is there, None when nothing is."""
        piece = bytes(self._buffer[: self._left])
        del self._buffer[: self._left]
        self._left -= len(piece)
        return piece or None

    def _line(self) -> bytes | None:
        end = self._buffer.find(b"\r\n")
        if end < 0:
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line


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


def _parsed(lines: list[bytes]) -> Head:
    version, _, rest = lines[0].partition(b" ")
    if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
        raise BadAnswerError(f"this is no status line: {lines[0][:80]!r}")
    headers = (line.partition(b":") for line in lines[1:])
    return Head(int(rest[:3]), {name.lower(): value.strip() for name, _, value in headers})


def _hex(line: bytes) -> int:
    try:
        return int(line.partition(b";")[0], 16)
    except ValueError as error:
        raise BadAnswerError(f"this is no chunk size: {line[:80]!r}") from error


def _happening(block: bytes) -> Happening:
    fields = dict(line.split(b": ", 1) for line in block.split(b"\n") if b": " in line and not line.startswith(b":"))
    return Happening(
        fields.get(b"id", b"").decode(), fields.get(b"event", b"message").decode(), fields.get(b"data", b"")
    )
