"""Takes apart what the broker writes, and passes messages on to their readers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import orjson
from nats.errors import ProtocolError

END = b"\r\n"
WITH_HEADERS = b"HMSG"
MESSAGES = {b"MSG": 5, WITH_HEADERS: 6}  # words of the line of one that has a reply subject
LINE_MAX = 1 << 16  # the broker's own limit is 4 KiB, but INFO names all nodes of a cluster
NOTHING = b"+OK\r\n"  # a line of the protocol that says nothing

Receive = Callable[[bytes, bytes, bytes, bytes], Awaitable[None] | None]
"""Takes subject, reply subject (empty: a status), body and raw headers. It must not wait, but for what it returns, for
which the connection waits."""

ReceiveMany = Callable[[bytes, int, bytes], int]
"""Takes what was read, the place in it where a message of the subscription begins, and the subscription's number.
Returns the place behind the messages that it has taken: those that are whole and its own. The same place: none."""


class Receivers(Protocol):
    """The client: the readers of its subscriptions by number, and what else the client itself handles."""

    @property
    def receivers(self) -> Mapping[int, Receive]: ...

    @property
    def takers(self) -> Mapping[bytes, ReceiveMany]: ...

    @property
    def _error_cb(self) -> Callable[[Exception], Awaitable[None]]: ...

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None: ...

    async def _process_err(self, err_msg: str) -> None: ...

    async def _process_ping(self) -> None: ...

    async def _process_pong(self) -> None: ...

    async def _process_info(self, info: Any) -> None: ...


class QuickParser:
    """Owned by one client, which gives it what it has read: `parse` is the protocol of the client's own parser.

    Messages of subscriptions that have a reader of ours need no waiting, so `take` passes them on at once. A reader of
    many small messages takes them out of what was read itself (`ReceiveMany`): it need not look at each from all
    sides, as one that gets them one by one must.
    """

    def __init__(self, client: Receivers) -> None:
        self._client = client
        self._connection = 0
        self.reset()

    def reset(self) -> None:
        """Forget what was read: another connection begins."""
        self._connection += 1
        self._read: list[bytes] = []
        self._lacking = 0
        self._unsettled: Awaitable[None] | Exception | None = None  # what the last message has left to wait for
        self._one_by_one = False  # the next message is not for the reader of many, which has failed with it

    def take(self, data: bytes) -> bytes:
        """Pass on the messages that are whole now, up to what must be waited for. Returns what `parse` must be given
        next, before anything else is; empty: nothing."""
        self._read.append(data)
        self._lacking -= len(data)
        if self._lacking > 0:
            return b""
        read = data if len(self._read) == 1 else b"".join(self._read)
        at, waits = self._passed_on(read)
        self._read = [] if waits or at == len(read) else [read[at:]]
        return (read[at:] or NOTHING) if waits else b""

    async def parse(self, data: bytes = b"") -> None:
        """Pass on all messages that are whole now. Raises ProtocolError for what is no command."""
        connection = self._connection
        while connection == self._connection:
            if self._unsettled is not None:
                await self._settle()
            elif not (data := self.take(data)):
                return
            elif self._unsettled is None:
                data = await self._first(data)

    async def _settle(self) -> None:
        unsettled, self._unsettled = self._unsettled, None
        try:
            if isinstance(unsettled, Exception):
                raise unsettled
            if unsettled is not None:
                await unsettled
        except Exception as error:  # as the client does for callbacks: the connection belongs to others too
            await self._client._error_cb(error)

    def _passed_on(self, read: bytes) -> tuple[int, bool]:
        """The place up to which all is passed on, and whether something must be waited for there; it sets how much is
        lacking of the message there."""
        takers, receivers = self._client.takers, self._client.receivers
        at = self._lacking = 0
        while (end := read.find(END, at)) >= 0:
            words, begin = read[at:end].split(), end + len(END)
            if not words or words[0] not in MESSAGES:
                return at, True
            if takers and len(words) > 2 and (take := takers.get(words[2])) and not self._one_by_one:
                try:
                    taken = take(read, at, words[2])
                except Exception as error:
                    self._unsettled, self._one_by_one = error, True
                    return at, True
                if taken > at:
                    at = taken
                    continue
            self._one_by_one = False
            try:
                head = int(words[-2]) if words[0] == WITH_HEADERS else 0
                sid, stop = int(words[2]), begin + int(words[-1])
            except (IndexError, ValueError):
                return at, True
            if head < 0 or stop < begin + head:
                return at, True
            if stop + len(END) > len(read):
                self._lacking = stop + len(END) - len(read)
                return at, False
            receive = receivers.get(sid)
            if receive is None:
                return at, True
            reply = words[3] if len(words) == MESSAGES[words[0]] else b""
            headers, body, at = read[begin : begin + head], read[begin + head : stop], stop + len(END)
            try:
                self._unsettled = receive(words[1], reply, body, headers)
            except Exception as error:
                self._unsettled = error
            if self._unsettled is not None:
                return at, True
        return at, len(read) - at > LINE_MAX

    async def _first(self, data: bytes) -> bytes:
        """Handle the first command, which is no message or one of the client's own. Returns what follows. Raises
        ProtocolError."""
        line, found, rest = data.partition(END)
        words = line.split()
        if not found or not words:
            raise ProtocolError("nats: unknown protocol")
        if words[0] not in MESSAGES:
            await self._control(line)
            return rest
        try:
            head = int(words[-2]) if words[0] == WITH_HEADERS else 0
            sid, size = int(words[2]), int(words[-1])
        except (IndexError, ValueError) as error:
            raise ProtocolError("nats: malformed MSG") from error
        if not 0 <= head <= size:
            raise ProtocolError("nats: malformed MSG")
        reply = words[3] if len(words) == MESSAGES[words[0]] else b""
        await self._client._process_msg(sid, words[1], reply, rest[head:size], rest[:head])
        return rest[size + len(END) :]

    async def _control(self, line: bytes) -> None:
        """What is no message. Raises ProtocolError."""
        kind, _, rest = line.partition(b" ")
        match kind.rstrip():
            case b"PING":
                await self._client._process_ping()
            case b"PONG":
                await self._client._process_pong()
            case b"+OK":
                pass
            case b"-ERR":
                await self._client._process_err(rest.strip().decode().lower())
            case b"INFO":
                await self._client._process_info(orjson.loads(rest))
            case _:
                raise ProtocolError("nats: unknown protocol")
