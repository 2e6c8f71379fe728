"""The file of the run index: the runs by workflow, status and age, in SQLite. Calls block for the disk only.

It is a projection: it can be deleted at any time, and a file of another version or stream is deleted and written again
from the log. So it is never synced to the disk, and is looked through for damage when the machine has started since.
A reader sees whole transactions: rows, totals and progress together.

A row changes with the log's events (rows.py). An end is confirmed by the run's owner, or by folding the run.
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from penstock.actors.index import archived
from penstock.actors.index.label_lists import LabelLists
from penstock.actors.index.queries import Place
from penstock.actors.index.rows import Change, News, Row, fold
from penstock.config.process.boot import name_since_boot
from penstock.config.process.crash_points import reached
from penstock.engine import formats
from penstock.engine.errors import Conflict
from penstock.engine.run.state import RUN_ENDED, RunStatus

FORM = 13
# a version with more events rebuilds the file, and reads those that the former one skipped
VERSION = FORM * 1000 + formats.VERSION
WRITER_WAIT_S = 5.0
WAL_PAGES = 4000
CACHE_KIB = 8000  # of pages: with 2000, SQLite's default, a bulk takes a twentieth longer
CACHED_ROWS_MAX = 20_000  # of runs that have not ended, in the writer's memory: some 10 MB
STATUS = {str(status): status for status in RunStatus}
TEXT = {status: text for text, status in STATUS.items()}  # SQLite takes plain text without asking for an adapter
LOOK_UP = 50  # writes
LABELS_AT = Row._fields.index("labels")

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
CREATE INDEX unconfirmed ON runs (run_id) WHERE status_seq > confirmed;
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
CREATE TABLE sound (name TEXT NOT NULL);
"""

ROWS = "SELECT runs.* FROM json_each(?) CROSS JOIN runs ON run_id = json_each.value"
ADD = "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
# Most runs are written like this, at their start: to bind twice as many values would take half as long again.
ADD_BEGUN = """
INSERT INTO runs (run_id, workflow, status, created_us, status_seq, confirmed, started_us)
VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?4)
"""
MOVE = "UPDATE runs SET status = ?, status_seq = ?, confirmed = ?, started_us = ?, took_us = ? WHERE run_id = ?"
UNCONFIRMED = "SELECT run_id FROM runs INDEXED BY unconfirmed WHERE status_seq > confirmed"


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
        db.execute("INSERT INTO sound VALUES (?)", (_name(path),))
        db.execute("INSERT INTO progress VALUES (?, 0, 0, 0, 0)", (stream,))  # last: without it the file is not used


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


