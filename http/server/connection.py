"""A connection of the front end: uvicorn's, which may bring a bounded amount in a bounded time, and refuses what two
parsers could read in two ways."""

from __future__ import annotations

import re
from asyncio import Event, TimerHandle, Transport
from typing import Final, NamedTuple

from httptools import (
    HttpParserCallbackError,
    HttpParserError,
    HttpParserInvalidMethodError,
    HttpParserInvalidURLError,
    HttpParserUpgrade,
    HttpRequestParser,
)
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from penstock.http.server.joined_writes import JoinedWrites

READ_AGAIN_S = 0.05
BODY_SILENT_S_MAX = 30.0
UNREAD_BYTES_MAX = 1 << 20  # of a body that nobody asked for; it is read so that its sender sees the answer
VERSIONS = ("1.1", "1.0")
# RFC 9110, 6.5.1: what they say is known before the body is read.
NOT_IN_TRAILERS = frozenset((b"host", b"content-length", b"transfer-encoding", b"trailer", b"authorization", b"te"))
ONCE = frozenset((b"host", b"content-type"))
CHECKED = ONCE | {b"transfer-encoding"}
METHOD = re.compile(rb"[A-Z]{1,32}(?= )")
HEAD = b"HTTP/1.1 %d %b\r\nContent-Type: text/plain; charset=utf-8\r\n%bContent-Length: %d\r\nConnection: close\r\n\r\n"
PHRASES: Final = {
    400: b"Bad Request",
    403: b"Forbidden",
    404: b"Not Found",
    414: b"URI Too Long",
    431: b"Request Header Fields Too Large",
    501: b"Not Implemented",
    503: b"Service Unavailable",
}


class ConnectionBounds(NamedTuple):
    """Of a process, and of one request's head."""

    connections: int
    line_bytes: int
    fields: int
    field_bytes: int


class ConnectionState(ServerState):
    """What the connections of a process share. Owned by its server. `empty` is set when the last one has gone."""

    def __init__(self, bounds: ConnectionBounds) -> None:
        super().__init__()
        self.bounds, self.stopping, self.empty = bounds, False, Event()


