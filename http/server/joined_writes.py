"""A transport that sends the head of a response together with its body: each write is a system call, and wakes the
client."""

from __future__ import annotations

from asyncio import Transport
from typing import Any

HEAD = b"HTTP/1."
LENGTH = b"\r\ncontent-length: "
COPIED_BYTES_MAX = 1 << 16


class JoinedWrites:
    """Owned by its connection, instead of the transport, which does everything else.

    The head of a response whose length is known is held back until its body follows, which is at once, or `flush`.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport, self._held = transport, b""
        self.is_closing, self.get_extra_info = transport.is_closing, transport.get_extra_info

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._held and data.startswith(HEAD) and LENGTH in data:
            self._held = data
        elif not self._held:
            self._transport.write(data)
        elif len(data) > COPIED_BYTES_MAX:
            self.flush()
            self._transport.write(data)
        else:
            held, self._held = self._held, b""
            self._transport.write(held + data)

    def flush(self) -> None:
        if self._held:
            held, self._held = self._held, b""
            self._transport.write(held)

    def close(self) -> None:
        self.flush()
        self._transport.close()
