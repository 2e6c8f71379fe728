"""The file of the run index: the runs by workflow, status and age, in SQLite. Calls block for the disk only.

It is a projection: it can be deleted at any time, and a file of another version or stream is deleted and written again
from the log. So it is never synced to the disk. A reader sees whole transactions: rows, totals and progress together.

A row changes with the log's events (rows.py). An end is confirmed by the run's owner, or by folding the run.
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec
import orjson

from penstock.actors.index.rows import News, Row, fold
from penstock.config.process.crash_points import reached
from penstock.engine import formats
from penstock.engine.errors import Conflict
from penstock.engine.run.state import RUN_ENDED, RunStatus

FORM = 6
# a version with more events rebuilds the file, and reads those that the former one skipped
VERSION = FORM * 1000 + formats.VERSION
WRITER_WAIT_S = 5.0
READER_WAIT_S = 0.1  # readers never wait for the writer, only for a file that is being opened or repaired
WAL_PAGES = 4000
INSTANT_US_MAX = 2**63 - 1
AFTER_ANY_ID = "\U0010ffff"
CACHED_ROWS_MAX = 20_000  # of runs that have not ended, in the writer's memory: some 10 MB
STATUS = {str(status): status for status in RunStatus}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Created_us and run_id end both indexes: each status is one sorted list, and a page merges the lists that it needs.
SCHEMA = """
CREATE TABLE runs (
    run_id TEXT PRIMARY KEY, workflow TEXT NOT NULL, status TEXT NOT NULL, created_us INTEGER NOT NULL,
    status_seq INTEGER NOT NULL, confirmed INTEGER NOT NULL, rerun_of TEXT, parent TEXT
) WITHOUT ROWID;
CREATE INDEX by_rerun_of ON runs (rerun_of) WHERE rerun_of IS NOT NULL;
CREATE INDEX by_parent ON runs (parent, created_us, run_id) WHERE parent IS NOT NULL;
CREATE INDEX by_status ON runs (status, created_us, run_id);
CREATE INDEX by_workflow ON runs (workflow, status, created_us, run_id);
CREATE TABLE totals (
    workflow TEXT NOT NULL, status TEXT NOT NULL, runs INTEGER NOT NULL, PRIMARY KEY (workflow, status)
) WITHOUT ROWID;
CREATE TABLE progress (
    stream TEXT NOT NULL, seq INTEGER NOT NULL, beat REAL NOT NULL, as_of REAL NOT NULL, whole INTEGER NOT NULL
);
"""

NEWEST = """
SELECT created_us, run_id FROM runs
WHERE status = :status AND created_us >= :first AND (created_us, run_id) < (:last, :last_id)
ORDER BY created_us DESC, run_id DESC
"""
NEWEST_OF_WORKFLOW = NEWEST.replace("WHERE", "WHERE workflow = :workflow AND")
NEWEST_BY_PREFIX = """
SELECT created_us, run_id FROM runs
WHERE run_id >= :prefix AND run_id < :prefix || 'g'
AND (:workflow IS NULL OR workflow = :workflow) AND +status IN (SELECT value FROM json_each(:status))
AND +created_us >= :first AND (+created_us, run_id) < (:last, :last_id)
ORDER BY created_us DESC, run_id DESC LIMIT :limit
"""  # with a +, no index is made use of: that of the ids is the right one
NEWEST_CHILDREN = """
SELECT created_us, run_id FROM runs
WHERE parent = :parent AND (:prefix IS NULL OR run_id LIKE :prefix || '%')
AND (:workflow IS NULL OR +workflow = :workflow) AND +status IN (SELECT value FROM json_each(:status))
AND created_us >= :first AND (created_us, run_id) < (:last, :last_id)
ORDER BY created_us DESC, run_id DESC LIMIT :limit
"""
COUNT_MATCHING = """
SELECT count(*) FROM runs WHERE workflow = :workflow AND status = :status AND created_us >= :first
AND (created_us, run_id) < (:last, :last_id)
"""
STATUSES = "SELECT run_id, status FROM json_each(?) CROSS JOIN runs ON run_id = json_each.value"
ROWS = "SELECT runs.* FROM json_each(?) CROSS JOIN runs ON run_id = json_each.value"
UNCONFIRMED = "SELECT run_id FROM runs WHERE status_seq > confirmed"
RERUNS = """
SELECT rerun_of, run_id FROM json_each(?) CROSS JOIN runs ON rerun_of = json_each.value ORDER BY created_us, run_id
"""
COUNT = "SELECT status, sum(runs) FROM totals WHERE :workflow IS NULL OR workflow = :workflow GROUP BY status"

Place = tuple[int, str]
"""Where a run stands in a list: when it was created (in us), then its id."""


class IndexProgress(NamedTuple):
    """How far the index has read the log: a sequence, and the broker's time of it (s since the epoch).

    `whole`: it also has the runs whose first event was removed from the log before it was read. `beat` is the writer's
    last heartbeat, by the writer's clock (s since the epoch).
    """

    seq: int = 0
    as_of: float = 0.0
    whole: bool = False
    beat: float = 0.0


class Unfit(Exception):
    """The file cannot be written any further: it must be deleted and built again."""


def index_path(data_dir: str | Path) -> Path:
    """The path of a host's index."""
    return Path(data_dir) / "index" / "runs.sqlite"


