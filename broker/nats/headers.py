"""Headers that the broker reads or writes. Those of the service are in broker/names.py."""

from __future__ import annotations

MSG_ID = "Nats-Msg-Id"
ROLLUP = "Nats-Rollup"
ROLLUP_SUBJECT = "sub"  # the message replaces those before it under its subject
EXPECT_SEQ = "Nats-Expected-Last-Subject-Sequence"
TTL = "Nats-TTL"
KV_OPERATION = "KV-Operation"
SCHEDULE = "Nats-Schedule"
SCHEDULE_TARGET = "Nats-Schedule-Target"
SCHEDULE_NEXT = "Nats-Schedule-Next"
SCHEDULER = "Nats-Scheduler"

_EMPTY = f"\r\n{EXPECT_SEQ}: 0\r\n".encode()  # a whole line: a value of another header cannot pass for it


def into_empty(headers: bytes) -> bool:
    """Whether a stored message with these raw headers was the first one under its subject: else the broker had refused
    it."""
    return _EMPTY in headers
