"""The run index for readers: lists and counts of runs, out of a file that one process of the host writes (follower.py).

A reader that must see what was written before asks for the log's last sequence and waits until the index has it.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from penstock.actors.index.file import (
    AFTER_ANY_ID,
    INSTANT_US_MAX,
    IndexProgress,
    IndexReader,
    Place,
    identity,
    instant_us,
)
from penstock.config.limits import RUNS_LISTED_DEFAULT
from penstock.engine.definition.identifiers import quoted
from penstock.engine.errors import Invalid, Unavailable
from penstock.engine.run.state import RunStatus
from penstock.telemetry.metrics import LABELS_MAX, OTHER

POLL_S = 0.002
ALIVE_S = 3.0
EVERY_STATUS = frozenset[str](RunStatus)


class RunPage(Struct, frozen=True):
    """Run ids, newest first; `next` is the cursor of the next page, None on the last."""

    run_ids: list[str]
    next: str | None


class RunIndex:
    """A reader, owned by one front-end process. The file may not exist yet, and may be replaced at any time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IndexReader | None = None
        self._seq, self._seq_read_at = 0, 0.0

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
        prefix: str | None = None,
        parent: str | None = None,
    ) -> RunPage:
        """The newest runs that match, at most `limit`: of one workflow, in one of these statuses, created within these
        bounds, with an id that begins with `prefix` (hexadecimal characters), started by the run `parent`.

        The bounds are RFC 3339 and belong to the range. Raises Invalid for a bad bound or cursor, Unavailable without a
        file.
        """
        first = _instant("after", after, -INSTANT_US_MAX)
        last = min((_instant("before", before, INSTANT_US_MAX), AFTER_ANY_ID), _place(cursor))
        wanted = (workflow, EVERY_STATUS if status is None else status, first, last, limit + 1)
        with self._reading() as file:
            if parent is not None:
                found = file.newest_children(parent, prefix, *wanted)
            else:
                found = file.newest(*wanted) if prefix is None else file.newest_by_prefix(prefix, *wanted)
        return RunPage(
            [run_id for _, run_id in found[:limit]], _cursor(found[limit - 1]) if len(found) > limit else None
        )

    def count_matching(
        self,
        workflow: str,
        status: frozenset[str],
        after: str | None = None,
        before: str | None = None,
        cursor: str | None = None,
    ) -> int:
        """How many runs `query` would give beyond `cursor`. Raises as `query`."""
        first = _instant("after", after, -INSTANT_US_MAX)
        last = min((_instant("before", before, INSTANT_US_MAX), AFTER_ANY_ID), _place(cursor))
        with self._reading() as file:
            return file.count_matching(workflow, status, first, last)

    def statuses(self, run_ids: Collection[str]) -> dict[str, str]:
        """The status of each of these runs; unknown ones are left out. Raises Unavailable without a file."""
        with self._reading() as file:
            return file.statuses(run_ids)

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

    def alive(self) -> bool:
        """Whether a follower has written a heartbeat in the last 3 s."""
        try:
            with self._reading() as file:
                return abs(time.time() - file.progress().beat) < ALIVE_S
        except Unavailable:
            return False

    def _is_readable(self) -> bool:
        """Whether the file has been read before, or can be read now: a new file has no tables for a moment."""
        there = identity(self._path)
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
        there = identity(self._path)
        if self._file is None or self._file.identity != there:
            self.close()
        if not there:
            raise Unavailable("the run index is not there yet")
        try:
            self._file = self._file or IndexReader(self._path)
            yield self._file
        except sqlite3.DatabaseError as error:
            self.close()
            raise Unavailable(f"the run index cannot be read: {error}") from error


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
