"""Leases of polled tasks: what any front-end process needs to carry out a report on a task that another process
assigned."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from nats.aio.msg import Msg

from penstock.broker import names, record_keys
from penstock.broker.nats.buckets import Bucket
from penstock.broker.nats.connection import Broker
from penstock.broker.nats.errors import ApiError, Code
from penstock.broker.nats.headers import EXPECT_SEQ, TTL
from penstock.broker.nats.publisher import Publisher
from penstock.broker.nats.pull import Delivery, deliveries_in
from penstock.config.process.background import start
from penstock.engine.errors import Unavailable

TASK_ID = "Task-Id"
FORWARD_S_MAX = 8.0
MARKER_TTL = "2s"  # of what a deleted lease leaves behind
RESTORE_S = 10.0  # what every holder needs to be connected again, and to store its leases


class Lease(Struct, frozen=True, omit_defaults=True):
    """The lease of one delivery of one execution of a step.

    `reply` is the subject of its acknowledgement. `seen_at` is the time of the worker's last request, and `claimed_at`
    the time when a process began to carry out its report (0: none has), both in s since the epoch. `holder` is the
    process that extends the broker's deadline for the task and, while it lives, carries out its report.
    """

    run_id: str
    step_id: str
    attempt: int
    iteration: int
    reply: str
    worker_id: str
    seen_at: float
    claimed_at: float = 0.0
    holder: str = ""
    item: int | None = None

    @property
    def task_id(self) -> str:
        return record_keys.step_key(self.run_id, self.step_id)

    @property
    def deliveries(self) -> int:
        """The number of the task's delivery that was assigned."""
        return deliveries_in(self.reply)


class StoredLease(NamedTuple):
    """A stored lease; `revision` is the one that a change must expect."""

    lease: Lease
    revision: int


class BucketAge(NamedTuple):
    """When the bucket was made, and the newest revision of any lease: another time, or a lower revision than one that
    was written before, if the broker has lost all of them."""

    made_at: str
    last_revision: int


_DECODER = msgspec.json.Decoder(Lease)


