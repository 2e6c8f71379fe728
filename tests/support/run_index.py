"""Logs for the run index, and ways to wait until it has them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path

from uuid_utils import uuid7

from penstock.actors.index.file import IndexFile
from penstock.actors.index.run_index import RunIndex
from penstock.broker import names
from penstock.broker.nats.headers import SCHEDULE, SCHEDULE_TARGET
from penstock.broker.nats.publisher import ack_seq
from penstock.broker.store import Store
from penstock.engine.errors import Unavailable
from penstock.engine.run.event_payloads import Scheduled, Started
from penstock.engine.run.events import (
    Event,
    WorkflowScheduled,
    WorkflowStarted,
)

SECONDS = 10.0
NOON = "2026-01-01T12:00:00Z"


@asynccontextmanager
async def running(coroutine: Awaitable[object]) -> AsyncIterator[asyncio.Task[None]]:
    """The coroutine as a task for the time of the block."""

    async def run() -> None:
        await coroutine

    task = asyncio.create_task(run())
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def started(run_id: str, workflow: str, timestamp: str = NOON) -> WorkflowStarted:
    return WorkflowStarted(
        run_id=run_id, timestamp=timestamp, payload=Started(workflow=workflow, version="1", digest="d")
    )


def scheduled(run_id: str, workflow: str, timestamp: str = NOON) -> WorkflowScheduled:
    payload = Scheduled(workflow=workflow, version="1", digest="d", run_at="2030-01-01T00:00:00Z")
    return WorkflowScheduled(run_id=run_id, timestamp=timestamp, payload=payload)


async def append(store: Store, *events: Event) -> int:
    """The sequence of the last of them."""
    seq = 0
    for event in events:
        seq = await store.history.append(event)
    return seq


async def start_many(store: Store, workflow: str, count: int) -> list[str]:
    """Runs begun a second apart, oldest first."""
    run_ids = [uuid7().hex for _ in range(count)]
    await append(store, *(started(run_id, workflow, f"2026-01-01T12:00:{n:02}Z") for n, run_id in enumerate(run_ids)))
    return run_ids


async def seen(index: RunIndex, store: Store) -> None:
    """The index has everything."""
    assert await index.caught_up(await store.history.last_seq(), SECONDS)


async def until(holds: Callable[[], bool]) -> None:
    """Polls: a file tells nobody that it changed."""
    async with asyncio.timeout(SECONDS):
        for _ in count():
            if holds():
                return
            await asyncio.sleep(0.005)


async def publish(store: Store, run_id: str, body: bytes) -> int:
    return ack_seq(await store.publisher.send(names.history_subject(run_id), body))


async def schedule(store: Store, run_id: str, at: str = "2099-01-01T00:00:00Z") -> str:
    """A timer of the broker's in the history stream; returns its subject."""
    subject = names.schedule_subject(run_id, "workflow")
    headers = {SCHEDULE: f"@at {at}", SCHEDULE_TARGET: names.history_subject(run_id)}
    await store.publisher.send(subject, b'{"type":"workflow.started"}', headers)
    return subject


class IndexFileAt:
    """A writer of the test's own, closed at the end of the block."""

    def __init__(self, path: Path) -> None:
        self._file = IndexFile(path)

    def __enter__(self) -> IndexFile:
        return self._file

    def __exit__(self, *_: object) -> None:
        self._file.close()


def shown(index: RunIndex, *status: str) -> Sequence[str]:
    try:
        return index.query(status=frozenset(status) or None).run_ids
    except Unavailable:
        return ()