def prepare(path: Path, stream: str) -> None:
    """Make sure that a sound file for this stream exists; a new one is empty. Call it with the lock held."""
    if path.exists() and _fits(path, stream):
        return
    remove(path)
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    with closing(_connect(path, "rwc")) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript(f"BEGIN;{SCHEMA}PRAGMA user_version = {VERSION};COMMIT")
        db.execute("INSERT INTO progress VALUES (?, 0, 0, 0, 0)", (stream,))


def remove(path: Path) -> None:
    """Delete the file, and its write-ahead log after it: so no process opens the file without its log."""
    for name in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        name.unlink(missing_ok=True)


def identity(path: Path) -> int:
    """The inode of the file, which differs for a new file of the same name; 0: there is none."""
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0


def instant_us(text: str) -> int | None:
    """Microseconds since the epoch of an RFC 3339 text; None for any other."""
    try:
        at = msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        return None
    return None if at.tzinfo is None else (at - EPOCH) // timedelta(microseconds=1)


def ends_to_confirm(path: Path) -> list[str]:
    """Ids of the runs whose status is not confirmed. Reads every row."""
    with closing(_connect(path, "rw")) as db:
        return [run_id for (run_id,) in db.execute(UNCONFIRMED)]


class IndexReader:
    """Reads the file, and never creates or changes it. All methods raise sqlite3.DatabaseError. Owned by a RunIndex."""

    def __init__(self, path: Path) -> None:
        self.identity = identity(path)
        self._db = _connect(path, "rw", READER_WAIT_S)

    def close(self) -> None:
        self._db.close()

    def progress(self) -> IndexProgress:
        return _progress(self._db)

    def newest(self, workflow: str | None, status: Collection[str], first: int, last: Place, limit: int) -> list[Place]:
        """Runs created at `first` or later whose place is before `last`, newest first."""
        with self._db:
            self._db.execute("BEGIN")  # all lists as of one moment
            lists = [self._sorted(workflow, one, first, last) for one in status]
            return list(islice(merge(*lists, reverse=True), limit))

    def newest_by_prefix(
        self, prefix: str, workflow: str | None, status: Collection[str], first: int, last: Place, limit: int
    ) -> list[Place]:
        """As `newest`, of the runs whose id begins so (hexadecimal characters)."""
        values = {"prefix": prefix, "workflow": workflow, "status": orjson.dumps(list(status)).decode()}
        return self._db.execute(
            NEWEST_BY_PREFIX, {**values, "first": first, "last": last[0], "last_id": last[1], "limit": limit}
        ).fetchall()

    def newest_children(
        self,
        parent: str,
        prefix: str | None,
        workflow: str | None,
        status: Collection[str],
        first: int,
        last: Place,
        limit: int,
    ) -> list[Place]:
        """As `newest`, of the runs that this run has started, whose id begins with `prefix`."""
        values = {"parent": parent, "prefix": prefix, "workflow": workflow, "first": first, "limit": limit}
        statuses = orjson.dumps(list(status)).decode()
        bounds = {"status": statuses, "last": last[0], "last_id": last[1]}
        return self._db.execute(NEWEST_CHILDREN, {**values, **bounds}).fetchall()

    def count_matching(self, workflow: str, status: Collection[str], first: int, last: Place) -> int:
        """How many runs `newest` would give without a limit."""
        bounds = {"workflow": workflow, "first": first, "last": last[0], "last_id": last[1]}
        return sum(self._db.execute(COUNT_MATCHING, {**bounds, "status": one}).fetchone()[0] for one in status)

    def statuses(self, run_ids: Collection[str]) -> dict[str, str]:
        """Unknown ones are left out."""
        return dict(self._db.execute(STATUSES, (orjson.dumps(list(run_ids)).decode(),)))

    def reruns(self, run_ids: Collection[str]) -> dict[str, str]:
        """The latest run that was started in place of each of these; those without one are left out."""
        return dict(self._db.execute(RERUNS, (orjson.dumps(list(run_ids)).decode(),)))

    def count(self, workflow: str | None) -> dict[str, int]:
        return {status: runs for status, runs in self._db.execute(COUNT, {"workflow": workflow}) if runs}

    def totals(self) -> dict[tuple[str, str], int]:
        """By workflow and status."""
        found = self._db.execute("SELECT workflow, status, runs FROM totals WHERE runs > 0")
        return {(workflow, status): runs for workflow, status, runs in found}

    def _sorted(self, workflow: str | None, status: str, first: int, last: Place) -> Iterator[Place]:
        """The runs in one status; rows are read only as far as they are needed."""
        values = {"workflow": workflow, "status": status, "first": first, "last": last[0], "last_id": last[1]}
        return self._db.execute(NEWEST if workflow is None else NEWEST_OF_WORKFLOW, values)