class Leases:
    """The bucket of leases. A lease that is not written for ten minutes expires; all are lost when the broker
    restarts."""

    def __init__(self, bucket: Bucket, broker: Broker, publisher: Publisher) -> None:
        self._bucket, self._broker, self._publisher = bucket, broker, publisher
        self._stream = names.bucket_stream(names.BRIDGE_LEASES)

    def send(self, lease: Lease, kept: StoredLease | None = None) -> asyncio.Future[bytes]:
        """Write a lease without waiting. It replaces any other lease of its task or, if given, only `kept`: else the
        future raises Conflict."""
        return self._bucket.send(lease.task_id, msgspec.json.encode(lease), None if kept is None else kept.revision)

    async def written(self) -> None:
        """Return when every lease that was sent has left for the broker. Raises Unavailable without a connection."""
        self._broker.check_connected()
        await self._publisher.written()

    async def replace(self, kept: StoredLease, lease: Lease) -> StoredLease:
        """Change a lease. Raises Conflict if it has changed since `kept`."""
        return StoredLease(lease, await self._bucket.put(lease.task_id, msgspec.json.encode(lease), kept.revision))

    def restore(self, kept: StoredLease, lease: Lease) -> None:
        """Change a lease without waiting, unless it has changed since `kept`."""
        self.send(lease, kept).add_done_callback(ignore)

    def remove(self, kept: StoredLease) -> asyncio.Future[bytes]:
        """Remove a lease without waiting; the future raises Conflict if it has changed since `kept`."""
        return self._publisher.send(names.key_subject(names.BRIDGE_LEASES, kept.lease.task_id), b"", _removal(kept))

    async def delete(self, kept: StoredLease) -> None:
        """Remove a lease, unless it has changed since `kept`. Does not wait for the result: a claimed lease that stays
        does no harm until it expires."""
        with suppress(Unavailable):
            await self._broker.publish(
                names.key_subject(names.BRIDGE_LEASES, kept.lease.task_id), b"", headers=_removal(kept)
            )

    async def get(self, task_id: str) -> StoredLease | None:
        """The current lease, from the stream's leader: a copy may lag behind a write of another process."""
        request = {"last_by_subj": names.key_subject(names.BRIDGE_LEASES, task_id)}
        try:
            found = (await self._broker.api(f"STREAM.MSG.GET.{self._stream}", request))["message"]
        except ApiError as error:
            if error.err_code == Code.STREAM_NOT_FOUND:
                raise Unavailable("the broker has lost the leases of tasks: they are being restored") from error
            if error.err_code != Code.MESSAGE_NOT_FOUND:
                raise
            return None
        return None if "hdrs" in found and b"KV-Operation" in base64.b64decode(found["hdrs"]) else _kept(found)

    async def many(self, task_ids: Sequence[str]) -> dict[str, StoredLease]:
        """Those of these leases that exist; a lease that was just written may be missing."""
        found = await self._bucket.get_many(task_ids)
        return {key: StoredLease(_DECODER.decode(entry.value), entry.revision) for key, entry in found.items()}

    def change_notification(self, task_id: str) -> AbstractAsyncContextManager[asyncio.Event]:
        """An event that is set at about the time when the lease is written. A notification may be lost."""
        return self._bucket.change_notification(task_id)

    async def release(self, worker_id: str) -> None:
        """End the worker's waiting polls, in every front-end process."""
        await self._broker.publish(names.BRIDGE_RELEASE, worker_id.encode())
        await self._broker.flush()

    async def on_release(self, callback: Callable[[str], None]) -> None:
        """Call `callback(worker id)` for each `release`, as long as the connection lives."""

        async def receive(msg: Msg) -> None:
            callback(msg.data.decode())

        await self._broker.subscribe(names.BRIDGE_RELEASE, receive)

    async def seek(self, task_id: str) -> None:
        """Have the process that has just assigned the task, if there is one, store its lease now."""
        await self._broker.publish(names.BRIDGE_SOUGHT, task_id.encode())

    async def on_sought(self, callback: Callable[[str], None]) -> None:
        """Call `callback(task id)` for each `seek`, as long as the connection lives."""

        async def receive(msg: Msg) -> None:
            callback(msg.data.decode())

        await self._broker.subscribe(names.BRIDGE_SOUGHT, receive)

    async def forward(self, lease: Lease, body: bytes) -> bytes:
        """Forward a report to the lease's holder and return its answer. Raises NotFound when the holder is gone,
        Unavailable when the outcome is unknown."""
        subject = names.forward_subject(lease.holder)
        headers = {TASK_ID: lease.task_id}
        return bytes((await self._broker.request(subject, body, FORWARD_S_MAX, headers)).data)

    @asynccontextmanager
    async def forwarded(self, holder: str, carry_out: Callable[[str, bytes], Awaitable[bytes]]) -> AsyncIterator[None]:
        """Answer reports that are forwarded to this holder with `carry_out(task id, body)`, for the time of the block.

        Reports that the broker accepted before its end are still answered; later ones find no holder, and their senders
        carry them out themselves.
        """
        running: set[asyncio.Task[None]] = set()

        async def reply(msg: Msg) -> None:
            with suppress(Unavailable):  # the sender gets no answer, and reports that
                await self._broker.publish(msg.reply, await carry_out((msg.headers or {})[TASK_ID], msg.data))

        async def receive(msg: Msg) -> None:
            task = start(reply(msg), name="forwarded_answer")
            running.add(task)
            task.add_done_callback(running.discard)

        try:
            async with self._broker.listening(names.forward_subject(holder), receive, drain=True):
                yield
        finally:
            if running:
                await asyncio.wait(running, timeout=FORWARD_S_MAX)

    async def age(self) -> BucketAge:
        """Shows whether the broker has lost all leases since an earlier call. Raises ApiError, Unavailable."""
        info = await self._info()
        return BucketAge(str(info["created"]), int(info["state"]["last_seq"]))

    async def being_restored(self) -> bool:
        """Whether leases may be missing because their holders have not restored them yet."""
        info = await self._info()
        age = datetime.fromisoformat(info["ts"]) - datetime.fromisoformat(info["created"])
        return names.RESTORED in info["config"].get("metadata", {}) and age.total_seconds() < RESTORE_S

    async def _info(self) -> dict[str, Any]:
        return await self._broker.api(f"STREAM.INFO.{self._stream}")

    def delivery(self, lease: Lease) -> Delivery:
        """The delivery of the lease, without its body: to acknowledge it, give it back or extend its deadline."""
        return Delivery(self._broker, "", lease.reply, b"")


def _removal(kept: StoredLease) -> dict[str, str]:
    return {"KV-Operation": "DEL", EXPECT_SEQ: str(kept.revision), TTL: MARKER_TTL}


def _kept(found: dict[str, Any]) -> StoredLease:
    return StoredLease(_DECODER.decode(base64.b64decode(found["data"])), found["seq"])


def ignore(sent: asyncio.Future[bytes]) -> None:
    """Ignore the result of a write that no code waits for: a Conflict means that a newer lease is stored, which is
    fine."""
    if not sent.cancelled():
        sent.exception()
