"""The LIMITS stream: what runs ask of limits, and what the owners of limits decide.

It is made when somebody needs the first limit, so that nobody else pays for it. A limit belongs to the partition of
its id, as a run does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import Any, NamedTuple
from uuid import uuid4

from msgspec import Struct
from nats.aio.msg import Msg

from penstock.broker import message_ids, names
from penstock.broker.nats.connection import Broker
from penstock.broker.nats.consumers import ConsumerConfig, create_consumer
from penstock.broker.nats.direct import DirectReader, Stored
from penstock.broker.nats.errors import ApiError, Code
from penstock.broker.nats.headers import EXPECT_SEQ, MSG_ID
from penstock.broker.nats.publisher import Publisher, ack_seq
from penstock.broker.nats.pull import Delivery, Pull, open_pull
from penstock.config.limits import DEDUP_WINDOW_S, PARTITIONS
from penstock.config.process.crash_points import reached
from penstock.engine.errors import Conflict, Unavailable
from penstock.engine.limits.records import Decided, Released, Requested, encode

NS = 10**9
BATCH = 256
FORGET_AFTER_S = 30.0


class LimitsTip(Struct, frozen=True):
    """The end of the stream: its last sequence, and the broker's time in s since the epoch. A stream that was made
    again has another `created`."""

    created: str
    seq: int
    at: float


class Following(NamedTuple):
    """What is stored behind `tip` is delivered as long as `pull` lives."""

    tip: LimitsTip
    pull: Pull


class LimitLog:
    """The stream. Connection, publisher and reader belong to the caller."""

    def __init__(self, broker: Broker, publisher: Publisher, reader: DirectReader) -> None:
        self._broker, self._publisher, self._reader = broker, publisher, reader
        self._there = False
        self._making = asyncio.Lock()

    async def make(self) -> None:
        """Make the stream unless it is there, and notify all shards. Raises Unavailable."""
        async with self._making:
            if self._there:
                return
            history = (await self._broker.api(f"STREAM.INFO.{names.HISTORY}"))["config"]
            try:
                await self._broker.api(f"STREAM.CREATE.{names.LIMITS}", _config(int(history["num_replicas"])), 10)
            except ApiError as error:
                if error.err_code != Code.STREAM_EXISTS:
                    raise Unavailable(f"cannot make the stream {names.LIMITS}: {error}") from error
            reached("limits.made")
            await self._broker.publish(names.LIMITS_MADE, b"")
            self._there = True

    async def make_again(self) -> None:
        """As `make`, by one who saw that the stream is gone."""
        self._there = False
        await self.make()

    async def tip(self) -> LimitsTip | None:
        """The end of the stream now; None: there is none. Raises Unavailable."""
        try:
            info = await self._broker.api(f"STREAM.INFO.{names.LIMITS}")
        except ApiError as error:
            if error.err_code != Code.STREAM_NOT_FOUND:
                raise
            return None
        at = datetime.fromisoformat(info["ts"]).timestamp()
        return LimitsTip(str(info["created"]), int(info["state"]["last_seq"]), at)

    def when_made(self, notify: Callable[[], None]) -> AbstractAsyncContextManager[None]:
        """Call `notify` at about the time when somebody makes the stream, for the time of the block. A notification may
        be lost with the connection."""

        async def receive(_: Msg) -> None:
            notify()

        return self._broker.listening(names.LIMITS_MADE, receive)

    async def request(self, record: Requested) -> asyncio.Future[bytes]:
        """Ask for a slot. The future ends when that is stored. Raises Unavailable."""
        if not self._there:
            await self.make()
        limit_id = record.name.id
        headers = {MSG_ID: message_ids.of_slot_request(record.holder, limit_id)}
        return self._publisher.send(names.limit_ask_subject(limit_id), encode(record), headers)

    async def release(self, limit_id: str, record: Released) -> asyncio.Future[bytes]:
        """Give back a slot, or what was asked for. The future ends when that is stored.

        It has no message id: one that came before the request that it follows must not stop another one. Raises
        Unavailable.
        """
        if not self._there:
            await self.make()
        return self._publisher.send(names.limit_ask_subject(limit_id), encode(record))

    async def decide(self, decided: Decided, last_seq: int) -> int:
        """Store what the owner of a limit has decided, and return its sequence. Raises Conflict unless `last_seq` is
        the sequence of the last decision about this limit (0: there is none)."""
        mark, subject = uuid4().hex, names.limit_decision_subject(decided.name.id)
        try:
            return ack_seq(
                await self._publisher.send(subject, encode(decided), {MSG_ID: mark, EXPECT_SEQ: str(last_seq)})
            )
        except Conflict:
            found = await self._reader.one(names.LIMITS, subject)
            if found is None or mark.encode() not in found.headers:
                raise
            return found.seq  # it was this very decision, whose answer got lost

    async def not_asked(self, partitions: Collection[int]) -> set[int]:
        """Those of the partitions whose runs may not have asked for all their slots since the stream was made: one that
        was there before was deleted, or is not in a backup. Raises Unavailable."""
        found = await self._reader.last(names.LIMITS, [names.limits_asked_subject(number) for number in partitions])
        asked = {one.subject for one in found}
        return {number for number in partitions if names.limits_asked_subject(number) not in asked}

    async def note_asked(self, partitions: Collection[int]) -> None:
        """The runs of these partitions have asked for all their slots. Raises Unavailable."""
        for answer in [self._publisher.send(names.limits_asked_subject(number), b"") for number in partitions]:
            await answer

    def stored(self, partition: int, after: int) -> AsyncGenerator[list[Stored]]:
        """What is stored of all limits of a partition after a sequence, in order, a page at a time."""
        return self._reader.pages(names.LIMITS, names.limits_filter(partition), after + 1)

    @asynccontextmanager
    async def follow(
        self, partitions: Collection[int], take: Callable[[Delivery], None], lost: Callable[[], None]
    ) -> AsyncIterator[Following]:
        """Pass what is asked of the limits of these partitions from now on to `take`, for the time of the block.

        `lost` is called when something may not have arrived: then the caller begins again behind what was taken last,
        and nothing more is taken here. Raises Unavailable, also when there is no stream.
        """
        tip = await self.tip()
        if tip is None:
            self._there = False
            raise Unavailable(f"the stream {names.LIMITS} is not there")
        config = ConsumerConfig(
            stream=names.LIMITS,
            name=f"limits-{uuid4().hex}",
            filter_subjects=_filters(partitions),
            ack_policy="none",
            start_seq=tip.seq + 1,
            forget_after_s=FORGET_AFTER_S,
            in_memory=True,
        )
        await create_consumer(self._broker, config)
        count, begun = 0, False

        def receive(delivery: Delivery) -> None:
            nonlocal count
            if delivery.number != count + 1:  # what is behind a gap would hide it: the caller reads on behind the last
                lost()
                return
            count += 1
            take(delivery)

        async def begin() -> None:
            nonlocal begun
            if begun:
                lost()
            begun = True

        try:
            async with open_pull(self._broker, names.LIMITS, config.name, receive, batch=BATCH, before=begin) as pull:
                yield Following(tip, pull)
        finally:
            if self._broker.connected:
                await self._broker.publish(f"$JS.API.CONSUMER.DELETE.{names.LIMITS}.{config.name}", b"")

    async def purge(self, partition: int, below: int) -> int:
        """Remove all that is stored of a partition's limits before this sequence, and return how much that was. Raises
        Unavailable."""
        if below <= 1:  # the broker takes 0 for everything
            return 0
        return await self._broker.remove(
            f"STREAM.PURGE.{names.LIMITS}", {"filter": names.limits_filter(partition), "seq": below}
        )


def _filters(partitions: Collection[int]) -> tuple[str, ...]:
    """Filters for what is asked of the limits of these partitions; one for all of them is cheapest for the broker."""
    if len(partitions) == PARTITIONS:
        return (names.limit_asks_filter(),)
    return tuple(map(names.limit_asks_filter, sorted(partitions)))


def _config(replicas: int) -> dict[str, Any]:
    return {
        "name": names.LIMITS,
        "subjects": ["limit.>"],
        "retention": "limits",
        "storage": "file",
        "num_replicas": replicas,
        "duplicate_window": int(DEDUP_WINDOW_S * NS),
        "max_age": 0,
        "max_bytes": -1,
        "max_msgs_per_subject": -1,
        "allow_direct": True,
    }
