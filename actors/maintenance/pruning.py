"""Pruning: removes runs that have ended, on request or by age.

Each is removed by an event of its history, `workflow.removed`, which is stored only if nothing else was stored since
the run was read. So of a removal and a retry at the same time one succeeds, and the other finds out. From that event on
the run is not there for any reader; its shard then deletes what is stored of it. A process that dies before has the
others done: whatever the log says is carried out by the next owner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime

from msgspec import Struct

from penstock.actors.control.bulk import Skipped, chunks
from penstock.actors.control.pausing import GONE
from penstock.actors.control.run_operations import now
from penstock.actors.index.file import IndexFile
from penstock.actors.index.run_index import RunIndex
from penstock.actors.runs.loading import FINAL, load, load_many, snapshots
from penstock.broker.names import owner_state
from penstock.broker.nats.direct import Stored
from penstock.broker.store import Store
from penstock.broker.streams.history import REMOVAL_TTL
from penstock.config.process.background import all_of
from penstock.config.process.crash_points import reached
from penstock.engine.run.event_payloads import parent_run_id
from penstock.engine.run.events import WorkflowRemoved
from penstock.engine.run.state import RUN_ENDED, Run

FORMAT = 2  # of the event: versions that read format 1 only would take it for malformed
ARCHIVED_FORMAT = 4  # of one that is archived: older versions would leave it in the archive
CHANGED = "it has just changed"


class PrunedRuns(Struct, frozen=True):
    """Which runs were removed, or would be, and which were not, and why."""

    pruned: list[str]
    skipped: list[Skipped]


async def prune(
    store: Store, index: RunIndex, run_ids: Sequence[str], ended_before: float | None = None, *, dry_run: bool = False
) -> PrunedRuns:
    """Remove those of these runs that have ended and are not needed by another run; with `dry_run`, only report which.

    `ended_before` (of the broker, s since the epoch) leaves out, from both lists, the runs that ended at this time or
    later. The index must be as new as the runs. Raises Unavailable (outcome unknown: it may be repeated).
    """
    done = PrunedRuns([], [])
    for chunk in chunks(run_ids):
        await _prune(store, index, chunk, ended_before, done, dry_run=dry_run)
    return done


async def _prune(
    store: Store,
    index: RunIndex,
    run_ids: Sequence[str],
    ended_before: float | None,
    done: PrunedRuns,
    *,
    dry_run: bool,
) -> None:
    last = await store.history.last_of(run_ids)  # before the runs are read: what comes later is then seen, or refused
    written = await snapshots(store, run_ids)
    others = [run_id for run_id in run_ids if run_id not in written or written[run_id].status not in FINAL]
    runs = {run_id: run for run_id, run in written.items() if run.status in FINAL}
    runs |= {run.run_id: run for run in await load_many(store, others)}
    archived = await store.archive.surely_among(run_ids)
    # nothing is left for its shard to write of a run that is there only
    put_away = [run_id for run_id in archived if run_id in runs and run_id not in written]
    written |= {one: runs[one] for one in put_away if one not in last or (await load(store, one)).archived}
    needed = index.needed(run_ids) | _parents(index, runs)
    wanted = []
    for run_id in run_ids:
        run = runs.get(run_id)
        if problem := _problem(run, _is_written(written.get(run_id), last.get(run_id)), needed.get(run_id)):
            done.skipped.append(Skipped(run_id, problem))
        elif run is not None and (ended_before is None or is_old(run, last.get(run_id), ended_before)):
            wanted.append(run_id)
    done.pruned.extend(wanted if dry_run else await _remove(store, wanted, last, archived, done))
    known = runs.keys() | last.keys() | archived.keys()
    if not dry_run and (gone := [run_id for run_id in run_ids if run_id not in known]):
        _forget(index, gone)


async def _remove(
    store: Store, run_ids: list[str], last: Mapping[str, Stored], archived: Mapping[str, int], done: PrunedRuns
) -> list[str]:
    """Append the removals. Returns those that are stored; from now on nobody finds these runs."""
    at = now()
    events = [_removal(run_id, at, archived.get(run_id)) for run_id in run_ids]
    expected = [last[run_id].seq if run_id in last else 0 for run_id in run_ids]
    stored = await all_of(map(store.history.append_removal, events, expected))
    reached("runs.removed")
    removed = [run_id for run_id, is_stored in zip(run_ids, stored, strict=True) if is_stored]
    # Readers trust the snapshot of an ended run.
    await all_of(store.runs.delete(run_id, ttl=REMOVAL_TTL) for run_id in removed)
    done.skipped.extend(Skipped(run_id, CHANGED) for run_id in run_ids if run_id not in removed)
    return removed


def _removal(run_id: str, at: str, archived: int | None) -> WorkflowRemoved:
    if archived is None:
        return WorkflowRemoved(run_id=run_id, timestamp=at, v=FORMAT)
    return WorkflowRemoved(run_id=run_id, timestamp=at, archived=(archived,), v=ARCHIVED_FORMAT)


def _is_written(snapshot: Run | None, last: Stored | None) -> bool:
    """Whether the run's shard has nothing more to do: it has written the end, or the end orders nothing."""
    return (snapshot is not None and snapshot.ended) or (last is not None and owner_state(last.headers) is not None)


def _problem(run: Run | None, is_written: bool, needed: str | None) -> str | None:
    """Why the run stays. None: nothing is against its removal."""
    if run is None:
        return GONE
    if not run.ended:
        return f"it is {run.status}"
    if not is_written:
        return "its shard has not written its end yet"
    return needed


def _parents(index: RunIndex, runs: Mapping[str, Run]) -> dict[str, str]:
    """The children whose parent has not ended."""
    parents = {run_id: parent for run_id, run in runs.items() if (parent := parent_run_id(run.parent)) is not None}
    statuses = index.statuses(set(parents.values())) if parents else {}
    return {
        run_id: f"its parent, run {parent}, is {statuses[parent]}"
        for run_id, parent in parents.items()
        if statuses.get(parent, "failed") not in RUN_ENDED
    }


def is_old(run: Run, last: Stored | None, ended_before: float) -> bool:
    """Whether the run ended before, by its own times and by the broker's of its last event: the times in a run come
    from other hosts' clocks, which may be wrong. Its log may be gone before it."""
    ended = datetime.fromisoformat(run.finished_at or run.created_at).timestamp()
    return ended < ended_before and (last is None or last.at < ended_before)


def _forget(index: RunIndex, run_ids: list[str]) -> None:
    """Delete the rows of runs that are not in the log any more: this host was away when they were removed."""
    with closing(IndexFile(index.path)) as file:
        file.forget(run_ids)
