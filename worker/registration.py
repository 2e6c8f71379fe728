"""The worker's entry in the workers bucket: written at the start and every 30 s, gone at a clean stop, forgotten by the broker
60 s after the last write. For people to look at; nothing depends on it."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version

import msgspec
from msgspec import Struct

from penstock.broker.buckets import Bucket
from penstock.config.limits import WORKER_HEARTBEAT_S, WORKER_TASKS_DEFAULT
from penstock.engine.errors import Unavailable
from penstock.worker.background import background
from penstock.worker.facts import now


class WorkerRegistration(Struct, frozen=True, kw_only=True):
    """As stored. Workers in other languages may leave out everything but the first two."""

    worker_id: str
    task_types: tuple[str, ...]
    language: str = ""
    transport: str = ""
    max_tasks: int = WORKER_TASKS_DEFAULT
    metadata: Mapping[str, str] = {}
    hostname: str = ""
    pid: int = 0
    version: str = ""
    last_seen: str = ""


def registration(worker_id: str, task_types: tuple[str, ...], max_tasks: int, metadata: Mapping[str, str]) -> WorkerRegistration:
    """The entry of a worker of this SDK, in this process."""
    return WorkerRegistration(
        worker_id=worker_id,
        task_types=task_types,
        language="python",
        transport="nats",
        max_tasks=max_tasks,
        metadata=metadata,
        hostname=socket.gethostname(),
        pid=os.getpid(),
        version=version("penstock"),
    )


@asynccontextmanager
async def registered(bucket: Bucket, entry: WorkerRegistration) -> AsyncIterator[None]:
    """In the bucket for the time of the block, from its first line on. Raises Unavailable where there is no such bucket yet."""
    await bucket.get(entry.worker_id)
    await _write(bucket, entry)
    try:
        async with background(_renew(bucket, entry)):
            yield
    finally:
        with suppress(Unavailable):  # then its time to live removes it
            await bucket.delete(entry.worker_id)


async def _renew(bucket: Bucket, entry: WorkerRegistration) -> None:
    while True:
        await asyncio.sleep(WORKER_HEARTBEAT_S)
        await _write(bucket, entry)


async def _write(bucket: Bucket, entry: WorkerRegistration) -> None:
    """Return once it is stored, however long the broker is away."""
    await bucket.send(entry.worker_id, msgspec.json.encode(msgspec.structs.replace(entry, last_seen=now())))
