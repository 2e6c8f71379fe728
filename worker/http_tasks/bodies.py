"""Bodies of answers: read up to a limit, unpacked, and decoded to what JSON can hold."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator
from contextlib import aclosing
from email.message import Message
from typing import Any

import httpcore2
import orjson

PIECE_BYTES = 64 * 1024
TEXT_TYPES = ("application/javascript", "application/x-www-form-urlencoded", "application/xml", "application/yaml")
GZIP = 16 + zlib.MAX_WBITS


class BadPacking(Exception):
    """A body that is not what its Content-Encoding says, or ends too early."""


def header(response: httpcore2.Response, name: str) -> str:
    """The first field of that name (in lower case), empty without one."""
    found = (value for key, value in response.headers if key.lower() == name.encode())
    return next(found, b"").decode(errors="replace").strip()


async def read(response: httpcore2.Response, most: int) -> bytes:
    """The body, unpacked; of one with more than `most` bytes, at least so many and not much more. Raises BadPacking,
    and what the connection raises."""
    unpacker = _unpacker(response)
    found = bytearray()
    async with aclosing(response.aiter_stream()) as parts:
        async for part in parts:
            for piece in unpacker.pieces(part):
                found += piece
                if len(found) >= most:
                    return bytes(found)
    unpacker.end()
    return bytes(found)


def decoded(body: bytes, content_type: str, packing: str = "") -> Any:
    """JSON as its value, text as text, anything else as `{"base64": …}`; None when there is nothing."""
    if not body:
        return None
    mime, charset = _kind(content_type)
    if not is_packed_by_others(packing):
        if mime == "application/json" or mime.endswith("+json"):
            try:
                return orjson.loads(body)
            except orjson.JSONDecodeError:
                charset = charset or "utf-8"
        if charset or mime.startswith("text/") or mime.endswith("+xml") or mime in TEXT_TYPES:
            try:
                return body.decode(charset or "utf-8")
            except (UnicodeError, LookupError):
                pass
    return {"base64": base64.b64encode(body).decode()}


def is_packed_by_others(packing: str) -> bool:
    """Whether a Content-Encoding is one that was not asked for, and is not unpacked."""
    return packing.lower() not in ("", "identity", "gzip", "x-gzip")


def _unpacker(response: httpcore2.Response) -> PlainBody | GzipBody:
    return GzipBody() if header(response, "content-encoding").lower() in ("gzip", "x-gzip") else PlainBody()


class PlainBody:
    """A body that is as it comes."""

    def pieces(self, part: bytes) -> Iterator[bytes]:
        yield part

    def end(self) -> None: ...


class GzipBody:
    """A gzip file, or several one after the other."""

    def __init__(self) -> None:
        self._file = zlib.decompressobj(GZIP)
        self._inside = False

    def pieces(self, part: bytes) -> Iterator[bytes]:
        """What `part` unpacks to, in small pieces: of a body that unpacks to a huge one no more is made than is taken.
        Raises BadPacking."""
        while part:
            self._inside = True
            try:
                while piece := self._file.decompress(part, PIECE_BYTES):
                    yield piece
                    part = self._file.unconsumed_tail
            except zlib.error as error:
                raise BadPacking(str(error)) from None
            part = self._file.unused_data
            if self._file.eof:
                self._file, self._inside = zlib.decompressobj(GZIP), False

    def end(self) -> None:
        """Raises BadPacking when the last file has not ended."""
        if self._inside:
            raise BadPacking("it ends too early")


def _kind(content_type: str) -> tuple[str, str | None]:
    """The media type and the charset; text without any type."""
    kind = Message()
    kind["content-type"] = content_type or "text/plain"
    return kind.get_content_type(), kind.get_content_charset()
