"""Atomic batches: all messages for one stream are stored, or none.

A batch of any size costs the broker 2 ms, and it accepts 50 at once from all clients together. So small batches that
are requested at the same time are merged into one (`Batches.join`), and each process has only a few in flight.
"""

from __future__ import annotations

import asyncio
import math
import time
from base64 import b64decode
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple
from uuid import uuid4

import orjson
from tenacity import AsyncRetrying, retry_if_exception, stop_after_delay, wait_random_exponential

from penstock.broker.nats.connection import Broker
from penstock.broker.nats.errors import ApiError, Code, translated
from penstock.broker.nats.headers import MSG_ID
from penstock.broker.nats.publisher import Publisher
from penstock.config.limits import BATCH_BYTES_MAX, BULK_RUNS_MAX, MIB
from penstock.config.process.background import report, start
from penstock.engine.errors import Conflict, Full, NotFound, PenstockError, Unavailable

BATCH_ID = "Nats-Batch-Id"
BATCH_SEQUENCE = "Nats-Batch-Sequence"
BATCH_COMMIT = "Nats-Batch-Commit"
COMMIT_TIMEOUT_S = 2.0
ON_THEIR_WAY_MAX = 4
SEQ_NEVER = 2**63 - 1
# Room that is left for what others write meanwhile: this share of the storage, and no more than so many bytes.
SPARE_SHARE, SPARE_BYTES_MAX = 64, 16 * MIB
AMPLE_BYTES, AMPLE_S = 1024 * MIB, 1.0  # with so much room, it is asked for again after so many s
OVERHEAD_BYTES = 512  # of each stored message: ids, and what the broker adds
GROUP_MIN = 4  # fewer are stored sooner one by one
GROUP_MAX = 500


class Message(NamedTuple):
    """One message of a batch. The ids of a batch always belong together: a repeat of one is a repeat of all."""

    subject: str
    data: bytes
    id: str
    headers: Mapping[str, str] = {}


class IncompleteBatch(Unavailable):
    """The broker has stored a part of a batch: it became full meanwhile. To send the batch again does not store the
    rest."""


def _may_pass(error: BaseException) -> bool:
    """Whether a retry soon may succeed; a full storage will still be full."""
    return isinstance(error, Unavailable) and not isinstance(error, Full | IncompleteBatch)


_AGAIN = AsyncRetrying(
    retry=retry_if_exception(_may_pass), wait=wait_random_exponential(0.01, 0.2), stop=stop_after_delay(5), reraise=True
)


class _Joined(NamedTuple):
    """The messages of one caller, which are stored together; the future has the result or the error."""

    messages: Sequence[Message]
    future: asyncio.Future[int]


class Room:
    """What the broker's storage still takes, as far as the broker says. Owned by `Batches`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._ample_until = 0.0

    async def check(self, messages: Sequence[Message]) -> None:
        """Raises Full if these messages may not all find room, Unavailable."""
        if time.monotonic() < self._ample_until:
            return
        info = await self._broker.api("INFO")
        most = self._limit(info)
        if most is None:
            self._ample_until = math.inf
            return
        left = most - info["storage"]
        if left < _stored_bytes(messages) + min(SPARE_BYTES_MAX, most // SPARE_SHARE):
            raise Full("the broker's storage is full, nothing was stored (insufficient resources)")
        if left > AMPLE_BYTES:
            self._ample_until = time.monotonic() + AMPLE_S

    def _limit(self, info: dict[str, Any]) -> int | None:
        """None: not known. The embedded broker's limit is the server's, which its account does not show."""
        account = int(info["limits"]["max_storage"])
        return account if account > 0 else self._broker.store_bytes_max


def _stored_bytes(messages: Sequence[Message]) -> int:
    return sum(len(message.data) + len(message.subject) + OVERHEAD_BYTES for message in messages)


class Batches:
    """Owned by whoever publishes batches, as long as its connection lives."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self._room = broker, Room(broker)
        self._gate = asyncio.Semaphore(ON_THEIR_WAY_MAX)
        self._waiting: list[_Joined] = []
        self._task: asyncio.Task[None] | None = None

    async def publish(self, messages: Sequence[Message]) -> int:
        """`publish_batch`, if there is room, with a limit on the number of batches in flight."""
        async with self._gate:
            return await publish_batch(self._broker, messages, self._room)

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


class _Grouped(NamedTuple):
    message: Message
    future: asyncio.Future[bytes]


