"""The workers bucket: who says that it is there to work. For people to look at; nothing depends on it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import msgspec
from msgspec import UNSET, Struct, UnsetType

from penstock.broker.buckets import Bucket
from penstock.broker.facts import now
from penstock.config.limits import WORKER_TASKS_DEFAULT
from penstock.engine.errors import Conflict, Unavailable


class WorkerRegistration(Struct, frozen=True, kw_only=True):
    """As stored. Workers in other languages may leave out everything but the first two. `worker_group`: it takes only tasks of
    steps with this group."""

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
    worker_group: str | UnsetType = UNSET


async def register(bucket: Bucket, entry: WorkerRegistration) -> int:
    """Write the entry, for the bucket's 60 s; returns its revision. Raises Unavailable."""
    return await bucket.put(entry.worker_id, msgspec.json.encode(msgspec.structs.replace(entry, last_seen=now())))


async def deregister(bucket: Bucket, worker_id: str, revision: int | None) -> None:
    """Remove the entry, unless someone has written it anew; without an answer, its time to live removes it."""
    if revision is not None:
        with suppress(Conflict, Unavailable):
            await bucket.delete(worker_id, revision)
