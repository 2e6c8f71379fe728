"""Leases of polled tasks: what any front-end process needs in order to answer a task that another one has handed
out."""

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

from penstock.broker import names
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
RESTORE_S = 5.0  # what every holder needs to be connected again


class Lease(Struct, frozen=True, omit_defaults=True):
    """One hand-out of one execution of a step. `reply` is where the broker wants its acknowledgement; `seen_at` is the
    worker's last sign of life and `claimed_at` when someone began to carry out its answer (0: nobody), both in s since
    the epoch. `holder` is the process that keeps the task alive and has the first say about it, for as long as it
    lives."""

    run_id: str
    step_id: str
    attempt: int
    iteration: int
    reply: str
    worker_id: str
    seen_at: float
    claimed_at: float = 0.0
    holder: str = ""

    @property
    def task_id(self) -> str:
        return names.step_key(self.run_id, self.step_id)

    @property
    def deliveries(self) -> int:
        """Which of the task's deliveries was handed out."""
        return deliveries_in(self.reply)


class StoredLease(NamedTuple):
    """A lease as it is stored; `revision` is what a change must expect."""

    lease: Lease
    revision: int


_DECODER = msgspec.json.Decoder(Lease)


class Leases:
    """A small face over the bucket of leases. One that nobody writes for ten minutes is gone, and all are when the
    broker restarts."""

    def __init__(self, bucket: Bucket, broker: Broker, publisher: Publisher) -> None:
        self._bucket, self._broker, self._publisher = bucket, broker, publisher
        self._stream = names.bucket_stream(names.BRIDGE_LEASES)

    def send(self, lease: Lease, kept: StoredLease | None = None) -> asyncio.Future[bytes]:
        """Write a lease without waiting: in place of any other of its task, or (else the future raises Conflict) of
        `kept`."""
        return self._bucket.send(lease.task_id, msgspec.json.encode(lease), None if kept is None else kept.revision)

    async def written(self) -> None:
        """Return once every lease that was sent is on its way to the broker. Raises Unavailable without a
        connection."""
        self._broker.check_connected()
        await self._publisher.written()

    async def replace(self, kept: StoredLease, lease: Lease) -> StoredLease:
        """Change a lease. Raises Conflict when it is not as `kept` any more."""
        return StoredLease(lease, await self._bucket.put(lease.task_id, msgspec.json.encode(lease), kept.revision))

    def restore(self, kept: StoredLease, lease: Lease) -> None:
        """Change a lease without waiting, unless it is not as `kept` any more."""
        self.send(lease, kept).add_done_callback(ignore)

    def remove(self, kept: StoredLease) -> asyncio.Future[bytes]:
        """Remove a lease without waiting; the future raises Conflict when it is not as `kept` any more."""
        return self._publisher.send(names.key_subject(names.BRIDGE_LEASES, kept.lease.task_id), b"", _removal(kept))

    async def delete(self, kept: StoredLease) -> None:
        """Remove a lease, unless it is not as `kept` any more. Whether that worked is not waited for: one that stays,
        claimed as it is, does no harm until it has grown old."""
        with suppress(Unavailable):
            await self._broker.publish(
                names.key_subject(names.BRIDGE_LEASES, kept.lease.task_id), b"", headers=_removal(kept)
            )

    async def get(self, task_id: str) -> StoredLease | None:
        """The lease as it is now: asked of the stream's leader, since a copy may lag behind what another process has
        just written."""
        request = {"last_by_subj": names.key_subject(names.BRIDGE_LEASES, task_id)}
        try:
            found = (await self._broker.api(f"STREAM.MSG.GET.{self._stream}", request))["message"]
        except ApiError as error:
            if error.err_code == Code.STREAM_NOT_FOUND:
                raise Unavailable("the broker has forgotten the leases of tasks: they are being restored") from error
            if error.err_code != Code.MESSAGE_NOT_FOUND:
                raise
            return None
        return None if "hdrs" in found and b"KV-Operation" in base64.b64decode(found["hdrs"]) else _kept(found)

    async def many(self, task_ids: Sequence[str]) -> dict[str, StoredLease]:
        """Those of these leases that exist; one that was written just now may be missing."""
        found = await self._bucket.get_many(task_ids)
        return {key: StoredLease(_DECODER.decode(entry.value), entry.revision) for key, entry in found.items()}

    def change_notification(self, task_id: str) -> AbstractAsyncContextManager[asyncio.Event]:
        """An event that is set about when the lease is written. A notification may be lost."""
        return self._bucket.change_notification(task_id)

    async def release(self, worker_id: str) -> None:
        """Have the worker's waiting polls end, in whichever process they are."""
        await self._broker.publish(names.BRIDGE_RELEASE, worker_id.encode())
        await self._broker.flush()

    async def on_release(self, callback: Callable[[str], None]) -> None:
        """Have `callback(worker id)` called for each `release`, as long as the connection lives."""

        async def receive(msg: Msg) -> None:
            callback(msg.data.decode())

        await self._broker.subscribe(names.BRIDGE_RELEASE, receive)

    async def forward(self, lease: Lease, body: bytes) -> bytes:
        """Have the lease's holder carry out an answer; returns what it says. Raises NotFound when it is gone,
        Unavailable when the outcome is unknown."""
        subject = names.forward_subject(lease.holder)
        headers = {TASK_ID: lease.task_id}
        return bytes((await self._broker.request(subject, body, FORWARD_S_MAX, headers)).data)

    @asynccontextmanager
    async def forwarded(self, holder: str, carry_out: Callable[[str, bytes], Awaitable[bytes]]) -> AsyncIterator[None]:
        """Have `carry_out(task id, body)` answer what is forwarded to this holder, for the time of the block. What came
        before its end is still answered; who forwards something later finds nobody, and carries it out itself."""
        running: set[asyncio.Task[None]] = set()

        async def reply(msg: Msg) -> None:
            with suppress(Unavailable):  # whoever asked waits in vain, and says so
                await self._broker.publish(msg.reply, await carry_out((msg.headers or {})[TASK_ID], msg.data))

        async def receive(msg: Msg) -> None:
            task = start(reply(msg), name="forwarded_answer")
            running.add(task)
            task.add_done_callback(running.discard)

        try:
            async with self._broker.listening(names.forward_subject(holder), receive):
                yield
        finally:
            if running:
                await asyncio.wait(running, timeout=FORWARD_S_MAX)

    async def last_revision(self) -> int:
        """The newest revision of any lease; less than what was written before when the broker has forgotten them
        all."""
        return int((await self._info())["state"]["last_seq"])

    async def being_restored(self) -> bool:
        """Whether leases may be missing that their holders have not put back yet."""
        info = await self._info()
        age = datetime.fromisoformat(info["ts"]) - datetime.fromisoformat(info["created"])
        return names.RESTORED in info["config"].get("metadata", {}) and age.total_seconds() < RESTORE_S

    async def _info(self) -> dict[str, Any]:
        return await self._broker.api(f"STREAM.INFO.{self._stream}")

    def delivery(self, lease: Lease) -> Delivery:
        """The delivery that the lease stands for, to acknowledge it, to give it back or to keep it alive; it has no
        body."""
        return Delivery(self._broker, "", lease.reply, b"")


def _removal(kept: StoredLease) -> dict[str, str]:
    return {"KV-Operation": "DEL", EXPECT_SEQ: str(kept.revision), TTL: MARKER_TTL}


def _kept(found: dict[str, Any]) -> StoredLease:
    return StoredLease(_DECODER.decode(base64.b64decode(found["data"])), found["seq"])


def ignore(sent: asyncio.Future[bytes]) -> None:
    """Of what nobody waits for: a stale expectation says that a newer lease stands there, which is fine."""
    if not sent.cancelled():
        sent.exception()
