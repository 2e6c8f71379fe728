"""The stream BATCHES: open batches of triggers that start one run for several events.

A batch is what is stored under the subject of its trigger's generation and its key. Each event is one message, with the
state of the batch after it, and expects the one before it: so several processes agree on what is in a batch. Its last
message closes it, and then it is removed as a whole. Of a debounce only the last event is kept. Where a batch may have
become due, the broker publishes a tick. So no process has a state of its own, and a key without a batch costs nothing.
"""

from __future__ import annotations

import re
from contextlib import aclosing
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from penstock.broker import names
from penstock.broker.nats.connection import Broker
from penstock.broker.nats.direct import DirectReader, Stored
from penstock.broker.nats.errors import ApiError, Code, Within
from penstock.broker.nats.headers import EXPECT_SEQ, MSG_ID, ROLLUP, ROLLUP_SUBJECT, SCHEDULE, SCHEDULE_TARGET
from penstock.broker.nats.publisher import Publisher, ack_seq
from penstock.broker.streams.schedules import Schedules, due_at
from penstock.engine.errors import Conflict
from penstock.engine.trigger.batching import BatchState

DEADLINE_S = 5.0
BEYOND_ALL = 1 << 30  # the broker lists the subjects behind so many, that is none, and says how many there are
STATE = re.compile(rb"\r\n%b: ?([^\r\n]+)\r\n" % names.BATCH_STATE.encode())


class OpenBatch(Struct, frozen=True):
    """A batch after its last message, which has the sequence `stored_seq` and was stored at `stored_at`, s since the
    epoch."""

    state: BatchState
    stored_seq: int
    stored_at: float

    @property
    def since(self) -> float:
        return self.state.since_when(self.stored_at)


class OpenBatches(Struct, frozen=True):
    """The open batches of a trigger: how many there are, how many events are stored of them, and the one whose newest
    or only event is oldest."""

    batches: int
    events: int
    oldest: OpenBatch


