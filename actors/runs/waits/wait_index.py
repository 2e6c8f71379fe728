"""The waits of a shard by event name and by the value that an event must have: an event is looked up, not compared with
each wait."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson

from penstock.broker.records.event_waits import WaitRecord
from penstock.engine.run.kinds.correlation import NoValue, key_at, key_of

QUEUED_MAX = 32  # events for one wait that are in memory; later ones are read from the stream again
RECENT_MAX = 10_000


class FoundEvent(NamedTuple):
    """An event in the stream; `at` is the time at which it was stored, in s since the epoch. `body` is JSON."""

    seq: int
    at: float
    body: bytes


class OpenWait:
    """One wait, as long as its shard looks for its event.

    `past`: events up to this sequence have been looked at. `looking`: older events are being read for it, up to the
    sequence `until_seq`; `older` are those of them that count, `queue` newer ones. `overflown`: some are not in memory.
    """

    __slots__ = ("_mark", "live", "looking", "older", "overflown", "past", "queue", "record", "task", "until_seq")

    def __init__(self, record: WaitRecord, past: int = 0) -> None:
        self.record, self.past = record, past
        self.until_seq = 0
        self._mark: bytes | None = None
        self.live, self.looking, self.overflown = True, False, False
        self.older: deque[FoundEvent] = deque()
        self.queue: deque[FoundEvent] = deque()
        self.task: asyncio.Task[None] | None = None

    @property
    def mark(self) -> bytes:
        """What the wait is called in checkpoints; worked out once."""
        if self._mark is None:
            self._mark = self.record.mark
        return self._mark

    @property
    def busy(self) -> bool:
        """Whether an event may end the wait that was stored until now."""
        return self.looking or self.overflown or self.task is not None or bool(self.older) or bool(self.queue)

    def counts(self, event: FoundEvent) -> bool:
        """Whether the event was stored in time, and is new to the wait."""
        wait = self.record.wait
        in_time = wait.since <= event.at and (wait.until is None or event.at <= wait.until)
        return in_time and event.seq > self.past and event.seq not in wait.passed

    def add(self, event: FoundEvent, *, older: bool = False) -> None:
        """Take an event that counts. Without a condition the first one ends the wait."""
        events = self.older if older else self.queue
        if (events and not self.record.conditional) or (self.overflown and not older):
            return
        if older or len(events) < QUEUED_MAX:
            events.append(event)
        else:
            self.overflown = True

    def first(self) -> FoundEvent | None:
        """The next event to look at. Those that were read twice are left out."""
        for events in (self.older, self.queue):
            while events and events[0].seq <= self.past:
                events.popleft()
            if events:
                return events[0]
        return None


class EventWaitIndex:
    """Owned by the waits of a shard."""

    def __init__(self) -> None:
        self._waits: dict[str, dict[str, dict[bytes, dict[str, OpenWait]]]] = {}

    def add(self, waiting: OpenWait) -> None:
        event, field, value = _place(waiting.record)
        self._waits.setdefault(event, {}).setdefault(field, {}).setdefault(value, {})[waiting.record.key] = waiting

    def remove(self, waiting: OpenWait) -> None:
        """Remove a wait that is there, and what is empty without it."""
        event, field, value = _place(waiting.record)
        fields = self._waits[event]
        del fields[field][value][waiting.record.key]
        if not fields[field][value]:
            del fields[field][value]
        if not fields[field]:
            del fields[field]
        if not fields:
            del self._waits[event]

    def __contains__(self, event: str) -> bool:
        """Whether anything waits for events of this name."""
        return event in self._waits

    def found(self, event: str, body: bytes) -> list[OpenWait]:
        """The waits for an event of this name with this body; none for a body that is not JSON."""
        fields = self._waits.get(event)
        if fields is None:
            return []
        try:
            decoded = orjson.loads(body)
        except orjson.JSONDecodeError:
            return []
        return list(_found(fields, decoded))


def _found(fields: dict[str, dict[bytes, dict[str, OpenWait]]], body: Any) -> Iterator[OpenWait]:
    for field, values in fields.items():
        try:
            value = key_at(body, field) if field else b""
        except NoValue:
            continue
        yield from values.get(value, {}).values()


def _place(record: WaitRecord) -> tuple[str, str, bytes]:
    """Name, field and value; without a correlation the last two are empty, which no field is."""
    wait = record.wait
    if wait.correlate is None:
        return wait.event, "", b""
    return wait.event, wait.correlate.field, key_of(orjson.loads(bytes(wait.correlate.value)))


class RecentEvents:
    """Names and times of the events that were read last, without gaps since the time `since`."""

    def __init__(self, since: float) -> None:
        self._since = since
        self._events: deque[tuple[float, str]] = deque()

    def add(self, event: str, at: float) -> None:
        self._events.append((at, event))
        if len(self._events) > RECENT_MAX:
            self._since = max(self._since, self._events.popleft()[0])

    def has_none(self, event: str, since: float) -> bool:
        """Whether it is certain that no event of this name was stored at `since` or later and read already."""
        if since <= self._since:
            return False
        for at, name in reversed(self._events):
            if at < since:
                return True
            if name == event:
                return False
        return True
