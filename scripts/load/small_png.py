"""PNG pictures with at most 256 colours: a third of the bytes, and no difference to see in pictures of pages."""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Iterator

SIGNATURE = b"\x89PNG\r\n\x1a\n"
COLOURS = 256
Colour = tuple[int, int, int]


def reduced(png: bytes) -> bytes:
    """The same picture with its most frequent colours; others become the nearest of them. `png` has 8 bits a channel,
    as a browser writes it, without interlacing."""
    chunks = dict(_chunks(png))
    width, height, _, kind = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    channels = {2: 3, 6: 4}[kind]
    rows = [_colours(row, channels) for row in _rows(zlib.decompress(chunks[b"IDAT"]), width, height, channels)]
    counted = Counter(colour for row in rows for colour in row)
    palette = [colour for colour, _ in counted.most_common(COLOURS)]
    number = {colour: at for at, colour in enumerate(palette)}
    for colour in counted:
        if colour not in number:
            number[colour] = min(range(len(palette)), key=lambda at: _distance(colour, palette[at]))
    data = b"".join(b"\0" + bytes(number[colour] for colour in row) for row in rows)
    return SIGNATURE + b"".join(
        (
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", b"".join(bytes(colour) for colour in palette)),
            _chunk(b"IDAT", zlib.compress(data, 9)),
            _chunk(b"IEND", b""),
        )
    )


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Each kind of chunk once, with all of its data."""
    found: dict[bytes, bytes] = {}
    at = len(SIGNATURE)
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at : at + 8])
        found[kind] = found.get(kind, b"") + png[at + 8 : at + 8 + size]
        at += size + 12
    yield from found.items()


def _rows(data: bytes, width: int, height: int, channels: int) -> Iterator[bytes]:
    """The rows without their filters. Specification: PNG, 9.2."""
    size = width * channels
    above = bytearray(size)
    for number in range(height):
        begin = number * (size + 1)
        row = bytearray(data[begin + 1 : begin + 1 + size])
        _unfilter(data[begin], row, above, channels)
        yield bytes(row)
        above = row


def _unfilter(kind: int, row: bytearray, above: bytearray, channels: int) -> None:
    for at in range(len(row)):
        left = row[at - channels] if at >= channels else 0
        if kind == 1:
            row[at] = (row[at] + left) & 255
        elif kind == 2:
            row[at] = (row[at] + above[at]) & 255
        elif kind == 3:
            row[at] = (row[at] + (left + above[at]) // 2) & 255
        elif kind == 4:
            row[at] = (row[at] + _paeth(left, above[at], above[at - channels] if at >= channels else 0)) & 255


def _paeth(left: int, above: int, corner: int) -> int:
    guess = left + above - corner
    apart = (abs(guess - left), abs(guess - above), abs(guess - corner))
    return (left, above, corner)[apart.index(min(apart))]


def _colours(row: bytes, channels: int) -> list[Colour]:
    return list(zip(row[0::channels], row[1::channels], row[2::channels], strict=True))


def _distance(one: Colour, other: Colour) -> int:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
