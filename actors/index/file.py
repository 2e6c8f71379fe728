"""The file of the run index: the runs by workflow, status and age, in SQLite. Calls block for the disk only.

It is a projection: it can be deleted at any time, and a file of another version or stream is deleted and written again
from the log. So it is never synced to the disk. A reader sees whole transactions: rows, totals and progress together.

A row changes with the log's events (rows.py). An end is confirmed by the run's owner, or by folding the run.
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import orjson

from penstock.actors.index import archived
from penstock.actors.index.rows import News, Row, fold
from penstock.config.process.crash_points import reached
from penstock.engine import formats
from penstock.engine.errors import Conflict
from penstock.engine.run.state import RUN_ENDED, RunStatus

FORM = 11
# a version with more events rebuilds the file, and reads those that the former one skipped
VERSION = FORM * 1000 + formats.VERSION
WRITER_WAIT_S = 5.0
WAL_PAGES = 4000
CACHED_ROWS_MAX = 20_000  # of runs that have not ended, in the writer's memory: some 10 MB
STATUS = {str(status): status for status in RunStatus}
LABELS_AT = Row._fields.index("labels")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Created_us and run_id end all indexes: each status is one sorted list, and a page merges the lists that it needs.
# A run's labels, an array of their ids, are NULL without any; of each label there is one list per status in `labelled`.
# A pause is one of them (rows.py). The list of a workflow also has how long its runs took.
# `folded` is the text without regard to case, where that differs from the text.
SCHEMA = """
CREATE TABLE runs (
    run_id TEXT PRIMARY KEY, workflow TEXT NOT NULL, status TEXT NOT NULL, created_us INTEGER NOT NULL,
    status_seq INTEGER NOT NULL, confirmed INTEGER NOT NULL, rerun_of TEXT, parent TEXT, labels TEXT,
    started_us INTEGER, took_us INTEGER
) WITHOUT ROWID;
CREATE INDEX by_rerun_of ON runs (rerun_of) WHERE rerun_of IS NOT NULL;
CREATE INDEX by_parent ON runs (parent, created_us, run_id) WHERE parent IS NOT NULL;
CREATE INDEX by_status ON runs (status, created_us, run_id);
CREATE INDEX by_workflow ON runs (workflow, status, created_us, run_id, took_us);
CREATE TABLE labels (label_id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE, folded TEXT, runs INTEGER NOT NULL);
CREATE TABLE labelled (
    label_id INTEGER NOT NULL, status TEXT NOT NULL, created_us INTEGER NOT NULL, run_id TEXT NOT NULL,
    PRIMARY KEY (label_id, status, created_us, run_id)
) WITHOUT ROWID;
CREATE TABLE totals (
    workflow TEXT NOT NULL, status TEXT NOT NULL, runs INTEGER NOT NULL, PRIMARY KEY (workflow, status)
) WITHOUT ROWID;
CREATE TABLE progress (
    stream TEXT NOT NULL, seq INTEGER NOT NULL, beat REAL NOT NULL, as_of REAL NOT NULL, whole INTEGER NOT NULL
);
"""

ROWS = "SELECT runs.* FROM json_each(?) CROSS JOIN runs ON run_id = json_each.value"
LABELS = "SELECT label_id, text FROM labels WHERE label_id IN (SELECT value FROM json_each(?))"
ADD_LABEL = """
INSERT INTO labels (text, folded, runs) VALUES (?, ?, ?)
ON CONFLICT (text) DO UPDATE SET runs = runs + excluded.runs RETURNING label_id
"""
MOVE = "UPDATE runs SET status = ?, status_seq = ?, confirmed = ?, started_us = ?, took_us = ? WHERE run_id = ?"
MOVE_LABEL = """
UPDATE labelled SET status = ?
WHERE label_id = (SELECT label_id FROM labels WHERE text = ?) AND status = ? AND created_us = ? AND run_id = ?
"""
RELABEL = """
UPDATE runs SET labels = (
    SELECT nullif(json_group_array(label_id), '[]')
    FROM (SELECT label_id FROM json_each(?) CROSS JOIN labels ON text = value ORDER BY key)
) WHERE run_id = ?
"""
UNCONFIRMED = "SELECT run_id FROM runs WHERE status_seq > confirmed"


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
    with closing(connect(path, "rwc")) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript(f"BEGIN;{SCHEMA}{archived.SCHEMA}PRAGMA user_version = {VERSION};COMMIT")
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
    with closing(connect(path, "rw")) as db:
        return [run_id for (run_id,) in db.execute(UNCONFIRMED)]


class IndexFile:
    """Writes the file. Owned by the follower that holds the lock.

    Rows of runs that have not ended are cached in memory: most changes are of such a run, and reading its row would
    cost more than all else. No other process changes a cached row: `forget` is for ended runs.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._identity = path, identity(path)
        self._db = connect(path, "rw")
        self._db.execute("PRAGMA synchronous = OFF")
        self._db.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
        self.at = read_progress(self._db)
        self._cached: dict[str, Row] = {}

    def close(self) -> None:
        self._db.close()

    def write(self, news: Sequence[News], at: IndexProgress, gone: Collection[str] = ()) -> dict[str, Row]:
        """Fold the news in, delete the rows of the runs that are `gone`, and set the progress to `at`, in one
        transaction. Returns the rows that have changed.

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
            if gone:
                changed = self._without(gone, changed)
        reached("index.written")
        self.at = at
        self._keep(changed)
        return changed

    def write_archived(self, rows: Sequence[Row], found: Sequence[archived.Archived], upto: int) -> dict[str, Row]:
        """As `write`, of runs that are archived, up to this message of the archive."""
        with self._transaction():
            changed = self._fold(rows) if rows else {}
            archived.add(self._db, found, upto)
        self._keep(changed)
        return changed

    @property
    def archive_seq(self) -> int:
        """The message up to which the archive is read."""
        return archived.read_upto(self._db)

    def forget_superseded(self, seqs: Collection[int]) -> None:
        """These messages of the archive were removed. Any process of the host may call this."""
        with self._transaction():
            archived.forget_superseded(self._db, seqs)

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
            self._delete(self._rows(run_ids))

    def _without(self, run_ids: Collection[str], changed: dict[str, Row]) -> dict[str, Row]:
        """Delete the rows of these runs, if they have ended. Returns the others of those that have changed."""
        rows = {
            run_id: row for run_id, row in self._rows(run_ids).items() if row.status in RUN_ENDED or row.unconfirmed
        }
        archived.supersede(self._db, run_ids)
        self._delete(rows)
        for run_id in rows:
            self._cached.pop(run_id, None)
        return {run_id: row for run_id, row in changed.items() if run_id not in rows}

    def _delete(self, rows: Mapping[str, Row]) -> None:
        totals = Counter((row.workflow, row.status) for row in rows.values())
        self._forget_labels([row for row in rows.values() if row.labels])
        self._db.executemany("UPDATE totals SET runs = runs - ? WHERE (workflow, status) = (?, ?)", _shares(totals))
        self._db.executemany("DELETE FROM runs WHERE run_id = ?", [(run_id,) for run_id in rows])
        archived.forget(self._db, rows)

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
        ids = self._label_ids(made)
        known = [(before[run_id], row) for run_id, row in after.items() if run_id in before]
        moved = [
            (new.status, new.status_seq, new.confirmed, new.started_us, new.took_us, new.run_id) for _, new in known
        ]
        self._db.executemany(
            "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (*row[:LABELS_AT], _ids_text(ids, row.labels) if row.labels else None, *row[LABELS_AT + 1 :])
                for row in made
            ],
        )
        self._db.executemany(MOVE, moved)
        if ids:
            self._db.executemany("INSERT INTO labelled VALUES (?, ?, ?, ?)", _labelled(made, ids))
        labelled = [(old, new) for old, new in known if old.labels or new.labels]
        self._move_labels(labelled)
        self._relabel([(old, new) for old, new in labelled if old.labels != new.labels])
        self._db.executemany(
            "INSERT INTO totals VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET runs = runs + excluded.runs",
            [(*key, count) for key, count in totals.items() if count],
        )
        return after

    def _rows(self, run_ids: Collection[str]) -> dict[str, Row]:
        found = self._db.execute(ROWS, (orjson.dumps(list(run_ids)).decode(),)).fetchall()
        ids = {row[0]: orjson.loads(row[LABELS_AT]) for row in found if row[LABELS_AT] is not None}
        texts = self._texts({label_id for each in ids.values() for label_id in each}) if ids else {}
        return {row[0]: _row(row, tuple(texts[one] for one in ids.get(row[0], ()))) for row in found}

    def _texts(self, label_ids: Collection[int]) -> dict[int, str]:
        return dict(self._db.execute(LABELS, (orjson.dumps(list(label_ids)).decode(),)))

    def _label_ids(self, rows: Iterable[Row]) -> dict[str, int]:
        """The ids of the labels of new rows, which are counted."""
        counts = Counter(text for row in rows for text in row.labels)
        return {
            text: self._db.execute(ADD_LABEL, (text, folded(text), runs)).fetchone()[0] for text, runs in counts.items()
        }

    def _move_labels(self, rows: Iterable[tuple[Row, Row]]) -> None:
        """Rows before and after: the runs' places in the lists of their labels."""
        self._db.executemany(
            MOVE_LABEL,
            [
                (new.status, text, old.status, old.created_us, old.run_id)
                for old, new in rows
                if old.status is not new.status
                for text in old.labels
            ],
        )

    def _relabel(self, rows: Sequence[tuple[Row, Row]]) -> None:
        """Rows before and after, which were moved, and are paused now, or go on."""
        if not rows:
            return
        self._forget_labels([new._replace(labels=_without(old.labels, new.labels)) for old, new in rows])
        added = [new._replace(labels=_without(new.labels, old.labels)) for old, new in rows]
        self._db.executemany("INSERT INTO labelled VALUES (?, ?, ?, ?)", _labelled(added, self._label_ids(added)))
        self._db.executemany(RELABEL, [(orjson.dumps(new.labels).decode(), new.run_id) for _, new in rows])

    def _forget_labels(self, rows: Sequence[Row]) -> None:
        counts = Counter(text for row in rows for text in row.labels)
        ids = {text: self._db.execute(ADD_LABEL, (text, None, -runs)).fetchone()[0] for text, runs in counts.items()}
        self._db.executemany(
            "DELETE FROM labelled WHERE (label_id, status, created_us, run_id) = (?, ?, ?, ?)", _labelled(rows, ids)
        )
        self._db.executemany("DELETE FROM labels WHERE label_id = ? AND runs <= 0", [(one,) for one in ids.values()])

    def _keep(self, changed: Mapping[str, Row]) -> None:
        for run_id, row in changed.items():
            if row.status in RUN_ENDED and not row.unconfirmed:
                self._cached.pop(run_id, None)
            else:
                self._cached[run_id] = row
        for run_id in list(islice(self._cached, max(0, len(self._cached) - CACHED_ROWS_MAX))):
            del self._cached[run_id]


