"""One page of runs: ids from the index, the runs themselves from the store. And numbers of runs, out of the index."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from penstock.actors.imports.reading import read_many
from penstock.actors.index.reader import Counted, CreatedRuns, Took
from penstock.actors.index.run_index import RunIndex
from penstock.actors.runs.outputs import left_behind
from penstock.broker.store import Store
from penstock.client.views import DurationsView, RunStats, StatsBucket, StatsGroup
from penstock.config.limits import MIB
from penstock.engine.run.state import Run
from penstock.engine.times import rfc3339
from penstock.http.messages.run_filters import Filter, StatsFilter

CHUNK = 250
PAGE_BYTES_MAX = 32 * MIB


class RunsPage(Struct, frozen=True):
    """`next` is the cursor of the next page, None at the end."""

    runs: list[Run]
    next: str | None


async def page(store: Store, index: RunIndex, wanted: Filter) -> RunsPage:
    """Up to `limit` runs from the index, fewer when they are large. Raises Invalid for an unknown cursor, Unavailable
    without an index."""
    runs: list[Run] = []
    cursor, size = wanted.cursor, 0
    while True:
        limit = min(CHUNK, wanted.limit - len(runs))
        found = await index.find(wanted.selection, limit, cursor)
        loaded = await read_many(store, found.run_ids, index.begun(found.run_ids))
        runs += (run for run in loaded if _matches(run, wanted))
        cursor, size = found.next, size + sum(map(_size, loaded))
        if cursor is None or len(runs) >= wanted.limit or size >= PAGE_BYTES_MAX:
            return RunsPage(runs, cursor)


def _matches(run: Run, wanted: Filter) -> bool:
    """Whether the run still is as the index says."""
    paused = wanted.selection.paused
    return wanted.status in (None, run.status) and paused in (None, run.pause is not None)


def _size(run: Run) -> int:
    """Total size of its input and outputs in bytes, wherever they are stored."""
    outputs = (memoryview(step.output).nbytes for step in run.steps.values() if step.output)
    return memoryview(run.input).nbytes + sum(outputs) + sum(kept.size for kept in left_behind(run))


async def numbers(index: RunIndex, wanted: StatsFilter) -> RunStats:
    """Raises as the index does."""
    if wanted.within_s is not None:
        return _counted(await index.stats_within(wanted.selection, wanted.width, wanted.within_s))
    found = await index.stats(wanted.selection, wanted.width)
    took = await index.durations([wanted.selection]) if wanted.durations else [None]
    return RunStats(_total(found), _buckets(found), _durations(took[0]), await _groups(index, wanted))


async def _groups(index: RunIndex, wanted: StatsFilter) -> list[StatsGroup] | None:
    """Those with runs, by name; None if they are not asked for."""
    if wanted.by is None:
        return None
    by = wanted.by.value
    found = sorted((await index.grouped_stats(wanted.selection, wanted.by, wanted.width)).items())
    selections = [replace(wanted.selection, **{by: name}) for name, _ in found]
    took = await index.durations(selections) if wanted.durations else [None] * len(found)
    return [
        StatsGroup(name, _total(one.buckets), rfc3339(one.newest / 1e6), _buckets(one.buckets), _durations(durations))
        for (name, one), durations in zip(found, took, strict=True)
    ]


def _counted(found: Counted) -> RunStats:
    since = None if found.since is None else rfc3339(found.since / 1e6)
    return RunStats(_total(found.buckets), _buckets(found.buckets), complete=since is None, since=since)


def _total(found: Iterable[CreatedRuns]) -> int:
    return sum(sum(bucket.counts.values()) for bucket in found)


def _buckets(found: Iterable[CreatedRuns]) -> list[StatsBucket]:
    return [StatsBucket(rfc3339(one.at / 1e6), one.counts) for one in found]


def _durations(found: Took | None) -> DurationsView | None:
    return None if found is None else DurationsView(found.runs, found.p50 / 1000, found.p99 / 1000)