class TriggerBatches:
    """The stream; it is made when the first trigger needs it."""

    def __init__(self, broker: Broker, publisher: Publisher, reader: DirectReader) -> None:
        self._broker, self._publisher, self._reader = broker, publisher, reader

    async def make(self) -> None:
        """Create the stream, unless it is there."""
        events = (await self._broker.api(f"STREAM.INFO.{names.EVENTS}"))["config"]
        config = {
            "name": names.BATCHES,
            "subjects": [f"{names.BATCH_PREFIX}>"],
            "storage": "file",
            "num_replicas": events["num_replicas"],
            "allow_direct": True,
            "allow_rollup_hdrs": True,
            "allow_msg_schedules": True,
        }
        try:
            await self._broker.api(f"STREAM.CREATE.{names.BATCHES}", config)
        except ApiError as error:
            if error.err_code != Code.STREAM_EXISTS:
                raise

    async def find(self, generation: str, key: str) -> OpenBatch | None:
        """The batch of this key, None where there is none. Raises Unavailable."""
        found = await self._reader.one(names.BATCHES, names.batch_subject(generation, key))
        return None if found is None else OpenBatch(_state(found), found.seq, found.at)

    async def open(self, generation: str) -> OpenBatches | None:
        """The open batches of a trigger; None: there is none. Raises Unavailable."""
        of_all, mark = names.batch_subject(generation, "*"), names.batch_mark(generation)
        first = await self._reader.next(names.BATCHES, of_all, 1)
        while first is not None and first.subject == mark:  # it may be written again meanwhile
            first = await self._reader.next(names.BATCHES, of_all, first.seq + 1)
        if first is None:
            return None
        marks = await self._reader.count(names.BATCHES, mark)
        events = await self._reader.count(names.BATCHES, of_all) - marks
        only_total = {"subjects_filter": of_all, "offset": BEYOND_ALL}
        batches = int((await self._broker.api(f"STREAM.INFO.{names.BATCHES}", only_total))["total"]) - marks
        # Between two of these reads the last batch may have ended: then what was read first counts.
        return OpenBatches(max(1, batches), max(1, events), OpenBatch(_state(first), first.seq, first.at))

    async def events(self, generation: str, key: str) -> list[Stored]:
        """The events of the batch, in order."""
        found = await self._reader.subject(names.BATCHES, names.batch_subject(generation, key))
        return [one for one in found if not _state(one).closed]

    async def add(
        self,
        generation: str,
        key: str,
        state: BatchState,
        body: bytes,
        headers: dict[str, str],
        after: OpenBatch | None,
        *,
        only_last: bool,
    ) -> None:
        """Store an event as the next of the batch. Raises Conflict if `after` is not its last message any more,
        Unavailable (outcome unknown: look, and repeat it)."""
        more = {MSG_ID: f"{generation}.{state.seq}", **headers}
        if only_last:
            more[ROLLUP] = ROLLUP_SUBJECT
        await self._send(generation, key, state, body, more, after)

    async def close(self, generation: str, key: str, batch: OpenBatch) -> OpenBatch:
        """Store that the batch gets no more events. Raises as `add`."""
        state = msgspec.structs.replace(batch.state, closed=True)
        more = {MSG_ID: f"{generation}.{key}.{batch.stored_seq}.closed"}
        seq = await self._send(generation, key, state, b"", more, batch)
        return OpenBatch(state, seq, 0.0)

    async def remove(self, generation: str, key: str, batch: OpenBatch) -> None:
        """Forget a closed batch, with all its events and ticks. It can be repeated."""
        # First, while no other batch of this key can begin: it would rely on the schedule that is still there.
        await self._purge(names.batch_subject(generation, f"{key}.>"), batch.stored_seq)
        await self._purge(names.batch_subject(generation, key), batch.stored_seq)

    async def schedule(self, generation: str, key: str, at: float, kind: str) -> None:
        """Have a tick at this time (s since the epoch), unless one of this kind is scheduled already."""
        moment = datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        headers = {
            SCHEDULE: f"@at {moment}",
            SCHEDULE_TARGET: names.batch_tick(generation, key),
            EXPECT_SEQ: "0",
        }
        try:
            await self._sent(names.batch_schedule(generation, key, kind), b"{}", headers)
        except Conflict:
            return

    async def end_tick(self, generation: str, key: str, seq: int) -> None:
        """Forget the ticks up to this one."""
        await self._purge(names.batch_tick(generation, key), seq)

    async def repeat_overdue(self, generation: str, before: float) -> int:
        """Write those of the oldest schedules again that were due before this time: a broker without room publishes
        nothing, and does not try again. Returns how many."""
        schedules = Schedules(self._publisher, self._reader)
        async with aclosing(self._reader.pages(names.BATCHES, names.batch_schedule(generation, "*", "*"))) as pages:
            oldest: list[Stored] = await anext(pages, [])
        overdue = [one for one in oldest if (at := due_at(one)) is not None and at < before]
        return sum([await schedules.repeat(one) for one in overdue])

    async def ended_up_to(self, generation: str) -> int:
        """The place of the last event that is in a batch which has ended, in the events' own stream."""
        found = await self._reader.one(names.BATCHES, names.batch_mark(generation))
        return 0 if found is None else int(found.data)

    async def ended(self, generation: str, seq: int) -> None:
        """Record that a batch has ended whose last event has this place."""
        while True:
            found = await self._reader.one(names.BATCHES, names.batch_mark(generation))
            if found is not None and int(found.data) >= seq:
                return
            expected = {EXPECT_SEQ: str(0 if found is None else found.seq), ROLLUP: ROLLUP_SUBJECT}
            try:
                await self._sent(names.batch_mark(generation), b"%d" % seq, expected)
                return
            except Conflict:
                continue  # another batch has ended meanwhile

    async def forget(self, generation: str) -> None:
        """Remove all batches of a generation, whose consumer is gone."""
        everything = {"filter": names.batch_subject(generation, ">")}
        await self._broker.remove(f"STREAM.PURGE.{names.BATCHES}", everything)

    async def _send(
        self,
        generation: str,
        key: str,
        state: BatchState,
        body: bytes,
        headers: dict[str, str],
        after: OpenBatch | None,
    ) -> int:
        more = {
            names.BATCH_STATE: msgspec.json.encode(state).decode(),
            EXPECT_SEQ: str(0 if after is None else after.stored_seq),
        }
        return await self._sent(names.batch_subject(generation, key), body, {**headers, **more})

    async def _sent(self, subject: str, body: bytes, headers: dict[str, str]) -> int:
        self._broker.check_connected()
        sent = self._publisher.send(subject, body, headers, wait_if_full=False)
        async with Within(DEADLINE_S, "the broker gave no answer in time; whether the batch was changed is unknown"):
            return ack_seq(await sent)

    async def _purge(self, subject: str, seq: int) -> None:
        await self._broker.remove(f"STREAM.PURGE.{names.BATCHES}", {"filter": subject, "seq": seq + 1})


def _state(stored: Stored) -> BatchState:
    found = STATE.search(stored.headers)
    assert found is not None, stored.subject
    return _STATES.decode(found[1])


_STATES = msgspec.json.Decoder(BatchState)