class Groups:
    """Stores single messages of one stream in atomic batches, one after the other: where the broker syncs each write to
    the disk, it syncs a batch once. What is sent while one is on its way is the next one.

    Owned by whoever owns the publisher. The stream must accept atomic batches; else all are stored one by one."""

    def __init__(self, broker: Broker, publisher: Publisher) -> None:
        self._broker, self._publisher = broker, publisher
        self._waiting: list[_Grouped] = []
        self._task: asyncio.Task[None] | None = None

    def send(self, message: Message) -> asyncio.Future[bytes]:
        """As `Publisher.send`, of a small message; the answer may be empty."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Grouped(message, future))
        if self._task is None:
            self._task = start(self._work(), name="groups")
        return future

    async def _work(self) -> None:
        try:
            while self._waiting:
                group, self._waiting = self._waiting[:GROUP_MAX], self._waiting[GROUP_MAX:]
                group = [one for one in group if not one.future.done()]  # else its caller was cancelled
                if len(group) >= GROUP_MIN and await try_batch(self._broker, [one.message for one in group]):
                    _answer(group)
                else:  # one may be a repeat, for which the broker refuses all: alone it is none
                    self._send_singly(group)
        finally:
            self._task = None

    def _send_singly(self, group: Sequence[_Grouped]) -> None:
        for message, future in group:
            if not future.done():
                sent = self._publisher.send(message.subject, message.data, {MSG_ID: message.id, **message.headers})
                _follow(sent, future)


def _answer(group: Sequence[_Grouped]) -> None:
    for one in group:
        if not one.future.done():
            one.future.set_result(b"")


def _follow(sent: asyncio.Future[bytes], future: asyncio.Future[bytes]) -> None:
    """Let `future` end as `sent` does, and cancel that if it is cancelled."""

    def ended(_: asyncio.Future[bytes]) -> None:
        if future.done():
            return
        if sent.cancelled():
            future.cancel()
        elif (error := sent.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(sent.result())

    sent.add_done_callback(ended)
    future.add_done_callback(lambda _: sent.cancel())


async def publish_batch(broker: Broker, messages: Sequence[Message], room: Room | None = None) -> int:
    """Store up to 1,000 messages of one stream, all or none. Returns the sequence of the last; 0 for a repeat of a
    stored batch.

    A batch whose outcome is unknown is sent again with the same message ids, so it is stored once. Raises Unavailable
    when the broker gives no answer for 5 s (outcome unknown), or has stopped in the middle of a batch; Full at once;
    Conflict when an expectation in the headers is stale, perhaps because of this same batch whose answer was lost.
    """
    try:
        return await _publish_once(broker, messages, room)
    except (Full, IncompleteBatch):
        raise
    except Unavailable:
        return await _AGAIN(_publish_once, broker, messages, room)


async def _publish_once(broker: Broker, messages: Sequence[Message], room: Room | None) -> int:
    batch = uuid4().hex
    broker.check_connected()
    if room is not None:
        await room.check(messages)
    for number, message in enumerate(messages[:-1], start=1):
        await broker.publish(message.subject, message.data, headers=_headers(batch, number, message))
    last = {**_headers(batch, len(messages), messages[-1]), BATCH_COMMIT: "1"}
    answer = await _commit(broker, messages[-1].subject, messages[-1].data, last)
    if "error" in answer:
        await _refused(broker, answer, batch)
        return 0
    return int(str(answer["seq"]))


async def try_batch(broker: Broker, messages: Sequence[Message]) -> bool:
    """Whether these messages are stored, all of them, by one try; False: refused, or unknown. Each may be sent again
    alone."""
    batch = uuid4().hex
    try:
        for number, message in enumerate(messages[:-1], start=1):
            await broker.publish(message.subject, message.data, headers=_headers(batch, number, message))
        last = {**_headers(batch, len(messages), messages[-1]), BATCH_COMMIT: "1"}
        answer = await _commit(broker, messages[-1].subject, messages[-1].data, last)
    except PenstockError:
        return False
    return "error" not in answer


async def _commit(broker: Broker, subject: str, data: bytes, headers: dict[str, str]) -> dict[str, Any]:
    try:
        reply = await broker.request(subject, data, COMMIT_TIMEOUT_S, headers)
    except NotFound as error:
        raise Unavailable("broker: no stream stores the subjects of this batch") from error
    answer: dict[str, Any] = orjson.loads(reply.data)
    return answer


def _headers(batch: str, number: int, message: Message) -> dict[str, str]:
    return {BATCH_ID: batch, BATCH_SEQUENCE: str(number), MSG_ID: message.id, **message.headers}


async def _refused(broker: Broker, answer: dict[str, Any], batch: str) -> None:
    """Raise what a refusal means. A duplicate id means that this same batch was stored before: its ids always belong
    together."""
    code, error = answer["error"].get("err_code"), translated(answer["error"])
    if code == Code.BATCH_INCOMPLETE:
        raise Unavailable("broker: a batch was cut short")
    if isinstance(error, Full) and await _is_stored_in_part(broker, answer["stream"], batch):
        raise IncompleteBatch("broker: its storage became full when a part of a batch was stored") from error
    if code == Code.DUPLICATE_IN_BATCH or isinstance(error, Conflict):
        await _check_whole(broker, answer["stream"])
    if code != Code.DUPLICATE_IN_BATCH:
        raise error


async def _check_whole(broker: Broker, stream: str) -> None:
    """Raises Unavailable if the stream has stopped at a failed write, perhaps in the middle of a batch: then what it
    holds, and what it refuses, counts only when the broker has been started again. The removal of something that cannot
    exist changes nothing, and is refused with the error that stopped the stream."""
    await broker.remove(f"STREAM.MSG.DELETE.{stream}", {"seq": SEQ_NEVER, "no_erase": True})


async def _is_stored_in_part(broker: Broker, stream: str, batch: str) -> bool:
    """Whether the stream ends with a message of this batch, which was refused."""
    state = (await broker.api(f"STREAM.INFO.{stream}"))["state"]
    try:
        found = await broker.api(f"STREAM.MSG.GET.{stream}", {"seq": state["last_seq"]})
    except ApiError:  # it has none, or the last one was removed
        return False
    return batch.encode() in b64decode(found["message"].get("hdrs", ""))
