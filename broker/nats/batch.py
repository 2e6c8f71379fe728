"""Atomic batches: all messages for one stream are stored, or none.

A batch of any size costs the broker 2 ms, and it accepts 50 at once from all clients together. So small batches that
are requested at the same time are merged into one (`Batches.join`), and each process has only a few in flight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple
from uuid import uuid4

import orjson
from tenacity import AsyncRetrying, retry_if_exception, stop_after_delay, wait_random_exponential

from penstock.broker.nats.connection import Broker
from penstock.broker.nats.errors import Code, translated
from penstock.broker.nats.headers import MSG_ID
from penstock.config.limits import BATCH_BYTES_MAX, BULK_RUNS_MAX
from penstock.config.process.background import report, start
from penstock.engine.errors import Full, NotFound, PenstockError, Unavailable

BATCH_ID = "Nats-Batch-Id"
BATCH_SEQUENCE = "Nats-Batch-Sequence"
BATCH_COMMIT = "Nats-Batch-Commit"
COMMIT_TIMEOUT_S = 2.0
ON_THEIR_WAY_MAX = 4


class Message(NamedTuple):
    """One message of a batch. The ids of a batch always belong together: a repeat of one is a repeat of all."""

    subject: str
    data: bytes
    id: str
    headers: Mapping[str, str] = {}


def _may_pass(error: BaseException) -> bool:
    """Whether a retry soon may succeed; a full storage will still be full."""
    return isinstance(error, Unavailable) and not isinstance(error, Full)


_AGAIN = AsyncRetrying(
    retry=retry_if_exception(_may_pass), wait=wait_random_exponential(0.01, 0.2), stop=stop_after_delay(5), reraise=True
)


class _Joined(NamedTuple):
    """The messages of one caller, which are stored together; the future has the result or the error."""

    messages: Sequence[Message]
    future: asyncio.Future[int]


class Batches:
    """Owned by whoever publishes batches, as long as its connection lives."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._gate = asyncio.Semaphore(ON_THEIR_WAY_MAX)
        self._waiting: list[_Joined] = []
        self._task: asyncio.Task[None] | None = None

    async def publish(self, messages: Sequence[Message]) -> int:
        """`publish_batch`, with a limit on the number of batches in flight."""
        async with self._gate:
            return await publish_batch(self._broker, messages)

    async def join(self, messages: Sequence[Message]) -> int:
        """Store these few messages, all or none, in a batch with messages of other callers. Returns the sequence of
        their last.

        Raises as `publish_batch`, for these messages alone. Their ids must be new: an id that was used before would
        prevent the others' messages from being stored.
        """
        joined = _Joined(messages, asyncio.get_running_loop().create_future())
        self._waiting.append(joined)
        if self._task is None:
            self._task = start(self._work(), name="batches")
        return await joined.future

    async def _work(self) -> None:
        try:
            while self._waiting:
                await self._store(self._next())
        finally:
            self._task = None

    async def _store(self, group: Sequence[_Joined]) -> None:
        try:
            seq = await self.publish(list(chain.from_iterable(joined.messages for joined in group)))
        except Unavailable as error:
            _end(group, error)
        except PenstockError as error:
            if len(group) == 1:
                _end(group, error)
            for joined in group if len(group) > 1 else ():  # one of them is at fault, and only that one gets the error
                await self._store([joined])
        except Exception as error:  # else all callers would wait for ever
            report("batches", error)
            _end(group, error)
        else:
            _succeed(group, seq)

    def _next(self) -> list[_Joined]:
        """As many of the waiting callers' messages as fit into one batch, at least one caller's."""
        count = size = taken = 0
        for joined in self._waiting:
            count, size = count + len(joined.messages), size + sum(len(message.data) for message in joined.messages)
            if taken and (count > BULK_RUNS_MAX or size > BATCH_BYTES_MAX):
                break
            taken += 1
        group, self._waiting = self._waiting[:taken], self._waiting[taken:]
        return group


def _end(group: Sequence[_Joined], error: Exception) -> None:
    for joined in group:
        if not joined.future.done():  # else its caller was cancelled
            joined.future.set_exception(error)


def _succeed(group: Sequence[_Joined], last_seq: int) -> None:
    """Give each caller its last sequence: the messages of a batch have consecutive sequences."""
    for joined in reversed(group):
        if not joined.future.done():
            joined.future.set_result(last_seq)
        last_seq = max(0, last_seq - len(joined.messages))


async def publish_batch(broker: Broker, messages: Sequence[Message]) -> int:
    """Store up to 1,000 messages of one stream, all or none. Returns the sequence of the last; 0 for a repeat of a
    stored batch.

    A batch whose outcome is unknown is sent again with the same message ids, so it is stored once. Raises Unavailable
    when the broker gives no answer for 5 s (outcome unknown), Full at once, Conflict when an expectation in the headers
    is stale, perhaps because of this same batch whose answer was lost.
    """
    try:
        return await _publish_once(broker, messages)
    except Full:
        raise
    except Unavailable:
        return await _AGAIN(_publish_once, broker, messages)


async def _publish_once(broker: Broker, messages: Sequence[Message]) -> int:
    batch = uuid4().hex
    broker.check_connected()
    for number, message in enumerate(messages[:-1], start=1):
        await broker.publish(message.subject, message.data, headers=_headers(batch, number, message))
    last = {**_headers(batch, len(messages), messages[-1]), BATCH_COMMIT: "1"}
    answer = await _commit(broker, messages[-1].subject, messages[-1].data, last)
    if "error" in answer:
        _raise(answer["error"])
        return 0
    return int(str(answer["seq"]))


async def _commit(broker: Broker, subject: str, data: bytes, headers: dict[str, str]) -> dict[str, object]:
    try:
        reply = await broker.request(subject, data, COMMIT_TIMEOUT_S, headers)
    except NotFound as error:
        raise Unavailable("broker: no stream stores the subjects of this batch") from error
    answer: dict[str, object] = orjson.loads(reply.data)
    return answer


def _headers(batch: str, number: int, message: Message) -> dict[str, str]:
    return {BATCH_ID: batch, BATCH_SEQUENCE: str(number), MSG_ID: message.id, **message.headers}


def _raise(error: object) -> None:
    """A duplicate id means that this same batch was stored before: its ids always belong together."""
    assert isinstance(error, dict)
    if error.get("err_code") == Code.DUPLICATE_IN_BATCH:
        return
    if error.get("err_code") == Code.BATCH_INCOMPLETE:
        raise Unavailable("broker: a batch was cut short")
    raise translated(error)
