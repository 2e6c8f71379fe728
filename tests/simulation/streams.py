"""One stream of the simulated broker: what is stored, by sequence and by subject, with expectations, repeats, limits
and purges.

The order of the checks and the words of the refusals are those of nats-server (test_fidelity.py).
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from penstock.broker.nats.errors import Code
from penstock.broker.nats.headers import EXPECT_SEQ, MSG_ID


class Message:
    """`at` is the broker's time of storing it to the microsecond, which is what every reader must make of `at_ns`."""

    __slots__ = ("_head", "at", "at_ns", "data", "headers", "seq", "stream", "subject")

    def __init__(self, stream: str, seq: int, subject: str, data: bytes, headers: Mapping[str, str], at: float) -> None:
        self.stream, self.seq, self.subject, self.data, self.headers = stream, seq, subject, data, headers
        self.at_ns = int(at * 1e6) * 1000 + seq % 1000
        self.at = self.at_ns // 1000 / 1e6
        self._head: bytes | None = None

    @property
    def own_headers(self) -> bytes:
        """As they stand on the wire; none: nothing."""
        lines = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
        return f"NATS/1.0\r\n{lines}\r\n".encode() if lines else b""

    def head(self) -> bytes:
        """The headers with which a direct read answers, without their last lines."""
        if self._head is None:
            lines = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
            place = f"Nats-Stream: {self.stream}\r\nNats-Subject: {self.subject}\r\nNats-Sequence: {self.seq}\r\n"
            self._head = f"NATS/1.0\r\n{lines}{place}Nats-Time-Stamp: {stamp(self.at_ns)}\r\n".encode()
        return self._head


class Refused(NamedTuple):
    """The broker's error object."""

    code: int
    err_code: int
    description: str

    def body(self) -> dict[str, object]:
        return {"code": self.code, "err_code": self.err_code, "description": self.description}


class Stored(NamedTuple):
    seq: int
    duplicate: bool


class Stream:
    """`per_subject` bounds the messages of one subject (0: no bound); `window_s` is how long a repeat is known by its
    id."""

    def __init__(self, name: str, window_s: float, per_subject: int = 0, *, lasting: bool = True) -> None:
        """One that is not `lasting` is in the broker's memory, and goes with it."""
        self.name, self.window_s, self.per_subject, self.lasting = name, window_s, per_subject, lasting
        self.messages: dict[int, Message] = {}
        self.subjects: dict[str, list[int]] = {}
        self.last_seq = self.last_ns = 0
        self._ids: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def problem(self, subject: str, headers: Mapping[str, str]) -> Refused | None:
        """Expectations come before ids."""
        expected = headers.get(EXPECT_SEQ)
        if expected is None:
            return None
        seqs = self.subjects.get(subject)
        last = seqs[-1] if seqs else 0
        return None if int(expected) == last else Refused(400, Code.WRONG_LAST_SEQUENCE, f"wrong last sequence: {last}")

    def known(self, headers: Mapping[str, str], now: float) -> int | None:
        """The sequence under which a message with this id was stored, within the window."""
        while self._ids and now - next(iter(self._ids.values()))[1] >= self.window_s:
            self._ids.popitem(last=False)
        found = self._ids.get(headers.get(MSG_ID, ""))
        return None if found is None else found[0]

    def store(self, subject: str, data: bytes, headers: Mapping[str, str], now: float) -> Message:
        self.last_seq += 1
        message = self.messages[self.last_seq] = Message(self.name, self.last_seq, subject, data, headers, now)
        self.last_ns = message.at_ns
        seqs = self.subjects.setdefault(subject, [])
        seqs.append(self.last_seq)
        if self.per_subject and len(seqs) > self.per_subject:
            del self.messages[seqs.pop(0)]
        if MSG_ID in headers:
            self._ids[headers[MSG_ID]] = (self.last_seq, now)
        return message

    def begin_again(self, now: float) -> None:
        """The broker has started on what is stored: it knows the ids of that only, and not those of what was
        removed."""
        kept = (one for one in self.messages.values() if MSG_ID in one.headers and now - one.at < self.window_s)
        self._ids = OrderedDict((one.headers[MSG_ID], (one.seq, one.at)) for one in kept)

    def last(self, subject: str) -> Message | None:
        seqs = self.subjects.get(subject)
        return self.messages[seqs[-1]] if seqs else None

    def last_of(self, subjects: Iterable[str]) -> list[Message]:
        """The last message of each of these subjects, and of each subject that a filter among them matches, in
        order."""
        found: set[str] = set()
        for one in subjects:
            found.update((one,) if is_literal(one) else (known for known in self.subjects if matches(one, known)))
        return sorted(filter(None, map(self.last, found)), key=lambda message: message.seq)

    def matching(self, subject: str, from_seq: int = 1) -> list[Message]:
        """What is stored under a literal subject or a filter from a sequence on, in order."""
        seqs = self.subjects.get(subject, []) if is_literal(subject) else sorted(self._matching(subject))
        return [self.messages[seq] for seq in seqs[bisect_left(seqs, from_seq) :]]

    def remove(self, seq: int) -> Message:
        message = self.messages.pop(seq)
        seqs = self.subjects[message.subject]
        seqs.remove(seq)
        if not seqs:
            del self.subjects[message.subject]
        return message

    def purge(self, subject: str, before_seq: int | None = None) -> list[int]:
        gone = [message.seq for message in self.matching(subject) if before_seq is None or message.seq < before_seq]
        for seq in gone:
            self.remove(seq)
        return gone

    def _matching(self, pattern: str) -> Iterator[int]:
        for subject, seqs in self.subjects.items():
            if matches(pattern, subject):
                yield from seqs


def is_literal(subject: str) -> bool:
    return not ("*" in subject or subject.endswith(">"))


def matches(pattern: str, subject: str) -> bool:
    if pattern.endswith(".>") and "*" not in pattern:
        return subject.startswith(pattern[:-1])
    ours, theirs = pattern.split("."), subject.split(".")
    for at, part in enumerate(ours):
        if part == ">":
            return len(theirs) > at
        if at >= len(theirs) or part not in ("*", theirs[at]):
            return False
    return len(ours) == len(theirs)


def stamp(at_ns: int) -> str:
    """RFC 3339 with nanoseconds, as the broker writes it."""
    second, rest_ns = divmod(at_ns, 10**9)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)) + f".{rest_ns:09d}Z"


def first_known(stream: Stream, all_headers: Iterable[Mapping[str, str]], now: float) -> bool:
    return any(stream.known(headers, now) is not None for headers in all_headers)
