"""Retention: removes checkpoints and sticky bindings of ended runs, and runs that ended long ago."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path

from penstock.actors.index.file import IndexFile
from penstock.actors.index.run_index import RunIndex
from penstock.actors.maintenance.rounds import PAGE, Throttle, repeat_rounds, unthrottled
from penstock.actors.runs.loading import load_many, snapshots
from penstock.broker.store import Store
from penstock.config.logging import get_logger
from penstock.engine.run.state import RUN_ENDED, Run
from penstock.engine.times import rfc3339

EVERY_S = 10.0

log = get_logger()


async def apply_retention(store: Store, index: Path, runs_max_age_s: float | None) -> None:
    """Apply retention every EVERY_S, for ever. `index` is the run index's file; without an age, runs stay."""

    async def check(throttle: Throttle) -> None:
        await remove_leftovers(store, throttle)
        if runs_max_age_s is not None:
            await remove_old_runs(store, index, await store.history.now() - runs_max_age_s, throttle)

    await repeat_rounds("retention", check, EVERY_S)


async def remove_leftovers(store: Store, throttle: Throttle = unthrottled) -> None:
    """Delete the checkpoints and the sticky bindings of every run that has ended."""
    keys = [*await store.checkpoints.keys(), *await store.sticky_bindings.keys()]
    run_ids = sorted({key.partition(".")[0] for key in keys})
    for at in range(0, len(run_ids), PAGE):
        await throttle()
        for run in await load_many(store, await _seem_ended(store, run_ids[at : at + PAGE])):
            if run.ended:
                await store.checkpoints.purge(f"{run.run_id}.>")
                await store.sticky_bindings.purge(run.run_id)


async def _seem_ended(store: Store, run_ids: Sequence[str]) -> list[str]:
    """The runs that have ended by their snapshots, and the runs without one. A snapshot is written when a run ends."""
    found = await snapshots(store, run_ids)
    return [run_id for run_id in run_ids if (run := found.get(run_id)) is None or run.ended]


async def remove_old_runs(store: Store, index: Path, ended_before: float, throttle: Throttle = unthrottled) -> int:
    """Delete runs that ended before this time (of the broker, s since the epoch) with all their data. Returns how
    many."""
    removed, cursor = 0, None
    with closing(RunIndex(index)) as reader:
        while True:
            await throttle()
            page = reader.query(status=frozenset(RUN_ENDED), before=rfc3339(ended_before), limit=PAGE, cursor=cursor)
            removed += await _remove(store, index, page.run_ids, ended_before)
            cursor = page.next
            if cursor is None:
                return removed


async def _remove(store: Store, index: Path, run_ids: list[str], ended_before: float) -> int:
    runs = await load_many(store, run_ids)
    old = [
        run.run_id for run in runs if _ended_before(run, ended_before) and await _ends_before(store, run, ended_before)
    ]
    for run_id in old:
        await store.remove_run(run_id)
    gone = [*old, *(set(run_ids) - {run.run_id for run in runs})]
    if gone:
        with closing(IndexFile(index)) as file:
            file.forget(gone)
    return len(old)


def _ended_before(run: Run, at: float) -> bool:
    return run.ended and datetime.fromisoformat(run.finished_at or run.created_at).timestamp() < at


async def _ends_before(store: Store, run: Run, at: float) -> bool:
    """Whether the run's last event is that old by the broker's clock: the times in a run come from other hosts' clocks,
    which may be wrong."""
    last = await store.history.at(run.run_id, run.seq)
    return last is None or last.at < at  # its log may be gone before it
