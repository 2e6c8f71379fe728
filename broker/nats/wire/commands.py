"""Messages as they are written to the broker."""

from __future__ import annotations

from collections.abc import Mapping

HEADERS_BESIDE = len("NATS/1.0\r\n\r\n")
HEADER_BESIDE = len(": \r\n")


def message_bytes(data: bytes, headers: Mapping[str, str] | None) -> int:
    """The size of a message by the broker's rule: its body and its encoded headers, in bytes."""
    if not headers:
        return len(data)
    return (
        len(data)
        + HEADERS_BESIDE
        + sum(len(name) + len(value.encode()) + HEADER_BESIDE for name, value in headers.items())
    )


def publish_command(subject: str, reply: str, data: bytes, headers: Mapping[str, str]) -> bytes | None:
    """The bytes by which a message is published; None if they would be ambiguous: a line break in a header, a space in
    the subject, or none."""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if (
        lines.count("\n") != len(headers)
        or lines.count("\r") != len(headers)
        or not subject
        or " " in subject
        or not subject.isprintable()
    ):
        return None
    if not headers:
        return b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), reply.encode(), len(data), data)
    head = f"NATS/1.0\r\n{lines}\r\n".encode()
    return b"HPUB %b %b %d %d\r\n%b%b\r\n" % (
        subject.encode(),
        reply.encode(),
        len(head),
        len(head) + len(data),
        head,
        data,
    )
