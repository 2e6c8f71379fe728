"""The EVENTS stream: events from outside of runs. Webhook calls and the instants of cron triggers are published
there."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from uuid import uuid4

import msgspec
from msgspec import Struct

from penstock.broker import names
from penstock.broker.nats.connection import Broker
from penstock.broker.nats.direct import DirectReader, Stored
from penstock.broker.nats.errors import Within
from penstock.broker.nats.headers import EXPECT_SEQ, MSG_ID, SCHEDULE, SCHEDULE_TARGET
from penstock.broker.nats.publisher import Publisher, ack_seq
from penstock.broker.nats.pull import Delivery
from penstock.broker.nats.tail import Tail, open_tail
from penstock.engine.errors import Conflict

PUBLISH_DEADLINE_S = 5.0
EVENT_ID, EVENT_HEADERS = (
    re.compile(rb"\r\n%b: ?([^\r\n]+)\r\n" % name.encode()) for name in (names.EVENT_ID, names.EVENT_HEADERS)
)
# Programs write this one, too, and in both cases.
TRACE_PARENT = re.compile(rb"\r\n%b: ?([^\r\n]+)\r\n" % names.TRACE_PARENT.encode(), re.IGNORECASE)


class Tick(Struct, frozen=True):
    """The body of a cron trigger's event: `at` is the instant, RFC 3339."""

    trigger: str
    generation: str
    at: str

    @property
    def instant(self) -> datetime:
        """The instant in UTC. Raises ValueError for text that is not a time."""
        return datetime.fromisoformat(self.at)


_TICKS = msgspec.json.Decoder(Tick)
_SENDER_HEADERS = msgspec.json.Decoder(dict[str, str])


class EventsTip(Struct, frozen=True):
    """The last sequence of the stream, the time at which it was stored (0: the stream is empty), and the broker's time;
    both in s since the epoch. A stream that was made again has another `created`."""

    seq: int
    at: float
    now: float
    created: str


class Events:
    """The EVENTS stream."""

    def __init__(self, broker: Broker, publisher: Publisher, reader: DirectReader) -> None:
        self._broker, self._publisher, self._reader = broker, publisher, reader

    async def publish(
        self,
        subject: str,
        body: bytes,
        event_id: str | None = None,
        sender_headers: Mapping[str, str] = {},
        by: str | None = None,
        trace: str | None = None,
    ) -> int:
        """Publish an event; it is stored when this returns. Raises Unavailable (outcome unknown).

        With an `event_id` (characters that a header can carry), a repeat is the same event for every trigger; a repeat
        within 2 min is not stored. `sender_headers` are recorded with the runs that the event starts. `by` is the
        name of the key with which it was sent, `trace` the `traceparent` of the sender's span.
        """
        headers = {MSG_ID: event_id or uuid4().hex}
        if event_id:
            headers[names.EVENT_ID] = event_id
        if by is not None:
            headers[names.EVENT_BY] = by
        if trace is not None:
            headers[names.TRACE_PARENT] = trace
        if sender_headers:
            headers[names.EVENT_HEADERS] = json.dumps(sender_headers)  # always ASCII
        return await self._send(subject, body, headers)

    async def find(self, subject: str, event_id: str, after: int) -> int:
        """The sequence of the event with this id under a literal subject, of those after `after`; 0 without one. Reads
        all of them."""
        wanted = event_id.encode()
        async for page in self._reader.pages(names.EVENTS, subject, after + 1):
            for one in page:
                if (found := EVENT_ID.search(one.headers)) and found[1].strip() == wanted:
                    return one.seq
        return 0

    async def last_seq(self) -> int:
        """The sequence of the last event until now."""
        return (await self.tip()).seq

    async def tip(self) -> EventsTip:
        """The end of the stream now."""
        info = await self._broker.api(f"STREAM.INFO.{names.EVENTS}")
        state = info["state"]
        seq = int(state["last_seq"])
        return EventsTip(seq, _time(state["last_ts"]) if seq else 0.0, _time(info["ts"]), str(info["created"]))

    def tail(self, after: int) -> AbstractAsyncContextManager[Tail]:
        """A reader of all that is stored after this sequence, for the time of the block."""
        return open_tail(self._broker, names.EVENTS, after)

    def stored(self, subject: str, from_seq: int) -> AsyncGenerator[list[Stored]]:
        """What is stored under a literal subject from a sequence on, a page at a time."""
        return self._reader.pages(names.EVENTS, subject, from_seq)

    async def first_since(self, subject: str, at: float) -> int:
        """A sequence before which nothing is stored under the subject at this time (s since the epoch) or later; 0:
        there is nothing at all. Raises Unavailable."""
        return await self._reader.first_since(names.EVENTS, subject, at)

    async def schedule(self, tick: Tick) -> bool:
        """Schedule the tick at its instant, at once if that is over. False: another tick is already scheduled.

        It has no message id: within 2 min the broker would refuse the same id again, also after it was withdrawn.
        """
        headers = {
            SCHEDULE: f"@at {tick.at}",
            SCHEDULE_TARGET: names.cron_target(tick.trigger),
            EXPECT_SEQ: "0",
        }
        try:
            await self._send(names.cron_subject(tick.trigger, tick.generation), msgspec.json.encode(tick), headers)
        except Conflict:
            return False
        return True

    async def scheduled(self, trigger: str, generation: str) -> Tick | None:
        """The scheduled tick of a trigger, or None."""
        found = await self._reader.one(names.EVENTS, names.cron_subject(trigger, generation))
        return None if found is None else decode_tick(found.data)

    async def withdraw(self, trigger: str, generation: str) -> None:
        """Remove the scheduled tick of a trigger, if any."""
        await self._broker.remove(f"STREAM.PURGE.{names.EVENTS}", {"filter": names.cron_subject(trigger, generation)})

    async def _send(self, subject: str, body: bytes, headers: dict[str, str]) -> int:
        self._broker.check_connected()
        sent = self._publisher.send(subject, body, headers, wait_if_full=False)
        async with Within(
            PUBLISH_DEADLINE_S, "the broker gave no answer in time; whether the event was stored is unknown"
        ):
            return ack_seq(await sent)


def _time(text: str) -> float:
    return datetime.fromisoformat(text[:26].rstrip("Z") + "+00:00").timestamp()


def decode_tick(body: bytes) -> Tick | None:
    """None for a body that is not a tick: anyone may publish events."""
    try:
        tick = _TICKS.decode(body)
        return tick if tick.instant.tzinfo is not None else None
    except (msgspec.MsgspecError, ValueError):
        return None


def text_of(instant: datetime) -> str:
    """The instant in whole seconds, as in a tick."""
    return instant.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def event_id(delivery: Delivery | Stored) -> str | None:
    """The id that a repeat of the event has in common with it; None without one."""
    found = EVENT_ID.search(delivery.headers)
    return found[1].decode(errors="replace").strip() if found else None


def trace_of(delivery: Delivery | Stored) -> str | None:
    """The sender's `traceparent` as it stands in the message; None without one."""
    found = TRACE_PARENT.search(delivery.headers)
    return found[1].decode(errors="replace").strip() if found else None


def headers_of(delivery: Delivery | Stored) -> dict[str, str]:
    """The headers that a webhook's sender gave; empty for other events, and for anything but a JSON object of
    strings."""
    found = EVENT_HEADERS.search(delivery.headers)
    try:
        return _SENDER_HEADERS.decode(found[1]) if found else {}
    except msgspec.MsgspecError:
        return {}
