"""The workers bucket: registrations of running workers, for people. Front ends use it to find workers over HTTP that
left while they held tasks. The engine does not read it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct
from nats.aio.msg import Msg

from penstock.broker import names
from penstock.broker.nats.buckets import Bucket
from penstock.broker.nats.connection import Broker
from penstock.broker.worker_messages import WorkerRegistration
from penstock.broker.worker_protocol.reports import now
from penstock.engine.errors import Conflict, Unavailable


class Departure(Struct, frozen=True):
    """A worker whose connect stream has ended. `hostname` and `pid` identify its process, if it gave them."""

    worker_id: str
    hostname: str = ""
    pid: int = 0

    def is_of(self, other: Departure) -> bool:
        """Whether `other` may be the same process of this worker."""
        theirs, ours = (other.hostname, other.pid), (self.hostname, self.pid)
        return self.worker_id == other.worker_id and (theirs == ours or not (self.pid and other.pid))


_DEPARTURE = msgspec.json.Decoder(Departure)


async def register(bucket: Bucket, entry: WorkerRegistration) -> int:
    """Write the entry, for the bucket's 60 s; returns its revision. Raises Unavailable."""
    return await bucket.put(entry.worker_id, msgspec.json.encode(msgspec.structs.replace(entry, last_seen=now())))


async def deregister(bucket: Bucket, worker_id: str, revision: int | None) -> None:
    """Remove the entry, unless its revision has changed. Without an answer, the entry expires by itself."""
    if revision is not None:
        with suppress(Conflict, Unavailable):
            await bucket.delete(worker_id, revision)


async def registered(bucket: Bucket, worker_ids: Sequence[str]) -> dict[str, Departure]:
    """Those of these workers that are registered now, each in the form of a departure. Raises Unavailable."""
    found = {}
    for key, entry in (await bucket.get_many(worker_ids)).items():
        with suppress(msgspec.MsgspecError):  # others write there, too
            found[key] = _DEPARTURE.decode(entry.value)
    return found


async def publish_departure(broker: Broker, entry: WorkerRegistration) -> None:
    """Notify every front-end process that a connect stream of this worker has ended. Raises Unavailable."""
    await broker.publish(names.BRIDGE_LEFT, msgspec.json.encode(Departure(entry.worker_id, entry.hostname, entry.pid)))


async def on_departure(broker: Broker, callback: Callable[[Departure], None]) -> None:
    """Call `callback` for each `publish_departure`, as long as the connection lives."""

    async def receive(msg: Msg) -> None:
        callback(_DEPARTURE.decode(msg.data))

    await broker.subscribe(names.BRIDGE_LEFT, receive)
