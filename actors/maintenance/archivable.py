"""Which runs can be archived, and what the archive gets of them: a run that ended long ago, with its whole history."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import NamedTuple

from penstock.actors.index.file import instant_us
from penstock.actors.maintenance.pruning import is_old
from penstock.actors.runs.loading import FINAL, load, snapshots
from penstock.broker.archive.archived_runs import (
    ArchivedHead,
    ArchivedRun,
    archive_seq,
    decode_archived,
    encode_archived,
    is_archive_mark,
)
from penstock.broker.nats.direct import Stored
from penstock.broker.store import Store
from penstock.config.limits import MIB
from penstock.config.process.background import all_of
from penstock.engine.run.event_payloads import parent_run_id
from penstock.engine.run.events import WorkflowScheduled, WorkflowStarted, decode
from penstock.engine.run.state import Run

READ_BYTES_MAX = 8 * MIB  # of one run: a larger one stays where it is
READS_AT_ONCE = 8


class Archivable(NamedTuple):
    """A run as the archive is to have it, if its history still ends with `last_seq`."""

    run_id: str
    body: bytes
    last_seq: int


async def archivable(store: Store, run_ids: Sequence[str], ended_before: float) -> list[Archivable]:
    """Those of these runs that have ended before this time (of the broker, s since the epoch) and stand in the history.

    A run stays whose history has lost its beginning, or that is larger than a message. Raises Unavailable.
    """
    last = await store.history.last_of(run_ids)  # before the runs are read: what comes later is seen, or refused
    here = [run_id for run_id, stored in last.items() if not is_archive_mark(stored.data)]
    written = await snapshots(store, here)
    old = [run for run in written.values() if run.ended and is_old(run, last[run.run_id], ended_before)]
    gate = asyncio.Semaphore(READS_AT_ONCE)

    async def one(run: Run) -> Archivable | None:
        async with gate:
            return await _archivable(store, run, last[run.run_id].seq)

    return [found for found in await all_of(map(one, old)) if found is not None]


async def _archivable(store: Store, written: Run, last_seq: int) -> Archivable | None:
    run: Run | None = written
    if written.status not in FINAL:  # it may have been resumed
        run = (await load(store, written.run_id, by_index=False)).run
    if run is None or not run.ended or run.imported:
        return None
    events = await _whole(store, run.run_id, last_seq)
    if events is None:
        return None
    archived = ArchivedRun(run.run_id, _head(run), events)
    body = encode_archived(archived)
    assert _places(decode_archived(body, 0).events) == _places(events), "it is read as it was written"
    return None if len(body) > store.publisher.body_bytes_max else Archivable(run.run_id, body, last_seq)


async def _whole(store: Store, run_id: str, last_seq: int) -> list[Stored] | None:
    """All events of the run, if its history has them all, and ends with this sequence."""
    events: list[Stored] = []
    size = last = 0
    async with aclosing(store.history.pages(run_id, by_index=False)) as pages:
        async for page in pages:
            last = last if archive_seq(page[0]) else page[-1].seq
            events += [event for event in page if not is_archive_mark(event.data)]
            size += sum(len(event.data) for event in page)
            if size > READ_BYTES_MAX:
                return None
    return events if last == last_seq and events and _begins(events[0]) else None


def _begins(first: Stored) -> bool:
    return isinstance(decode(first.data), WorkflowStarted | WorkflowScheduled)


def _places(events: Sequence[Stored]) -> list[tuple[int, float, bytes]]:
    return [(event.seq, event.at, event.data) for event in events]


def _head(run: Run) -> ArchivedHead:
    created, ended = instant_us(run.created_at) or 0, instant_us(run.finished_at or run.created_at) or 0
    begun = instant_us(run.started_at) if run.started_at else None
    took = None if begun is None or run.finished_at is None else max(0, ended - begun)
    parent = parent_run_id(run.parent)
    return ArchivedHead(
        run.workflow_id, run.status, created, begun, took, run.rerun_of, parent, run.labels, run.trigger
    )