class IndexFile:
    """Writes the file. Owned by the follower that holds the lock.

    Rows of runs that have not ended are cached in memory: most changes are of such a run, and reading its row would
    cost more than all else. No other process changes a cached row: `forget` is for ended runs.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._identity = path, identity(path)
        self._db = _connect(path, "rw")
        self._db.execute("PRAGMA synchronous = OFF")
        self._db.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
        self.at = _progress(self._db)
        self._cached: dict[str, Row] = {}

    def close(self) -> None:
        self._db.close()

    def write(self, news: Sequence[News], at: IndexProgress) -> dict[str, Row]:
        """Fold the news in and set the progress to `at`, in one transaction. Returns the rows that have changed.

        Raises Unfit when the file was deleted, Conflict when another process writes to it, sqlite3.DatabaseError.
        """
        if identity(self._path) != self._identity:
            raise Unfit("the file was deleted")
        changed: dict[str, Row] = {}
        with self._transaction():
            self._advance(at)
            if news:
                changed = self._fold(news)
                reached("index.folded")
        reached("index.written")
        self.at = at
        self._keep(changed)
        return changed

    def unknown(self, run_ids: Collection[str]) -> list[str]:
        """Those of these runs that have no row."""
        asked = [run_id for run_id in run_ids if run_id not in self._cached]
        known = self._rows(asked) if asked else {}
        return [run_id for run_id in asked if run_id not in known]

    def forget(self, run_ids: Collection[str]) -> None:
        """Delete the rows of runs that are not in the log any more; unknown ids are ignored.

        Any process of the host may call this.
        """
        with self._transaction():
            totals = Counter((row.workflow, row.status) for row in self._rows(run_ids).values())
            self._db.executemany("UPDATE totals SET runs = runs - ? WHERE (workflow, status) = (?, ?)", _shares(totals))
            self._db.executemany("DELETE FROM runs WHERE run_id = ?", [(run_id,) for run_id in run_ids])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def _advance(self, at: IndexProgress) -> None:
        """Set the progress. Raises Conflict when another process has moved it: this one has lost its lock."""
        moved = self._db.execute(
            "UPDATE progress SET seq = ?, as_of = ?, whole = ?, beat = ? WHERE seq = ? AND whole = ?",
            (*at, self.at.seq, self.at.whole),
        )
        if moved.rowcount != 1:
            raise Conflict("another process has written to the run index")

    def _fold(self, news: Sequence[News]) -> dict[str, Row]:
        run_ids = {one.run_id for one in news}
        before = {run_id: self._cached[run_id] for run_id in run_ids & self._cached.keys()}
        before |= self._rows(run_ids - before.keys())
        after = fold(before, news)
        totals = Counter[tuple[str, RunStatus]]()
        for run_id, row in after.items():
            totals[row.workflow, row.status] += 1
            if old := before.get(run_id):
                totals[old.workflow, old.status] -= 1
        made = [row for run_id, row in after.items() if run_id not in before]
        moved = [
            (row.status, row.status_seq, row.confirmed, run_id) for run_id, row in after.items() if run_id in before
        ]
        self._db.executemany("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?)", made)
        self._db.executemany("UPDATE runs SET status = ?, status_seq = ?, confirmed = ? WHERE run_id = ?", moved)
        self._db.executemany(
            "INSERT INTO totals VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET runs = runs + excluded.runs",
            [(*key, count) for key, count in totals.items() if count],
        )
        return after

    def _rows(self, run_ids: Collection[str]) -> dict[str, Row]:
        found = self._db.execute(ROWS, (orjson.dumps(list(run_ids)).decode(),))
        return {row[0]: Row(row[0], row[1], STATUS[row[2]], *row[3:]) for row in found}

    def _keep(self, changed: Mapping[str, Row]) -> None:
        for run_id, row in changed.items():
            if row.status in RUN_ENDED and not row.unconfirmed:
                self._cached.pop(run_id, None)
            else:
                self._cached[run_id] = row
        for run_id in list(islice(self._cached, max(0, len(self._cached) - CACHED_ROWS_MAX))):
            del self._cached[run_id]


def _shares(totals: Mapping[tuple[str, RunStatus], int]) -> list[tuple[int, str, RunStatus]]:
    return [(count, workflow, status) for (workflow, status), count in totals.items()]


def _progress(db: sqlite3.Connection) -> IndexProgress:
    found = db.execute("SELECT seq, as_of, whole, beat FROM progress").fetchone()
    return IndexProgress(found[0], found[1], bool(found[2]), found[3]) if found else IndexProgress()


def _connect(path: Path, mode: str, wait_s: float = WRITER_WAIT_S) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(uri, uri=True, timeout=wait_s, isolation_level=None)


def _fits(path: Path, stream: str) -> bool:
    """Whether the file is of this version and stream, and sound."""
    try:
        with closing(_connect(path, "rw")) as db:
            if db.execute("PRAGMA user_version").fetchone() != (VERSION,):
                return False
            if db.execute("SELECT stream FROM progress").fetchall() != [(stream,)]:
                return False
            return bool(db.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))
    except sqlite3.DatabaseError:
        return False
