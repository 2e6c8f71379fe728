"""Headers that the broker reads or writes. Those of the service are in broker/names.py."""

from __future__ import annotations

import re

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

# Whole lines: a value of another header cannot pass for them.
_EXPECTED = re.compile(rf"\r\n{EXPECT_SEQ}: (\d+)\r\n".encode())
_EMPTY = f"\r\n{EXPECT_SEQ}: 0\r\n".encode()


def into_empty(headers: bytes) -> bool:
    """Whether a stored message with these raw headers was the first one under its subject: else the broker had refused
    it."""
    return _EMPTY in headers


def stored_behind(headers: bytes) -> int:
    """The sequence of the message behind which a stored one with these raw headers is under its subject, if its sender
    has said so; 0: it has not, or there was none. Where the name is there more than once, the broker may have gone by
    another line, or the sequence is that of another subject, which a header with a longer name gives."""
    found = _EXPECTED.search(headers) if headers.count(EXPECT_SEQ.encode()) == 1 else None
    return 0 if found is None else int(found[1])
