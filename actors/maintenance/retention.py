"""Retention: removes checkpoints and sticky bindings of ended runs, and runs that ended long ago."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from penstock.actors.index.file import IndexFile
from penstock.actors.index.run_index import RunIndex
from penstock.actors.index.selection import Selection
from penstock.actors.maintenance.pruning import prune
from penstock.actors.maintenance.rounds import PAGE, Throttle, repeat_rounds, unthrottled
from penstock.actors.runs.loading import load_many, snapshots
from penstock.broker.store import Store
from penstock.config.logging import get_logger
from penstock.engine.run.events import IN_BETWEEN, STARTED_RUN
from penstock.engine.run.state import RUN_ENDED
from penstock.engine.times import rfc3339

EVERY_S = 10.0
BEFORE_THE_END = (STARTED_RUN, *IN_BETWEEN)
LOST_AFTER_S = 60.0  # an import takes less

log = get_logger()


async def apply_retention(store: Store, index: Path, runs_max_age_s: float | None) -> None:
    """Apply retention every EVERY_S, for ever. `index` is the run index's file; without an age, runs stay."""

    async def check(throttle: Throttle) -> None:
        await remove_leftovers(store, throttle)
        if runs_max_age_s is not None:
            await remove_old_runs(store, index, await store.history.now() - runs_max_age_s, throttle)

    await repeat_rounds("retention", check, EVERY_S)


async def remove_leftovers(store: Store, throttle: Throttle = unthrottled) -> None:
    """Delete the checkpoints and the sticky bindings of every run that has ended, and documents of imports that came to
    nothing."""
    await _remove_lost_imports(store)
    keys = [*await store.checkpoints.keys(), *await store.sticky_bindings.keys()]
    run_ids = sorted({key.partition(".")[0] for key in keys})
    for at in range(0, len(run_ids), PAGE):
        await throttle()
        for run in await load_many(store, await _seem_ended(store, run_ids[at : at + PAGE])):
            if run.ended:
                await store.checkpoints.purge(f"{run.run_id}.>")
                await store.sticky_bindings.purge(run.run_id)


async def _remove_lost_imports(store: Store) -> None:
    """Delete documents to which no history leads: a process died between the two."""
    documents = await store.imports.keys()
    begun = await store.history.begun([run_id for run_id, _ in documents])
    for run_id, import_id in documents:
        if run_id in begun:
            continue
        entry = await store.imports.entry(run_id, import_id)
        if entry is not None and entry.at < await store.history.now() - LOST_AFTER_S:
            await store.imports.remove(run_id, import_id)


async def _seem_ended(store: Store, run_ids: Sequence[str]) -> list[str]:
    """The runs that have ended by their snapshots, and those without one whose last event may be their end: behind the
    end comes a snapshot with the first late event."""
    found = await snapshots(store, run_ids)
    last = await store.history.last_of([run_id for run_id in run_ids if run_id not in found])
    goes_on = {run_id for run_id, stored in last.items() if stored.data.startswith(BEFORE_THE_END)}
    return [run_id for run_id in run_ids if run_id not in goes_on and ((run := found.get(run_id)) is None or run.ended)]


async def remove_old_runs(store: Store, index: Path, ended_before: float, throttle: Throttle = unthrottled) -> int:
    """Remove runs that ended before this time (of the broker, s since the epoch) with all their data, but those that
    other runs need, and runs that were imported before it. Returns how many."""
    removed, cursor = await remove_old_imports(store, index, ended_before, throttle), None
    with closing(RunIndex(index)) as reader:
        while True:
            await throttle()
            page = reader.query(status=frozenset(RUN_ENDED), before=rfc3339(ended_before), limit=PAGE, cursor=cursor)
            removed += len((await prune(store, reader, page.run_ids, ended_before)).pruned)
            cursor = page.next
            if cursor is None:
                return removed


async def remove_old_imports(store: Store, index: Path, before: float, throttle: Throttle = unthrottled) -> int:
    """Remove the runs that were imported before this time of the broker, whatever their times. Returns how many."""
    removed, cursor = 0, None
    with closing(RunIndex(index)) as reader:
        while True:
            await throttle()
            page = await reader.find(Selection(imported=True), PAGE, cursor)
            marks = await store.history.last_of(page.run_ids)
            old = [run_id for run_id, mark in marks.items() if mark.at < before]
            for run_id in old:
                await store.run_data.remove(run_id, before=marks[run_id].seq + 1)
            if gone := [*old, *(run_id for run_id in page.run_ids if run_id not in marks)]:
                with closing(IndexFile(index)) as file:
                    file.forget(gone)
            removed, cursor = removed + len(old), page.next
            if cursor is None:
                return removed