def ends_to_confirm(path: Path) -> list[str]:
    """Ids of the runs whose status is not confirmed."""
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
        self._db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        self.at = read_progress(self._db)
        self._cached: dict[str, Row] = {}
        self._labels = LabelLists(self._db)
        self._look_up = 0  # for so many writes, runs that begin are looked for, too

    def close(self) -> None:
        self._db.close()

    def write(self, news: Sequence[News], at: IndexProgress, gone: Collection[str] = ()) -> dict[str, Row]:
        """Fold the news in, delete the rows of the runs that are `gone`, and set the progress to `at`, in one
        transaction. Returns the rows that have changed.

        Raises Unfit when the file was deleted, Conflict when another process writes to it, sqlite3.DatabaseError.
        """
        if identity(self._path) != self._identity:
            raise Unfit("the file was deleted")
        self._look_up = max(0, self._look_up - 1)
        try:
            changed = self._written(news, at, gone)
        except sqlite3.IntegrityError:  # a run that begins has a row: it was scheduled, or another began it, too
            self._look_up = LOOK_UP
            changed = self._written(news, at, gone)
        reached("index.written")
        self.at = at
        self._keep(changed)
        return changed

    def _written(self, news: Sequence[News], at: IndexProgress, gone: Collection[str]) -> dict[str, Row]:
        changed: dict[str, Row] = {}
        with self._transaction():
            self._advance(at)
            if news:
                changed = self._fold(news)
                reached("index.folded")
            if gone:
                changed = self._without(gone, changed)
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

    def list_ends(self, after: Place) -> Place | None:
        """As `archived.list_ends`. Any process of the host may call this."""
        with self._transaction():
            return archived.list_ends(self._db, after)

    def unlist_ends(self) -> None:
        """As `archived.unlist_ends`. Any process of the host may call this."""
        with self._transaction():
            archived.unlist_ends(self._db)

    def forget_ends(self, gone: Collection[Place]) -> None:
        """These do not belong in the list of ends any more. Any process of the host may call this."""
        with self._transaction():
            archived.forget_ends(self._db, gone)

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
        self._labels.forget([row for row in rows.values() if row.labels])
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
        before = self._before(news)
        after = fold(before, news)
        made = [row for run_id, row in after.items() if run_id not in before]
        moved = [(before[run_id], row) for run_id, row in after.items() if run_id in before]
        self._add(made)
        self._move(moved)
        archived.note_ends(self._db, after.values())
        totals = Counter([(row.workflow, row.status) for row in after.values()])
        totals.subtract(Counter([(old.workflow, old.status) for old, _ in moved]))
        self._db.executemany(
            "INSERT INTO totals VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET runs = runs + excluded.runs",
            [(*key, count) for key, count in totals.items() if count],
        )
        return after

    def _before(self, news: Iterable[News]) -> dict[str, Row]:
        """The rows of these runs. A run that begins is taken to have none, unless that was wrong lately: to look for
        it costs as much as to write it."""
        before: dict[str, Row] = {}
        asked: dict[str, None] = {}
        begun = set[str]()
        for one in news:
            run_id = one.run_id
            if (row := self._cached.get(run_id)) is not None:
                before[run_id] = row
            elif not self._look_up and isinstance(one, Change) and one.workflow:
                begun.add(run_id)
            elif run_id not in begun:
                asked[run_id] = None
        return before | self._rows(asked) if asked else before

    def _add(self, rows: Sequence[Row]) -> None:
        """Raises IntegrityError if there is a row of one of these runs."""
        ids = self._labels.add([row for row in rows if row.labels])
        begun, others = [], []
        for row in rows:
            if row[5:] == (row.status_seq, None, None, (), row.created_us, None):
                begun.append((row.run_id, row.workflow, TEXT[row.status], row.created_us, row.status_seq))
            else:
                labels = orjson.dumps([ids[text] for text in row.labels]).decode() if row.labels else None
                others.append((*row[:2], TEXT[row.status], *row[3:LABELS_AT], labels, *row[LABELS_AT + 1 :]))
        self._db.executemany(ADD_BEGUN, begun)
        self._db.executemany(ADD, others)

    def _move(self, rows: Sequence[tuple[Row, Row]]) -> None:
        """Rows before and after."""
        moved = [
            (TEXT[new.status], new.status_seq, new.confirmed, new.started_us, new.took_us, new.run_id)
            for _, new in rows
        ]
        self._db.executemany(MOVE, moved)
        self._labels.move(rows)

    def _rows(self, run_ids: Collection[str]) -> dict[str, Row]:
        found = self._db.execute(ROWS, (orjson.dumps(list(run_ids)).decode(),)).fetchall()
        ids = {row[0]: orjson.loads(row[LABELS_AT]) for row in found if row[LABELS_AT] is not None}
        texts = self._labels.texts({label_id for each in ids.values() for label_id in each}) if ids else {}
        return {row[0]: _row(row, tuple(texts[one] for one in ids.get(row[0], ()))) for row in found}

    def _keep(self, changed: Mapping[str, Row]) -> None:
        cached = self._cached
        for run_id, row in changed.items():
            if row.status in RUN_ENDED and row.status_seq <= row.confirmed:
                cached.pop(run_id, None)
            else:
                cached[run_id] = row
        for run_id in list(islice(cached, max(0, len(cached) - CACHED_ROWS_MAX))):
            del cached[run_id]


def _row(read: tuple[Any, ...], labels: tuple[str, ...]) -> Row:
    run_id, workflow, status, *others = read
    others[LABELS_AT - 3] = labels
    return Row(run_id, workflow, STATUS[status], *others)


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
            return _is_sound(db, _name(path))
    except sqlite3.DatabaseError:
        return False


def _is_sound(db: sqlite3.Connection, name: str) -> bool:
    """Only a crash of the machine can damage the file. To look through one of a million runs takes half a second, and
    as long as the disk needs for 300 MB after a start of the machine."""
    if name and db.execute("SELECT name FROM sound").fetchone() == (name,):
        return True
    if db.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
        return False
    with suppress(sqlite3.DatabaseError):  # the disk is full: it is looked through again at the next start
        db.execute("UPDATE sound SET name = ?", (name,))
    return True


def _name(path: Path) -> str:
    """The name of the file until the machine starts again; empty where the system has no id of its start."""
    try:
        return name_since_boot(path)
    except OSError:
        return ""
