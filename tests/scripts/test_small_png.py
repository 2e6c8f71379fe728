"""The pictures of the documentation: fewer colours, the same picture."""

from __future__ import annotations

import struct
import zlib

import pytest
from load.small_png import COLOURS, SIGNATURE, Colour, reduced

WIDTH, HEIGHT = 20, 15


def png(rows: list[list[Colour]], filters: list[int]) -> bytes:
    """A picture of 8 bits a channel, its rows filtered in these ways by turns."""
    above = bytes(3 * WIDTH)
    data = b""
    for number, row in enumerate(rows):
        plain = bytes(value for colour in row for value in colour)
        kind = filters[number % len(filters)]
        data += bytes([kind]) + bytes(
            (value - guess) & 255 for value, guess in zip(plain, _guesses(kind, plain, above), strict=True)
        )
        above = plain
    head = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(data)), (b"IEND", b""))
    return SIGNATURE + b"".join(struct.pack(">I", len(body)) + kind + body + bytes(4) for kind, body in chunks)


def _guesses(kind: int, row: bytes, above: bytes) -> bytes:
    left, corner = bytes(3) + row[:-3], bytes(3) + above[:-3]
    return bytes(
        (0, a, b, (a + b) // 2, min((a, b, c), key=lambda one: abs(a + b - c - one)))[kind]
        for a, b, c in zip(left, above, corner, strict=True)
    )


def shown(data: bytes) -> list[list[Colour]]:
    """The rows of a picture with a palette and without filters."""
    at, found = len(SIGNATURE), {}
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        found[kind] = data[at + 8 : at + 8 + size]
        assert zlib.crc32(kind + found[kind]) == struct.unpack(">I", data[at + 8 + size : at + 12 + size])[0]
        at += size + 12
    palette = [tuple(found[b"PLTE"][n : n + 3]) for n in range(0, len(found[b"PLTE"]), 3)]
    assert COLOURS >= len(palette)
    body = zlib.decompress(found[b"IDAT"])
    return [[palette[n] for n in body[y * (WIDTH + 1) + 1 : (y + 1) * (WIDTH + 1)]] for y in range(HEIGHT)]


@pytest.mark.parametrize("filters", [[0], [1], [2], [3], [4], [0, 1, 2, 3, 4]])
def test_a_picture_of_few_colours_stays_as_it_is(filters: list[int]) -> None:
    rows = [[(x * 12, y * 17, (x + y) % 2 * 200) for x in range(WIDTH)] for y in range(HEIGHT)]
    few = [[(r // 40 * 40, g // 50 * 50, b) for r, g, b in row] for row in rows]
    assert few == shown(reduced(png(few, filters)))


def test_a_picture_of_many_colours_gets_the_nearest_ones() -> None:
    rows = [[(x * 12, y * 17, 100) for x in range(WIDTH)] for y in range(HEIGHT)]
    found = shown(reduced(png(rows, [4])))
    assert found != rows
    apart = [
        abs(a - b)
        for row, other in zip(rows, found, strict=True)
        for one, two in zip(row, other, strict=True)
        for a, b in zip(one, two, strict=True)
    ]
    assert 60 > max(apart)