def folded(text: str) -> str | None:
    """The text without regard to case; None where that is the text itself."""
    found = text.casefold()
    return None if found == text else found


def _row(read: tuple[Any, ...], labels: tuple[str, ...]) -> Row:
    run_id, workflow, status, *others = read
    others[LABELS_AT - 3] = labels
    return Row(run_id, workflow, STATUS[status], *others)


def _ids_text(ids: Mapping[str, int], labels: Iterable[str]) -> str:
    return orjson.dumps([ids[text] for text in labels]).decode()


def _without(labels: Iterable[str], others: Collection[str]) -> tuple[str, ...]:
    return tuple(text for text in labels if text not in others)


def _labelled(rows: Iterable[Row], ids: Mapping[str, int]) -> list[tuple[int, RunStatus, int, str]]:
    return [(ids[text], row.status, row.created_us, row.run_id) for row in rows for text in row.labels]


def _shares(totals: Mapping[tuple[str, RunStatus], int]) -> list[tuple[int, str, RunStatus]]:
    return [(count, workflow, status) for (workflow, status), count in totals.items()]


def read_progress(db: sqlite3.Connection) -> IndexProgress:
    found = db.execute("SELECT seq, as_of, whole, beat FROM progress").fetchone()
    return IndexProgress(found[0], found[1], bool(found[2]), found[3]) if found else IndexProgress()


def connect(path: Path, mode: str, wait_s: float = WRITER_WAIT_S) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(uri, uri=True, timeout=wait_s, isolation_level=None, check_same_thread=False)


def _fits(path: Path, stream: str) -> bool:
    """Whether the file is of this version and stream, and sound."""
    try:
        with closing(connect(path, "rw")) as db:
            if db.execute("PRAGMA user_version").fetchone() != (VERSION,):
                return False
            if db.execute("SELECT stream FROM progress").fetchall() != [(stream,)]:
                return False
            return bool(db.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))
    except sqlite3.DatabaseError:
        return False