class RefusedRequest(Exception):
    """A request that is answered with this status, and nothing else; then the connection is closed."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class HttpConnection(HttpToolsProtocol):
    """Owned by the server of its process.

    uvicorn waits for the first request for ever, accepts any number of connections and heads of any size, and reads
    every body to its end.
    """

    server_state: ConnectionState

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        self._writes = JoinedWrites(transport)
        super().connection_made(self._writes)  # type: ignore[arg-type]
        self._bounds = self.server_state.bounds
        self._closed_to_more, self._last_answer = False, b""  # nothing that still comes is read
        self._in_head, self._ended = False, True
        self._method: str | None = None  # what the parser does not know, in place of the one that it was given
        self._silent_bytes = self._unread_bytes = 0
        self._body_timer: TimerHandle | None = None
        if len(self.connections) > self._bounds.connections:
            self._closed_to_more = True
            transport.write(answer(503, "too many connections", b"Retry-After: 1\r\n"))
            transport.close()
        else:
            self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._disarm_body()
        if not self.connections:
            self.server_state.empty.set()

    def data_received(self, data: bytes) -> None:
        """The timer runs on until a head is whole, however steadily it comes."""
        if self._closed_to_more:
            return
        began_here, self._heads = self._ended, 0
        self._silent_bytes += len(data)
        try:
            self.parser.feed_data(data)
            self._check_silence(len(data))
            if not (self._in_head or self._ended):
                self._arm_body()
        except HttpParserUpgrade as offer:
            self._overlook(data[offer.args[0] :])
        except HttpParserInvalidMethodError as error:
            if began_here and self._heads == 1 and self._method is None and (found := METHOD.match(data)):
                self._give(found[0].decode(), b"GET" + data[found.end() :])
            else:
                self._refuse(400, str(error))
        except HttpParserInvalidURLError:
            self._refuse(404, "there is no such path")
        except HttpParserCallbackError as error:
            cause = error.__context__
            self._refuse(*((cause.status, str(cause)) if isinstance(cause, RefusedRequest) else (400, str(cause))))
        except HttpParserError as error:
            self._refuse(400, str(error))
        except RefusedRequest as error:
            self._refuse(error.status, str(error))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._ended, self._heads = True, False, self._heads + 1
        self._silent_bytes = self._fields = 0
        self._seen: set[bytes] = set()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > self._bounds.line_bytes:
            raise RefusedRequest(414, "the request line is too long")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._silent_bytes, self._fields = 0, self._fields + 1
        if self._fields > self._bounds.fields:
            raise RefusedRequest(431, f"more than {self._bounds.fields} header fields")
        if len(name) + len(value) > self._bounds.field_bytes:
            raise RefusedRequest(431, "a header field is too long")
        name = name.lower()
        if not self._in_head:
            if name in NOT_IN_TRAILERS:
                raise RefusedRequest(400, "a trailer that may not be one")
            return
        if name in CHECKED:
            self._check(name, value)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head, self._silent_bytes, self._unread_bytes = False, 0, 0
        if self.parser.should_upgrade():
            self._check_upgrade()
            return
        version = self.parser.get_http_version()
        if version not in VERSIONS or (version == "1.0" and b"transfer-encoding" in self._seen):
            raise RefusedRequest(400, "this version of HTTP has no such request")
        self._unset_keepalive_if_required()
        target = self.url
        if not target.startswith(b"/"):
            self.url = b"/"
        super().on_headers_complete()
        if target is not self.url:  # as it is: no path begins so
            self.scope["path"], self.scope["raw_path"] = target.decode("latin-1"), target
        if self._method is not None:
            self.scope["method"], self._method = self._method, None
        if self.server_state.stopping:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._silent_bytes = 0
        if self.cycle.response_complete:
            self._unread_bytes += len(body)
            if self._unread_bytes > UNREAD_BYTES_MAX:
                self.transport.close()
        super().on_body(body)

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            self._ended = True
            self._disarm_body()
            super().on_message_complete()

    def on_response_complete(self) -> None:
        self._writes.flush()  # of a response without a body
        if self._last_answer and not self.pipeline:
            self._close_with_last_answer()
        elif self.cycle.response_complete and self.cycle.more_body and self.expect_100_continue:
            self.transport.close()  # whether the body still comes is not known
        super().on_response_complete()

    def timeout_keep_alive_handler(self) -> None:
        """Read once more before closing.

        A loop that was held up runs its timers before it reads. A request may have come in time, and closing a
        connection with unread bytes resets it.
        """
        self.timeout_keep_alive_task = self.loop.call_later(READ_AGAIN_S, super().timeout_keep_alive_handler)

    def shutdown(self) -> None:
        """Close it if it has no request, or one whose head has not arrived yet."""
        super().shutdown()
        for cycle, _ in self.pipeline:
            cycle.keep_alive = False

    def _arm(self) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def _arm_body(self) -> None:
        self._disarm_body()
        self._body_timer = self.loop.call_later(BODY_SILENT_S_MAX, self._miss_body)

    def _disarm_body(self) -> None:
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None

    def _miss_body(self) -> None:
        if self.flow.read_paused:  # by this side
            self._arm_body()
        elif not self.cycle.response_complete:
            self._refuse(400, f"no byte of the body came for {BODY_SILENT_S_MAX:g} s")

    def _check(self, name: bytes, value: bytes) -> None:
        if name == b"transfer-encoding" and value.lower() != b"chunked":
            raise RefusedRequest(501, "the only transfer coding is chunked")
        if name in self._seen:
            raise RefusedRequest(400, f"more than one {name.decode()}")
        self._seen.add(name)

    def _check_silence(self, size: int) -> None:
        """Refuse a field of any length of which the parser has told nothing yet, beside what has come just now."""
        if self._silent_bytes - size > self._bounds.field_bytes:
            raise RefusedRequest(431, "a header field is too long")

    def _check_upgrade(self) -> None:
        if self.parser.get_method() == b"CONNECT":
            raise RefusedRequest(400, "this is no proxy")
        if self._get_upgrade() == b"websocket":
            raise RefusedRequest(403, "there are no WebSockets here")

    def _overlook(self, rest: bytes) -> None:
        """Read a request that offers another protocol again, as one that does not."""
        head = b"".join(b"%b: %b\r\n" % field for field in self.headers if field[0] != b"upgrade")
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        self._give(self._method, b"%b %b HTTP/%b\r\n%b\r\n%b" % (method, self.url, version, head, rest))

    def _give(self, method: str | None, data: bytes) -> None:
        """Give a new parser what the former one did not take."""
        self.parser, self._method, self._ended = HttpRequestParser(self), method, True
        self.data_received(data)

    def _refuse(self, status: int, reason: str) -> None:
        """Answer in turn, behind the requests before, in place of one that is not whole; then close."""
        self._closed_to_more, self._last_answer = True, answer(status, reason)
        self._unset_keepalive_if_required()
        if self.cycle is None or self.cycle.response_complete:
            self._close_with_last_answer()
        elif not (self._in_head or self._ended):
            self._give_up(self.cycle)

    def _give_up(self, cycle: RequestResponseCycle) -> None:
        """End a request whose body is malformed. The application learns that its client has gone."""
        if self.pipeline and self.pipeline[0][0] is cycle:
            self.pipeline.popleft()
            return
        cycle.disconnected = True
        cycle.message_event.set()
        if cycle.response_started:
            self.transport.close()
        else:
            self._close_with_last_answer()

    def _close_with_last_answer(self) -> None:
        self.transport.write(self._last_answer)
        self.transport.close()


def answer(status: int, reason: str, more: bytes = b"") -> bytes:
    """A response of the server itself, which ends the connection; `more` are header fields."""
    body = f"{reason}\n".encode("ascii", "replace")
    return HEAD % (status, PHRASES[status], more, len(body)) + body
