"""The run index for readers: lists and counts of runs, out of a file that one process of the host writes (follower.py).

A reader that must see what was written before asks for the log's last sequence and waits until the index has it.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from penstock.actors.index.archived import EndsPage
from penstock.actors.index.file import IndexProgress, identity
from penstock.actors.index.instants import instant_us
from penstock.actors.index.queries import AFTER_ANY_ID, INSTANT_US_MAX, Place, TimeRange
from penstock.actors.index.reader import Counted, CreatedRuns, GroupedRuns, IndexReader, Overdue, Took, TooManyBuckets
from penstock.actors.index.selection import GroupBy, Selection
from penstock.config.limits import (
    RUNS_LISTED_DEFAULT,
    SEARCH_S_MAX,
    STATS_BUCKETS_MAX,
    STATS_DURATIONS_MAX,
    STATS_GROUPS_MAX,
)
from penstock.engine.definition import durations
from penstock.engine.definition.identifiers import quoted
from penstock.engine.errors import Invalid, Unavailable
from penstock.engine.times import rfc3339
from penstock.telemetry.metrics import LABELS_MAX, OTHER

POLL_S = 0.002
ALIVE_S = 3.0
SEARCHES_AT_ONCE = 2  # each has a thread, and may keep a core busy

T = TypeVar("T")


class RunPage(Struct, frozen=True):
    """Run ids, newest first; `next` is the cursor of the next page, None on the last."""

    run_ids: list[str]
    next: str | None


class RunIndex:
    """A reader, owned by one front-end process. The file may not exist yet, and may be replaced at any time."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.path, self._clock = path, clock
        self._file: IndexReader | None = None
        self._seq, self._seq_read_at = 0, 0.0
        self._searching = asyncio.Semaphore(SEARCHES_AT_ONCE)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None

    async def there(self, timeout_s: float) -> None:
        """Return once there is a file that can be read, or after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while not self._is_readable():
            if time.monotonic() >= deadline:
                return
            await asyncio.sleep(POLL_S)

    async def caught_up(self, seq: int, timeout_s: float) -> bool:
        """Wait at most `timeout_s` until the index has the log up to this sequence. Returns whether it has."""
        deadline = time.monotonic() + timeout_s
        while self._progress() < seq:
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(POLL_S)
        return True

    def query(
        self,
        workflow: str | None = None,
        status: frozenset[str] | None = None,
        after: str | None = None,
        before: str | None = None,
        limit: int = RUNS_LISTED_DEFAULT,
        cursor: str | None = None,
    ) -> RunPage:
        """As `find`, at once: by what never takes long."""
        wanted = Selection(workflow=workflow, statuses=status, after=after, before=before)
        span = _span(wanted, cursor)
        with self._reading() as file:
            return _page(file, wanted, span, limit)

    async def find(self, wanted: Selection, limit: int = RUNS_LISTED_DEFAULT, cursor: str | None = None) -> RunPage:
        """The newest runs of the selection beyond the cursor, at most `limit`.

        Raises Invalid for a bad bound or cursor, and for a search by labels that takes longer than 5 s; Unavailable
        without a file.
        """
        span = _span(wanted, cursor)
        if wanted.may_take_long:
            return await self._searched(lambda file: _page(file, wanted, span, limit))
        with self._reading() as file:
            return _page(file, wanted, span, limit)

    async def count_matching(self, wanted: Selection, cursor: str | None = None) -> int:
        """How many runs `find` would give beyond `cursor`. Raises as `find`."""
        span = _span(wanted, cursor)
        return await self._searched(lambda file: file.count_of(wanted, span))

    async def grouped_stats(
        self, wanted: Selection, by: GroupBy, width: timedelta | None = None
    ) -> dict[str, GroupedRuns]:
        """As `stats`, of each workflow or trigger that has such runs, at most 500: those with most runs of all."""
        span = _span(wanted, None)
        width_us = None if width is None else width // timedelta(microseconds=1)
        try:
            return await self._searched(
                lambda file: file.grouped_buckets(wanted, span, width_us, STATS_BUCKETS_MAX, by, STATS_GROUPS_MAX)
            )
        except TooManyBuckets as error:
            raise Invalid(_too_many(error)) from error

    async def durations(self, selections: Sequence[Selection]) -> list[Took | None]:
        """For each of these selections, how long its newest 1,000 completed runs took. All have the same bounds of
        time. Raises as `find`."""
        if not selections:
            return []
        span = _span(selections[0], None)
        return await self._searched(lambda file: file.durations(selections, span, STATS_DURATIONS_MAX))

    async def stats(self, wanted: Selection, width: timedelta | None = None) -> list[CreatedRuns]:
        """The runs of the selection by status and time of creation, the oldest first: in buckets of this width, each
        beginning at a multiple of it, those without runs left out; None: in one, that begins with the oldest.

        Raises as `find`, and Invalid for more than 2,000 buckets.
        """
        span = _span(wanted, None)
        width_us = None if width is None else width // timedelta(microseconds=1)
        try:
            return await self._searched(lambda file: file.buckets(wanted, span, width_us, STATS_BUCKETS_MAX))
        except TooManyBuckets as error:
            raise Invalid(_too_many(error)) from error

    async def stats_within(self, wanted: Selection, width: timedelta | None, within_s: float) -> Counted:
        """As `stats`, counted from the newest run backwards, and for so long only. Raises as `stats`."""
        span = _span(wanted, None)
        width_us = None if width is None else width // timedelta(microseconds=1)
        try:
            return await self._searched(
                lambda file: file.counted_back(wanted, span, width_us, STATS_BUCKETS_MAX, within_s, self._clock)
            )
        except TooManyBuckets as error:
            raise Invalid(_too_many(error)) from error

    def archived(self, run_ids: Collection[str]) -> tuple[dict[str, int], int]:
        """Where those of these runs are that are archived, and up to which message of the archive that is known. Raises
        Unavailable without a file."""
        with self._reading() as file:
            return file.archived(run_ids)

    def superseded(self) -> list[int]:
        """Messages of the archive whose runs it has in others. Raises Unavailable without a file."""
        with self._reading() as file:
            return file.superseded()

    def ends(self, after: Place, before_us: int) -> EndsPage:
        """As `archived.ends`. Raises Unavailable without a file."""
        with self._reading() as file:
            return file.ends(after, before_us)

    def noted_archived(self, after: str, since: int) -> list[tuple[str, int]]:
        """As `archived.noted`. Raises Unavailable without a file."""
        with self._reading() as file:
            return file.noted_archived(after, since)

    def statuses(self, run_ids: Collection[str]) -> dict[str, str]:
        """The status of each of these runs; unknown ones are left out. Raises Unavailable without a file."""
        with self._reading() as file:
            return file.statuses(run_ids)

    def begun(self, run_ids: Collection[str]) -> dict[str, int]:
        """The sequence of the first event of those of these runs whose status nothing has changed since. Raises
        Unavailable without a file."""
        with self._reading() as file:
            return file.begun(run_ids)

    def count(self, workflow: str | None = None) -> dict[str, int]:
        """How many runs (of one workflow) are in each status; those without any are left out. Raises Unavailable
        without a file."""
        with self._reading() as file:
            return file.count(workflow)

    def totals(self) -> dict[tuple[str, str], int]:
        """How many runs there are by workflow and status; workflows beyond the 100 largest together. Raises Unavailable
        without a file."""
        with self._reading() as file:
            totals = file.totals()
        runs = Counter[str]()
        for (workflow, _), number in totals.items():
            runs[workflow] += number
        shown = {workflow for workflow, _ in runs.most_common(LABELS_MAX)}
        found = Counter[tuple[str, str]]()
        for (workflow, status), number in totals.items():
            found[workflow if workflow in shown else OTHER, status] += number
        return found

    def progress(self) -> IndexProgress:
        """How far the index has read the log; `IndexProgress()` without a file."""
        try:
            with self._reading() as file:
                return file.progress()
        except Unavailable:
            return IndexProgress()

    def reruns(self, run_ids: Collection[str]) -> dict[str, str]:
        """The latest run that was started in place of each of these, where there is one. Raises Unavailable without a
        file."""
        with self._reading() as file:
            return file.reruns(run_ids)

    def needed(self, run_ids: Collection[str]) -> dict[str, str]:
        """Which of these runs have children or reruns that have not ended, with a text that names one. Raises
        Unavailable without a file."""
        with self._reading() as file:
            return file.needed(run_ids)

    def alive(self) -> bool:
        """Whether a follower has written a heartbeat in the last 3 s."""
        try:
            with self._reading() as file:
                return abs(time.time() - file.progress().beat) < ALIVE_S
        except Unavailable:
            return False

    async def _searched(self, search: Callable[[IndexReader], T]) -> T:
        """What the search finds, in a thread of its own: it may take long."""
        async with self._searching:
            return await asyncio.to_thread(self._search, search)

    def _search(self, search: Callable[[IndexReader], T]) -> T:
        there = identity(self.path)
        if not there:
            raise Unavailable("the run index is not there yet")
        try:
            with closing(IndexReader(self.path)) as file, file.limited(SEARCH_S_MAX):
                return search(file)
        except sqlite3.DatabaseError as error:
            raise Unavailable(f"the run index cannot be read: {error}") from error
        except Overdue as error:
            raise Invalid(
                f"the runs that match cannot be found within {SEARCH_S_MAX:g} s: narrow after and before"
            ) from error

    def _is_readable(self) -> bool:
        """Whether the file has been read before, or can be read now: a new file has no tables for a moment."""
        there = identity(self.path)
        if there and self._file is not None and self._file.identity == there:
            return True
        try:
            with self._reading() as file:
                file.progress()
        except Unavailable:
            return False
        return True

    def _progress(self) -> int:
        """The sequence of the log that the index has, read once per POLL_S / 2 for all callers that wait."""
        now = time.monotonic()
        if now - self._seq_read_at >= POLL_S / 2:
            self._seq, self._seq_read_at = self.progress().seq, now
        return self._seq

    @contextmanager
    def _reading(self) -> Iterator[IndexReader]:
        """The file that is there now. Raises Unavailable when it is not there or not sound."""
        there = identity(self.path)
        if self._file is None or self._file.identity != there:
            self.close()
        if not there:
            raise Unavailable("the run index is not there yet")
        try:
            self._file = self._file or IndexReader(self.path)
            yield self._file
        except sqlite3.DatabaseError as error:
            self.close()
            raise Unavailable(f"the run index cannot be read: {error}") from error


def _page(file: IndexReader, wanted: Selection, span: TimeRange, limit: int) -> RunPage:
    found = file.newest(wanted, span, limit + 1)
    following = _cursor(found[limit - 1]) if len(found) > limit else None
    return RunPage([run_id for _, run_id in found[:limit]], following)


def _span(wanted: Selection, cursor: str | None) -> TimeRange:
    """Raises Invalid for a bad bound or cursor."""
    first = _instant("after", wanted.after, -INSTANT_US_MAX)
    return TimeRange(first, min((_instant("before", wanted.before, INSTANT_US_MAX), AFTER_ANY_ID), _place(cursor)))


def _too_many(error: TooManyBuckets) -> str:
    """What is wrong with the width of buckets, and which is not too small."""
    first, last = (rfc3339(at / 1e6) for at in (error.first, error.last))
    least_s = max(1, -(-(error.last - error.first) // (STATS_BUCKETS_MAX - 1) // 1_000_000))
    return (
        f"bucket makes {error.number} buckets from {first} to {last}, {STATS_BUCKETS_MAX} is the most: "
        f"use {durations.text(least_s)} or more, or narrow after and before"
    )


def _instant(name: str, text: str | None, otherwise: int) -> int:
    if text is None:
        return otherwise
    found = instant_us(text)
    if found is None:
        raise Invalid(f"{name} {quoted(text)} is not an RFC 3339 time")
    return found


def _cursor(last: Place) -> str:
    return f"{last[0]}.{last[1]}"


def _place(cursor: str | None) -> Place:
    if cursor is None:
        return INSTANT_US_MAX, AFTER_ANY_ID
    created, _, run_id = cursor.partition(".")
    if not created.removeprefix("-").isdecimal() or len(created) > 18 or not run_id:
        raise Invalid(f"cursor {quoted(cursor)} is not one that this service has returned")
    return int(created), run_id
