"""Which runs can be archived, and what the archive gets of them: a run that ended long ago, with its whole history."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from typing import NamedTuple

from penstock.actors.control.bulk import chunks
from penstock.actors.index.instants import instant_us
from penstock.actors.maintenance.ended_histories import WholeHistory, begins_with, histories, whole_history
from penstock.actors.maintenance.pruning import is_old
from penstock.actors.runs.loading import FINAL, at_end, load, snapshots
from penstock.broker.archive.archived_runs import (
    ArchivedHead,
    ArchivedRun,
    decode_archived,
    encode_archived,
    is_archive_mark,
)
from penstock.broker.nats.direct import Stored
from penstock.broker.store import Store
from penstock.config.process.background import all_of
from penstock.engine.run.event_payloads import parent_run_id
from penstock.engine.run.state import Run

READS_AT_ONCE = 8

NAMED_MAX, NAMED_BYTES_MAX = 256, 64 << 10


class Archivable(NamedTuple):
    """A run as the archive is to have it, if its history still ends with `last_seq`. The messages `former` of the
    archive have a part of it. `events` are as in its mark."""

    run_id: str
    body: bytes
    last_seq: int
    former: Collection[int] = ()
    events: tuple[int, ...] = ()


async def archivable(store: Store, run_ids: Sequence[str], ended_before: float) -> AsyncGenerator[list[Archivable]]:
    """Those of these runs that have ended before this time (of the broker, s since the epoch) and stand in the history,
    a few at a time. If the first was created first, they are read together.

    A run stays whose history has lost its beginning, or that is larger than a message. Raises Unavailable.
    """
    # before the runs are read: what comes later is seen, or refused
    last = {
        run_id: stored
        for run_id, stored in (await store.history.last_of(run_ids)).items()
        if stored.at < ended_before and not is_archive_mark(stored.data)
    }
    here = [run_id for run_id in run_ids if run_id in last]
    together = await histories(store, {run_id: last[run_id].seq for run_id in here})
    for chunk in chunks(here):
        written = await snapshots(store, chunk)
        for run_id in chunk:
            if run_id not in written and (ended := await at_end(store, last[run_id])) is not None:
                written[run_id] = ended  # its end orders nothing, and carries the state
        old = [run for run in written.values() if run.ended and is_old(run, last[run.run_id], ended_before)]
        yield await _all_of_chunk(store, old, last, together)


async def _all_of_chunk(
    store: Store, runs: Sequence[Run], last: Mapping[str, Stored], together: Mapping[str, WholeHistory]
) -> list[Archivable]:
    gate = asyncio.Semaphore(READS_AT_ONCE)

    async def one(run: Run) -> Archivable | None:
        run_id, last_seq = run.run_id, last[run.run_id].seq
        async with gate:
            whole = together.get(run_id)
            if whole is None or not begins_with(whole.events[0], run.created_at):
                whole = await whole_history(store, run_id, last_seq)
            return None if whole is None else await _archivable(store, run, whole, last_seq)

    return [found for found in await all_of(map(one, runs)) if found is not None]


async def _archivable(store: Store, written: Run, whole: WholeHistory, last_seq: int) -> Archivable | None:
    run: Run | None = written
    if written.status not in FINAL:  # it may have been resumed
        run = (await load(store, written.run_id, by_index=False)).run
    if run is None or not run.ended or run.imported:
        return None
    archived = ArchivedRun(run.run_id, _head(run), whole.events)
    body = encode_archived(archived)
    assert _places(decode_archived(body, 0).events) == _places(whole.events), "it is read as it was written"
    if len(body) > store.publisher.body_bytes_max:
        return None
    return Archivable(run.run_id, body, last_seq, whole.former, () if whole.former else _named(whole.events))


def _named(events: Sequence[Stored]) -> tuple[int, ...]:
    """The sequences of these events, the whole history of a run, if it can be removed by them. Of a history with more
    bytes a reader could have several pages, and not notice that something between them was removed."""
    size = sum(len(event.data) + len(event.headers) for event in events)
    if len(events) > NAMED_MAX or size > NAMED_BYTES_MAX:
        return ()
    return tuple(event.seq for event in events)


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
