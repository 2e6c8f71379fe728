"""Requests, and what malice and accidents make of them: everything that a server could still hand on to an
application."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from random import Random
from typing import Any, TypeAlias

from msgspec import Struct

Change: TypeAlias = Callable[[Random, "Request"], None]

UNPRINTABLE = re.compile(rb"[^!-~]")

METHODS = (
    "GET",
    "POST",
    "PUT",
    "DELETE",
    "PATCH",
    "HEAD",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "BREW",
    "get",
    "QUERY",
    "X" * 300,
)
NAMES = (
    "", ".", "..", "...", "a.", ".a", "a..b", "*", ">", "$JS.API", "a b", "a/b", "ü", "名", "\U0001f600", "a" * 128,
    "a" * 129, "x" * 9_000,
    "\0", "a\0b",
    "\n", "\r\n", "\x7f", "\u2028", "\ufeff", "\ufffd", "null", "true", "-1", "0", "1e9", "9" * 40, "__proto__",
    "__class__",
    "../../etc/passwd",
    "%", "%zz", "%00", "{run_id}", "{0}", "%s", "'\"", "<b>", "_INBOX.x",
    "history", "event.>", "0" * 32, "f" * 32 + ".a",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**400, 0.0, -0.0, 1.5, 1e308,
    float("inf"),
    float("nan"), "", "\0", "\ud800", "\udfff\ud800", "a\ud800", "x" * 5_000, [], {}, [[]], {"": {}}, [None],
    [1, "a", {}], {"a": None},
    "0s", "1h30m", "-1s", "9" * 200 + "h", "1e9s", "2026-11-21T12:00:00Z", "0000-01-01T00:00:00Z",
    "9999-12-31T23:59:60+23:59",
    "2026-11-21T12:00:00.123456789123Z", "10000-01-01T00:00:00Z", "* * * * *", "@yearly", "0 0 31 2 *", "Mars/Base",
    "../UTC", ["a", "a"],
    {"type": "nonsense"}, {"$ref": "#"}, {"$ref": "http://127.0.0.1:1/x"}, {"pattern": "("},
    {"type": "object", "minProperties": 2**70},
)  # fmt: skip
BYTES = (
    b"",
    b"\0",
    b"\xff",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\xc0\x80",
    b"\\ud800",
    b"\\u0000",
    b'"',
    b"{",
    b"}",
    b"[",
    b",",
    b":",
    b"1e999",
)
HEADERS: Sequence[tuple[str, Sequence[bytes]]] = (
    ("content-length", (b"", b"0", b"1", b"-1", b"+5", b"1.5", b"x", b"99999999", b"9" * 400, b"\xb2", b"0x10",
        b" 7 ")),
    ("content-type", (b"", b"text/plain", b"application/json; charset=utf-16", b"\xff\xfe", b"a" * 5000)),
    ("content-type", (b"multipart/form-data", b"application/x-www-form-urlencoded",
        b"multipart/form-data; boundary=\xff")),
    ("content-encoding", (b"gzip", b"br", b"identity", b"\xff")),
    ("accept", (b"", b"*", b"text/event-stream", b"text/html;q=x", b"\xff", b"," * 3000, b"application/json;q=0")),
    ("authorization", (b"", b"Bearer", b"Bearer ", b"bearer \xff", b"Basic Og==", b"Bearer " + b"x" * 9000,
        b"Bearer a b")),
    ("idempotency-key", (b"", b" ", b"\xff", b"k" * 255, b"k" * 256, b"a\tb", b"*")),
    ("last-event-id", (b"", b"0", b"-1", b"x", b"\xb2", b"9" * 30, b"1, 2")),
    ("if-none-match", (b"", b"*", b"x", b'"', b'W/"', b"\xff", b'"a", "b"', b"," * 500)),
    ("if-modified-since", (b"yesterday", b"\xff")),
    ("range", (b"bytes=0-", b"x", b"bytes=9-1", b"\xff")),
    ("host", (b"", b"a:b:c", b"[::1", b"\xff", b"evil.example:99999")),
    ("forwarded", (b"for=", b"\xff", b"for=1;host=;;", b"proto=x")),
    ("x-forwarded-for", (b"", b"1, 2", b"\xff")),
    ("x-forwarded-proto", (b"gopher", b"\xff")),
    ("cookie", (b"a", b"=", b"\xff", b"a=b; a=c;;", b"x" * 5000)),
    ("expect", (b"100-continue", b"x")),
    ("transfer-encoding", (b"chunked", b"x")),
    ("x-signature-256", (b"", b"sha256=", b"sha256=\xff", b"sha1=00", b"sha256=" + b"0" * 64, b"x" * 9000)),
    ("webhook-id", (b"", b"\xff", b"x" * 9000)),
    ("webhook-timestamp", (b"", b"-1", b"\xb2", b"9" * 30, b"1e9")),
    ("webhook-signature", (b"", b"v1,", b"v1,\xff", b"v1,x " * 500)),
    ("x-github-delivery", (b"", b"\xff", b"x" * 9000)),
    ("traceparent", (b"", b"00-" + b"0" * 32, b"\xff")),
)  # fmt: skip


class Request(Struct):
    """As a server has it: path segments still encoded, header names in lower case. `document` is the body, until it is
    bytes."""

    operation: str
    method: str
    segments: list[bytes]
    query: list[tuple[bytes, bytes]]
    headers: list[tuple[bytes, bytes]]
    document: Any = None
    body: bytes | None = None

    @property
    def target(self) -> bytes:
        """Path and query; servers refuse whatever does not print in ASCII."""
        query = b"&".join(name + b"=" + value for name, value in self.query)
        return UNPRINTABLE.sub(_escaped, b"/" + b"/".join(self.segments) + (b"?" + query if query else b""))

    def content(self) -> bytes:
        if self.body is None:
            self.body = b"" if self.document is None else json.dumps(self.document).encode()
        return self.body


def mutate(random: Random, request: Request) -> None:
    """Change it in one to three ways."""
    for _ in range(random.choice((1, 1, 1, 2, 2, 3))):
        random.choices(CHANGES, WEIGHTS)[0](random, request)


def _escaped(found: re.Match[bytes]) -> bytes:
    return b"%%%02X" % found[0][0]


def quote(text: str) -> bytes:
    """Every byte escaped that could end a segment, a value, or the line."""
    return b"".join(
        bytes((byte,)) if chr(byte).isalnum() or byte in b"-._~" else b"%%%02X" % byte
        for byte in text.encode("utf-8", "surrogatepass")
    )


def _method(random: Random, request: Request) -> None:
    request.method = random.choice(METHODS)


def _segment(random: Random, request: Request) -> None:
    name = quote(random.choice(NAMES))
    request.segments = request.segments or [name]
    at = random.randrange(len(request.segments))
    match random.randrange(8):
        case 0:
            request.segments.insert(at, name)
        case 1:
            del request.segments[at]
        case 2:
            request.segments.append(b"")
        case 3:
            request.segments[at] += random.choice(
                (b"%00", b"%FF", b"%ED%A0%80", b"%2F", b"%", b"%C0%80", b".", b"?", b"#", b";x=y")
            )
        case 4:
            request.segments[at] = request.segments[at].swapcase()
        case _:
            request.segments[-1 if random.random() < 0.5 else at] = name


def _query(random: Random, request: Request) -> None:
    known = [name for name, _ in request.query] or [
        b"limit",
        b"after",
        b"status",
        b"wait_ms",
        b"cursor",
        b"token",
        b"action",
    ]
    name = random.choice(known)
    value = random.choice((quote(random.choice(NAMES)), quote(str(_some(random))), *BYTES))
    match random.randrange(6):
        case 0:
            request.query += [(name, value), (name, value)]
        case 1:
            request.query.append((quote(random.choice(NAMES)), value))
        case 2:
            request.query = [pair for pair in request.query if pair[0] != name]
        case 3:
            request.query = [(name, value + b"%" + bytes(random.choices(range(33, 127), k=8)))]
        case _:
            request.query = [pair for pair in request.query if pair[0] != name] + [(name, value)]


def _header(random: Random, request: Request) -> None:
    name, values = random.choice(HEADERS)
    header = name.encode(), random.choice(values)
    if random.random() < 0.7:
        request.headers = [one for one in request.headers if one[0] != header[0]]
    request.headers.append(header)


def _bytes(random: Random, request: Request) -> None:
    body = bytearray(request.content())
    at = random.randrange(len(body) + 1)
    match random.randrange(7):
        case 0:
            for _ in range(random.randint(1, 8)):
                if body:
                    body[random.randrange(len(body))] ^= 1 << random.randrange(8)
        case 1:
            del body[at:]
        case 2:
            body[at:at] = random.choice(BYTES)
        case 3:
            body[at:at] = body[random.randrange(len(body) + 1) :]
        case 4:
            body[:] = bytes(random.choices(range(256), k=random.randint(0, 200)))
        case 5:
            body[:] = bytes(body).decode("latin-1").encode(random.choice(("utf-16", "utf-32", "utf-8-sig", "utf-7")))
        case _:
            depth = random.choice((10, 254, 255, 1_000, 100_000))
            body[at:at] = random.choice((b"[", b'{"a":')) * depth
    request.body = bytes(body)


def _value(random: Random, request: Request) -> None:
    """Something else in one place of the document."""
    if request.body is not None or not isinstance(request.document, dict | list) or not request.document:
        request.document = request.document if request.body is not None else _some(random)
        return
    holder, key = random.choice(_places(request.document))
    match random.randrange(8):
        case 0 if isinstance(holder, dict):
            holder[random.choice(NAMES)] = holder.pop(key)
        case 1 if isinstance(holder, dict):
            del holder[key]
        case 2 if isinstance(holder, list):
            holder.extend([holder[key]] * random.choice((1, 2, 2_000)))
        case 3:
            holder[key] = _nested(random.choice((5, 100, 260)), holder[key])
        case 4:
            holder[key] = random.choice(NAMES)
        case 5 if isinstance(holder, dict):
            holder[random.choice(NAMES)] = _some(random)
        case _:
            holder[key] = _some(random)


def _repeated(random: Random, request: Request) -> None:
    """A key of the document twice."""
    body = request.content()
    if isinstance(request.document, dict) and request.document and body.startswith(b"{"):
        key = random.choice(list(request.document))
        request.body = b"{" + json.dumps(key).encode() + b":" + json.dumps(_some(random)).encode() + b"," + body[1:]


def _some(random: Random) -> Any:
    """A copy: it may be changed further."""
    return deepcopy(random.choice(VALUES))


def _nested(depth: int, value: Any) -> Any:
    for _ in range(depth):
        value = [value]
    return value


def _places(document: Any) -> list[tuple[Any, Any]]:
    """Every place in which a value stands, and what holds it."""
    found: list[tuple[Any, Any]] = []
    waiting = [document]
    while waiting and len(found) < 500:
        holder = waiting.pop()
        keys = holder if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            found.append((holder, key))
            if isinstance(holder[key], dict | list):
                waiting.append(holder[key])
    return found


CHANGES: Sequence[Change] = (_method, _segment, _query, _header, _bytes, _value, _repeated)
WEIGHTS = (1, 3, 3, 3, 3, 8, 1)
