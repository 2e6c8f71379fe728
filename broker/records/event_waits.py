"""What steps wait for, one record for each wait, under the partition of its run: so the next owner of a partition finds
all waits in it."""

from __future__ import annotations

import asyncio

import msgspec
from msgspec import Struct

from penstock.broker import names
from penstock.broker.nats.buckets import Bucket
from penstock.broker.nats.headers import KV_OPERATION, TTL
from penstock.broker.nats.publisher import Publisher
from penstock.engine.run.events import EventWait

MARKER_TTL = "2s"  # of what a removed record leaves behind


class WaitRecord(Struct, frozen=True, omit_defaults=True):
    """The wait of one attempt of a step. `conditional`: its step has a `match`."""

    run_id: str
    step_id: str
    attempt: int
    wait: EventWait
    conditional: bool = False

    @property
    def key(self) -> str:
        return names.wait_key(self.run_id, self.step_id, self.attempt)


_DECODER = msgspec.json.Decoder(WaitRecord)


class WaitRecords:
    """The bucket of waits. A record is written when its wait begins and removed when it ends."""

    def __init__(self, bucket: Bucket, publisher: Publisher) -> None:
        self._bucket, self._publisher = bucket, publisher

    def send(self, record: WaitRecord) -> asyncio.Future[bytes]:
        """Write a record without waiting; a repeat changes nothing."""
        return self._bucket.send(record.key, msgspec.json.encode(record))

    def remove(self, key: str) -> asyncio.Future[bytes]:
        """Remove a record without waiting, whether it is there or not."""
        subject = names.key_subject(names.EVENT_WAITS, key)
        return self._publisher.send(subject, b"", {KV_OPERATION: "DEL", TTL: MARKER_TTL})

    async def of_partition(self, number: int) -> list[WaitRecord]:
        """All records of a partition's runs. Raises Unavailable."""
        return [_DECODER.decode(entry.value) for entry in await self._bucket.all(names.waits_in(number))]
