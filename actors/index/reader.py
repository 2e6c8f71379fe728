"""Reading the file of the run index: pages and counts of runs, in one transaction each."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from heapq import merge
from itertools import groupby, islice
from pathlib import Path
from typing import NamedTuple

import orjson
from msgspec.structs import replace

from penstock.actors.index import archived
from penstock.actors.index.archived import EndsPage
from penstock.actors.index.counting import BackwardCount
from penstock.actors.index.file import IndexProgress, connect, identity, read_progress
from penstock.actors.index.queries import Place, RunQuery, TimeRange, groups
from penstock.actors.index.selection import GroupBy, Selection
from penstock.engine.run.state import RUN_ENDED

READER_WAIT_S = 0.1  # readers never wait for the writer, only for a file that is being opened or repaired
CHECKED_EVERY = 20_000  # steps of SQLite's machine, about 1 ms: whether the time is over
STATUSES = "SELECT run_id, status FROM json_each(?) CROSS JOIN runs ON run_id = json_each.value"
# Only its first event makes a run start at the time at which it was created.
BEGUN = """
SELECT run_id, status_seq FROM json_each(?) CROSS JOIN runs ON run_id = json_each.value
WHERE status = 'running' AND started_us = created_us
"""
RERUNS = """
SELECT rerun_of, run_id FROM json_each(?) CROSS JOIN runs ON rerun_of = json_each.value ORDER BY created_us, run_id
"""
NEEDED = """
SELECT json_each.value, 'its child, run ' || run_id, status FROM json_each(:run_ids)
CROSS JOIN runs INDEXED BY by_parent ON runs.parent = json_each.value
WHERE status NOT IN (SELECT value FROM json_each(:ended))
UNION ALL
SELECT json_each.value, 'its rerun, run ' || run_id, status FROM json_each(:run_ids)
CROSS JOIN runs INDEXED BY by_rerun_of ON rerun_of = json_each.value
WHERE status NOT IN (SELECT value FROM json_each(:ended))
"""
COUNT = "SELECT status, sum(runs) FROM totals WHERE :workflow IS NULL OR workflow = :workflow GROUP BY status"


class CreatedRuns(NamedTuple):
    """Runs that were created from `at` (us) on, by status."""

    at: int
    counts: dict[str, int]


class Counted(NamedTuple):
    """Numbers of runs, of those that were created from `since` (us) on; None: of all."""

    buckets: list[CreatedRuns]
    since: int | None


class GroupedRuns(NamedTuple):
    """The runs of a workflow or trigger, and when the newest of them was created (us)."""

    buckets: list[CreatedRuns]
    newest: int


class Took(NamedTuple):
    """Of so many completed runs, the newest: within `p50` us half of them, within `p99` us nearly all."""

    runs: int
    p50: int
    p99: int


class Overdue(Exception):
    """The answer takes longer than it may."""


class TooManyBuckets(Exception):
    """So many buckets would begin between the first and the last run."""

    def __init__(self, number: int, first: int, last: int) -> None:
        super().__init__(number)
        self.number, self.first, self.last = number, first, last


class IndexReader:
    """Reads the file, and never creates or changes it. All methods raise sqlite3.DatabaseError. Owned by a RunIndex,
    and used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.identity = identity(path)
        self._db = connect(path, "rw", READER_WAIT_S)

    def close(self) -> None:
        self._db.close()

    def progress(self) -> IndexProgress:
        return read_progress(self._db)

    def newest(self, wanted: Selection, span: TimeRange, limit: int) -> list[Place]:
        """At most so many runs of the selection, newest first."""
        with self._moment():
            return self._newest(wanted, span, limit)

    def count_of(self, wanted: Selection, span: TimeRange) -> int:
        """How many runs there are in the selection."""
        with self._moment():
            return sum(runs for _, runs in RunQuery(self._db, wanted, span).totals())

    def buckets(self, wanted: Selection, span: TimeRange, width: int | None, most: int) -> list[CreatedRuns]:
        """The runs of the selection by status and time, the oldest first: in buckets of `width` us, each beginning at
        a multiple of it, those without runs left out; None: in one, that begins with the oldest.

        Raises TooManyBuckets for more than `most`.
        """
        with self._moment():
            return self._buckets(wanted, span, width, most)

    def counted_back(
        self,
        wanted: Selection,
        span: TimeRange,
        width: int | None,
        most: int,
        time_s: float,
        clock: Callable[[], float],
    ) -> Counted:
        """As `buckets`, counted from the newest run backwards until the clock has moved so far; some 2,000 rows are
        looked through in any case."""
        end = clock() + time_s
        with self._moment():
            query = RunQuery(self._db, wanted, span, in_parts=True)
            ends = query.bounds()
            if ends is None:
                return Counted([], None)
            if width is not None:
                _edges(ends, width, most)
            count = BackwardCount(query, ends, width)
            count.step()
            with suppress(Overdue), self.limited(end - clock(), clock):
                count.go_on(end, clock)
        buckets = [CreatedRuns(at, dict(count.buckets[at])) for at in sorted(count.buckets)]
        return Counted(buckets, None if count.is_complete else count.since)

    def grouped_buckets(
        self, wanted: Selection, span: TimeRange, width: int | None, most: int, by: GroupBy, groups_max: int
    ) -> dict[str, GroupedRuns]:
        """As `buckets`, of each workflow or trigger that has any; of those with most runs, at most `groups_max`."""
        with self._moment():
            found: dict[str, GroupedRuns] = {}
            for name in groups(self._db, by, groups_max):
                if getattr(wanted, by.value) in (None, name):
                    own = replace(wanted, **{by.value: name})
                    if buckets := self._buckets(own, span, width, most):
                        found[name] = GroupedRuns(buckets, self._newest(own, span, 1)[0][0])
            return found

    def durations(self, selections: Sequence[Selection], span: TimeRange, most: int) -> list[Took | None]:
        """For each selection, how long its newest runs took, of those that have completed; None without any."""
        with self._moment():
            return [_durations(RunQuery(self._db, one, span).took(most)) for one in selections]

    def _newest(self, wanted: Selection, span: TimeRange, limit: int) -> list[Place]:
        found = merge(*RunQuery(self._db, wanted, span).lists(limit), reverse=True)
        return list(islice((place for place, _ in groupby(found)), limit))

    def _buckets(self, wanted: Selection, span: TimeRange, width: int | None, most: int) -> list[CreatedRuns]:
        query = RunQuery(self._db, wanted, span)
        ends = query.bounds()
        if ends is None:
            return []
        if width is None:
            counts = {status: runs for status, runs in query.totals() if runs}
            return [CreatedRuns(ends[0], counts)] if counts else []
        edges = _edges(ends, width, most)
        found: dict[int, dict[str, int]] = {}
        for status, edge, runs in query.counts(edges, width):
            if runs:
                found.setdefault(edge, {})[status] = runs
        return [CreatedRuns(edge, found[edge]) for edge in sorted(found)]

    def archived(self, run_ids: Collection[str]) -> tuple[dict[str, int], int]:
        """Where those of these runs are that are archived, and up to which message the archive is read."""
        upto = archived.read_upto(self._db)  # first: what is found is not older
        return archived.places(self._db, run_ids), upto

    def superseded(self) -> list[int]:
        return archived.superseded(self._db)

    def ends(self, after: Place, before_us: int) -> EndsPage:
        """As `archived.ends`."""
        return archived.ends(self._db, after, before_us)

    def noted_archived(self, after: str, since: int) -> list[tuple[str, int]]:
        """As `archived.noted`."""
        return archived.noted(self._db, after, since)

    def statuses(self, run_ids: Collection[str]) -> dict[str, str]:
        """Unknown ones are left out."""
        return dict(self._db.execute(STATUSES, (orjson.dumps(list(run_ids)).decode(),)))

    def begun(self, run_ids: Collection[str]) -> dict[str, int]:
        """The sequence of the first event of those of these runs that have only begun, as far as the index knows."""
        return dict(self._db.execute(BEGUN, (orjson.dumps(list(run_ids)).decode(),)))

    def reruns(self, run_ids: Collection[str]) -> dict[str, str]:
        """The latest run that was started in place of each of these; those without one are left out."""
        return dict(self._db.execute(RERUNS, (orjson.dumps(list(run_ids)).decode(),)))

    def needed(self, run_ids: Collection[str]) -> dict[str, str]:
        """Which of these runs have children or reruns that have not ended, with a text that names one."""
        values = {"run_ids": orjson.dumps(list(run_ids)).decode(), "ended": orjson.dumps(sorted(RUN_ENDED)).decode()}
        return {run_id: f"{other}, is {status}" for run_id, other, status in self._db.execute(NEEDED, values)}

    def count(self, workflow: str | None) -> dict[str, int]:
        return {status: runs for status, runs in self._db.execute(COUNT, {"workflow": workflow}) if runs}

    def totals(self) -> dict[tuple[str, str], int]:
        """By workflow and status."""
        found = self._db.execute("SELECT workflow, status, runs FROM totals WHERE runs > 0")
        return {(workflow, status): runs for workflow, status, runs in found}

    @contextmanager
    def limited(self, time_s: float, clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
        """Whatever is read in the block may take so long; then Overdue is raised."""
        end = clock() + time_s
        self._db.set_progress_handler(lambda: clock() >= end, CHECKED_EVERY)
        try:
            yield
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                raise Overdue from error
            raise
        finally:
            self._db.set_progress_handler(None, 0)

    @contextmanager
    def _moment(self) -> Iterator[None]:
        """All that is read in the block is as of one moment."""
        with self._db:
            self._db.execute("BEGIN")
            yield


def _edges(ends: tuple[int, int], width: int, most: int) -> range:
    """Where the buckets between these ends begin. Raises TooManyBuckets for more than `most`."""
    edges = range(ends[0] // width * width, ends[1] + 1, width)
    if len(edges) > most:
        raise TooManyBuckets(len(edges), *ends)
    return edges


def _durations(took: Sequence[int]) -> Took | None:
    """The 50th and the 99th percentile: the least duration that so many of them do not exceed. Sorted ones."""
    if not took:
        return None
    p50, p99 = (took[-(-len(took) * part // 100) - 1] for part in (50, 99))
    return Took(len(took), p50, p99)
