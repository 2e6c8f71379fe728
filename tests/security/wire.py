"""Requests as bytes on a connection, and all that comes back for them."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable
from contextlib import closing, suppress
from urllib.parse import urlsplit

PATIENCE_S = 30.0
STATUS = re.compile(rb"HTTP/1\.1 ([2-5]\d\d) ")


def connected(url: str) -> socket.socket:
    """Its caller closes it."""
    address = urlsplit(url)
    assert address.hostname
    assert address.port
    return socket.create_connection((address.hostname, address.port), PATIENCE_S)


def exchanged(url: str, *pieces: bytes) -> bytes:
    """All that is answered to these bytes until the server closes the connection."""
    with closing(connected(url)) as connection:
        with suppress(ConnectionError):  # it may have closed already
            for piece in pieces:
                connection.sendall(piece)
        return rest(connection)


def rest(connection: socket.socket) -> bytes:
    """What still comes until the server closes. Raises TimeoutError when it does not."""
    found = b""
    with suppress(ConnectionError):
        while part := connection.recv(65536):
            found += part
    return found


def statuses(answers: bytes) -> list[int]:
    return [int(status) for status in STATUS.findall(answers)]


def request(line: str, headers: Iterable[str] = (), body: bytes = b"", end: str = "\r\n") -> bytes:
    """A request with a Host, in bytes; whatever stands in `headers` is sent as it is."""
    return end.join((line, "Host: x", *headers, "", "")).encode("latin-1") + body


def whole(line: str, body: bytes = b"", *headers: str) -> bytes:
    """A request that ends its connection."""
    return request(line, (f"Content-Length: {len(body)}", "Connection: close", *headers), body)
