"""What steps wait for, one record for each wait, under the partition of its run: so the next owner of a partition finds
all waits in it, and with them how far they have seen the events."""

from __future__ import annotations

import asyncio
from hashlib import blake2b
from typing import NamedTuple

import msgspec
from msgspec import Struct

from penstock.broker import names, record_keys
from penstock.broker.nats.buckets import Bucket
from penstock.broker.nats.headers import KV_OPERATION, TTL
from penstock.broker.nats.publisher import Publisher
from penstock.config.logging import get_logger
from penstock.engine.errors import Conflict
from penstock.engine.run.event_payloads import EventWait

MARKER_TTL = "60s"  # of what a removed record leaves behind: a former owner that was paused may send it again so late
MARK_BYTES = 8


class WaitRecord(Struct, frozen=True, omit_defaults=True):
    """The wait of one attempt of a step. `conditional`: its step has a `match`. `began` is when it began (s since the
    epoch), for one that accepts older events."""

    run_id: str
    step_id: str
    attempt: int
    wait: EventWait
    conditional: bool = False
    began: float = 0.0

    @property
    def key(self) -> str:
        return record_keys.wait_key(self.run_id, self.step_id, self.attempt)

    @property
    def mark(self) -> bytes:
        """What this wait is called in checkpoints. Another wait of the same attempt, as after a replay, has another
        one."""
        return blake2b(msgspec.json.encode(self), digest_size=MARK_BYTES).digest()


class SeenBy(Struct, frozen=True, array_like=True):
    """Waits that have looked at all events up to the sequence, and wait on. `marks`: one after the other."""

    seq: int
    marks: bytes


class WaitCheckpoint(Struct, frozen=True):
    """How far the waits of a partition have seen the stream of events that was `created` then."""

    created: str
    seen: tuple[SeenBy, ...] = ()


class StoredWaits(NamedTuple):
    """The waits of a partition."""

    records: list[WaitRecord]
    checkpoint: WaitCheckpoint | None


log = get_logger()

_DECODER = msgspec.json.Decoder(WaitRecord)
_CHECKPOINT = msgspec.json.Decoder(WaitCheckpoint)


class WaitRecords:
    """The bucket of waits. A record is written when its wait begins and removed when it ends."""

    def __init__(self, bucket: Bucket, publisher: Publisher) -> None:
        self._bucket, self._publisher = bucket, publisher

    def send(self, record: WaitRecord) -> asyncio.Future[bytes]:
        """Write a record without waiting. A repeat changes nothing, nor does one that comes after its removal."""
        written: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def answered(answer: asyncio.Future[bytes]) -> None:
            error = None if answer.cancelled() else answer.exception()
            if written.done():
                return
            if answer.cancelled():
                written.cancel()
            elif error is None or isinstance(error, Conflict):  # a conflict: it is there, or was removed
                written.set_result(b"")
            else:
                written.set_exception(error)

        self._bucket.send(record.key, msgspec.json.encode(record), expect=0).add_done_callback(answered)
        return written

    def remove(self, key: str) -> asyncio.Future[bytes]:
        """Remove a record without waiting, whether it is there or not."""
        subject = names.key_subject(names.EVENT_WAITS, key)
        return self._publisher.send(subject, b"", {KV_OPERATION: "DEL", TTL: MARKER_TTL})

    async def of_partition(self, number: int) -> StoredWaits:
        """All records of a partition's runs, and its checkpoint, if there is a readable one. Raises Unavailable."""
        entries = {entry.key: entry.value for entry in await self._bucket.all(record_keys.waits_in(number))}
        written = entries.pop(record_keys.wait_checkpoint_key(number), None)
        checkpoint = None if written is None else _read(written)
        return StoredWaits([_DECODER.decode(value) for value in entries.values()], checkpoint)

    async def write_checkpoint(self, number: int, checkpoint: WaitCheckpoint) -> None:
        """Replace the checkpoint of a partition. Raises Unavailable."""
        await self._bucket.put(record_keys.wait_checkpoint_key(number), msgspec.json.encode(checkpoint))

    async def remove_checkpoint(self, number: int) -> None:
        """Remove the checkpoint of a partition, whether there is one or not. Raises Unavailable."""
        await self.remove(record_keys.wait_checkpoint_key(number))


def _read(written: bytes) -> WaitCheckpoint | None:
    """None for what is none, as another version or program may write it: without a checkpoint more events are read."""
    try:
        return _CHECKPOINT.decode(written)
    except msgspec.MsgspecError as error:
        log.warning("wait_checkpoint_unreadable", error=str(error))
        return None
