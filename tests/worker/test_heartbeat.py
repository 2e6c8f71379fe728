"""A worker straight on the broker says again and again that it is there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import orjson
import pytest

from penstock.broker.nats.buckets import Entry
from penstock.broker.store import Store
from tests.support.waiting import until
from tests.worker.conftest import NewWorker

WORKER_ID = "beating"


@pytest.fixture
async def beating(
    monkeypatch: pytest.MonkeyPatch, store: Store, new_worker: NewWorker, task: str
) -> AsyncIterator[None]:
    """A worker whose 30 s are short."""
    monkeypatch.setattr("penstock.worker.transports.direct.WORKER_HEARTBEAT_S", 0.05)
    worker = new_worker(worker_id=WORKER_ID)
    worker.task(task)(lambda: None)
    async with worker.running():
        yield


async def test_registration_is_written_again_with_each_heartbeat(store: Store, beating: None) -> None:
    first = await entry(store, 0)
    later = await entry(store, first.revision)
    told, told_again = orjson.loads(first.value), orjson.loads(later.value)
    assert told.pop("last_seen") < told_again.pop("last_seen")
    assert told == told_again


async def test_registration_that_somebody_removed_is_there_again(store: Store, beating: None) -> None:
    first = await entry(store, 0)
    await store.workers.delete(WORKER_ID)
    assert first.revision < (await asyncio.wait_for(entry(store, first.revision), 10)).revision


async def entry(store: Store, beyond: int) -> Entry:
    """The worker's registration, once it is a newer one than this revision."""

    async def find() -> Entry | None:
        found = await store.workers.get(WORKER_ID)
        return found if found is not None and found.revision > beyond else None

    found = await until(find)
    assert found is not None
    return found
