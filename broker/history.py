"""The history of runs: append events, read them back, follow them live, consume a partition of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

from penstock.broker import names
from penstock.broker.batch import publish_batch
from penstock.broker.connection import ApiError, Broker
from penstock.broker.direct import DirectReader, Stored
from penstock.broker.publisher import Publisher, ack_seq
from penstock.broker.pull import Delivery, Pull, open_pull
from penstock.broker.tail import Tail, open_tail
from penstock.broker.watch import Rings, watch
from penstock.engine.errors import Unavailable
from penstock.engine.events import Event, encode

PUBLISH_DEADLINE_S = 5.0
FOLLOW_HEARTBEAT_S = 2
FOLLOW_AGAIN_S = 0.1
MESSAGE_NOT_FOUND = 10037


class Tip(NamedTuple):
    """`created` tells this stream from any other of its name; `seq` is its last sequence."""

    created: str
    seq: int


class History:
    """A small face over the WORKFLOW_HISTORY stream. It owns nothing: connection, publisher and reader are the caller's."""

    def __init__(self, broker: Broker, publisher: Publisher, reader: DirectReader) -> None:
        self._broker, self._publisher, self._reader = broker, publisher, reader

    def send(self, event: Event, message_id: str | None = None) -> asyncio.Future[bytes]:
        """Append without waiting; the future ends when the event is stored. A repeat within 5 s is stored once."""
        headers = {names.MSG_ID: message_id or names.message_id(event)}
        return self._publisher.send(names.history_subject(event.run_id), encode(event), headers)

    async def append(self, event: Event, *, expect_seq: int | None = None) -> int:
        """Publish `event` to its run's history and return the stream sequence.

        A duplicate within the 5 s window returns the first sequence. Raises Conflict if `expect_seq` (the run's last sequence,
        0: none) is stale, perhaps by this very event whose answer got lost: the broker looks at it before ids. Raises
        Unavailable if no answer came in 5 s (outcome unknown: retry with the same event).
        """
        if not self._broker.connected:
            raise Unavailable("broker: not connected")
        headers = {names.MSG_ID: names.message_id(event)}
        if expect_seq is not None:
            headers = {names.EXPECT_SEQ: str(expect_seq)}
        sent = self._publisher.send(names.history_subject(event.run_id), encode(event), headers)
        try:
            async with asyncio.timeout(PUBLISH_DEADLINE_S):
                return ack_seq(await sent)
        except TimeoutError as error:
            raise Unavailable("the broker gave no answer in time; whether the event was stored is unknown") from error

    async def append_all(self, events: Sequence[Event]) -> None:
        """Append up to 1,000 events of any runs, all or none. Raises as `publish_batch`."""
        await publish_batch(self._broker, [(names.history_subject(e.run_id), encode(e), names.message_id(e)) for e in events])

    async def read(self, run_id: str, after: int = 0) -> list[Stored]:
        """The run's stored events after a sequence, in order. An unknown run has none."""
        return await self._reader.subject(names.HISTORY, names.stored_subject(run_id), after + 1)

    async def remove(self, run_id: str) -> None:
        """Delete the run's whole history, for good."""
        await self._broker.api(f"STREAM.PURGE.{names.HISTORY}", {"filter": names.stored_subject(run_id)})

    async def last_seq(self) -> int:
        """The stream's last sequence now, over all runs."""
        return (await self.tip()).seq

    async def tip(self) -> Tip:
        """Which stream this is, and how far it goes now."""
        info = await self._broker.api(f"STREAM.INFO.{names.HISTORY}")
        return Tip(info["created"], int(info["state"]["last_seq"]))

    async def seq_after(self, seq: int) -> int | None:
        """The sequence of the first message that is stored after `seq`; None: there is none, or it was removed."""
        try:
            found = await self._broker.api(f"STREAM.MSG.GET.{names.HISTORY}", {"seq": seq + 1, "next_by_subj": ">"})
        except ApiError as error:
            if error.err_code != MESSAGE_NOT_FOUND:
                raise
            return None
        return int(found["message"]["seq"])

    async def reset(self, partition: int) -> None:
        """Have everything of the partition that is not acknowledged delivered again, at once and in order."""
        await self._broker.api(f"CONSUMER.RESET.{names.HISTORY}.{names.engine_consumer(partition)}")

    def consume(
        self,
        partition: int,
        take: Callable[[Delivery], None],
        *,
        batch: int,
        room: Callable[[], int],
        before: Callable[[], Awaitable[None]],
    ) -> AbstractAsyncContextManager[Pull]:
        """Deliveries of one partition, for the time of the block. Acknowledging one acknowledges all before it.

        `before` is awaited at the beginning and again whenever deliveries may have been lost on the way (a reconnect).
        """
        consumer = names.engine_consumer(partition)
        return open_pull(self._broker, names.HISTORY, consumer, take, batch=batch, room=room, before=before)

    def tail(self, after: int) -> AbstractAsyncContextManager[Tail]:
        """Everything that the stream holds after a sequence and what comes, for the time of the block.

        Timers are among it, under subjects of their own: so the sequence of the last delivery says how far the reader is.
        """
        return open_tail(self._broker, names.HISTORY, after)

    def follow(self, run_id: str, after: int = 0, rings: Rings | None = None) -> AsyncGenerator[Stored | None, None]:
        """The run's events after a sequence, then each new one as it is stored. Ends never.

        None when there is nothing more for the moment: once the past has been read, and after every quiet 2 s. With `rings`,
        events come when it says so of one of them, or after the quiet time: who waits for the end sleeps through the rest.
        """
        return watch(self._broker, self._reader, run_id, after, rings)
