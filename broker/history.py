"""The history of runs: append events, read them back, follow them live, consume a partition of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from typing import Any, NamedTuple

from nats.aio.msg import Msg

from penstock.broker import names
from penstock.broker.batch import publish_batch
from penstock.broker.connection import ApiError, Broker
from penstock.broker.direct import DirectReader, Stored
from penstock.broker.publisher import Publisher, ack_seq
from penstock.broker.pull import Delivery, Pull, open_pull
from penstock.broker.tail import Tail, open_tail
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

    async def follow(self, run_id: str, after: int = 0) -> AsyncGenerator[Stored | None, None]:
        """The run's events after a sequence, then each new one as it is stored; None after every quiet 2 s. Ends never."""
        while True:
            with suppress(Unavailable):
                async with aclosing(self._follow_once(run_id, after)) as part:
                    async for stored in part:
                        if stored is not None:
                            after = stored.seq
                        yield stored
            await asyncio.sleep(FOLLOW_AGAIN_S)

    async def _follow_once(self, run_id: str, after: int) -> AsyncGenerator[Stored | None, None]:
        """Until something may be lost: the connection was, or the consumer, as a quiet time of twice the heartbeat shows."""
        async with self._ephemeral(run_id, after) as queue:
            quiet = 0
            while quiet < 2:
                try:
                    async with asyncio.timeout(FOLLOW_HEARTBEAT_S * 1.5):
                        msg = await queue.get()
                except TimeoutError:
                    quiet += 1
                    yield None
                    continue
                if msg is None:
                    return
                quiet = 0
                yield _stored(self._broker, msg) if msg.reply else None

    @asynccontextmanager
    async def _ephemeral(self, run_id: str, after: int) -> AsyncIterator[asyncio.Queue[Msg | None]]:
        """A consumer that pushes the run's events into the queue, and None after a reconnect; it goes with its subscription."""
        queue: asyncio.Queue[Msg | None] = asyncio.Queue()
        inbox = self._broker.new_inbox()
        subscription = await self._broker.subscribe(inbox, queue.put)
        config: dict[str, Any] = {
            "deliver_subject": inbox,
            "filter_subject": names.stored_subject(run_id),
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": after + 1,
            "ack_policy": "none",
            "mem_storage": True,
            "num_replicas": 1,
            "idle_heartbeat": FOLLOW_HEARTBEAT_S * 10**9,
            "inactive_threshold": 10 * 10**9,
        }

        async def reconnected() -> None:
            queue.put_nowait(None)

        self._broker.on_reconnect.append(reconnected)
        try:
            await self._broker.api(f"CONSUMER.CREATE.{names.HISTORY}", {"stream_name": names.HISTORY, "config": config})
            yield queue
        finally:
            self._broker.on_reconnect.remove(reconnected)
            if self._broker.connected:
                await subscription.unsubscribe()


def _stored(broker: Broker, msg: Msg) -> Stored:
    delivery = Delivery(broker, msg.subject, msg.reply, msg.data)
    return Stored(delivery.subject, delivery.seq, delivery.at, delivery.data)
