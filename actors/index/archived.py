"""Which runs are archived, and where: a table of the run index, and the rows of such runs.

Where runs are archived, those that have ended and are not archived stand in the list `ends`, in the order of their
ends. Whoever follows the log adds to it, whoever archives takes from it.

Of a run that was archived more than once, the message with more of its history counts; of two with the same, the later.
The other one is listed as superseded until somebody has removed it from the archive, as is that of a removed run.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import orjson

from penstock.actors.index.queries import Place
from penstock.actors.index.rows import Row, label_texts
from penstock.broker.archive.archived_runs import ArchivedRun
from penstock.engine.run.state import RUN_ENDED

SCHEMA = """
CREATE TABLE archived (run_id BLOB PRIMARY KEY, seq INTEGER NOT NULL, last_seq INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE superseded (seq INTEGER PRIMARY KEY);
CREATE TABLE archive (seq INTEGER NOT NULL, listed INTEGER NOT NULL);
INSERT INTO archive VALUES (0, 0);
CREATE TABLE ends (
    ended_us INTEGER NOT NULL, run_id TEXT NOT NULL, PRIMARY KEY (ended_us, run_id)
) WITHOUT ROWID;
"""
PAGE = 2000  # runs: their histories are in memory together
NOT_LISTED, ARE_LISTED, LISTED = range(3)  # the list is not kept; those of before are being added; it has all
RUNS_OF_STATUS = """
SELECT created_us, run_id, status_seq, started_us, took_us FROM runs
WHERE status = ? AND (created_us, run_id) > (?, ?) ORDER BY created_us, run_id LIMIT ?
"""
ENDS = """
SELECT ended_us, ends.run_id, created_us, status_seq FROM ends LEFT JOIN runs ON runs.run_id = ends.run_id
AND coalesce(started_us + took_us, created_us) = ended_us AND status IN (SELECT value FROM json_each(?))
WHERE (ended_us, ends.run_id) > (?, ?) AND ended_us < ? ORDER BY ended_us, ends.run_id LIMIT ?
"""
NOTED = "SELECT run_id, seq FROM archived WHERE run_id > ? AND seq > ? ORDER BY run_id LIMIT ?"
OF_RUN = "SELECT seq, last_seq FROM archived WHERE run_id = ?"

FIRST: Place = (-(2**62), "")


class Archived(NamedTuple):
    """The message of the archive that has a run, and the last sequence of the run's history that is in it."""

    run_id: str
    seq: int
    last_seq: int


class RunEnd(NamedTuple):
    """A run that has ended, when it did, and when it was created (us)."""

    run_id: str
    ended_us: int
    created_us: int


class EndsPage(NamedTuple):
    """A page of the list. `gone` are places of runs that do not belong in it any more; `next` is where the next page
    begins, None: there is none."""

    runs: list[RunEnd]
    gone: list[Place]
    next: Place | None


def row_of(run: ArchivedRun) -> Row:
    """The row of an archived run."""
    head = run.head
    labels = label_texts(head.labels, head.trigger)
    known = (head.workflow, head.status, head.created_us, 0, run.last_seq, head.rerun_of, head.parent, labels)
    return Row(run.run_id, *known, head.started_us, head.took_us)


def add(db: sqlite3.Connection, found: Sequence[Archived], upto: int) -> None:
    """Note these runs, and that the archive is read up to this message. Belongs to the transaction of the rows."""
    known = {one.run_id: one for one in _among(db, [one.run_id for one in found])}
    superseded = []
    for one in found:
        other = known.get(one.run_id)
        if other is not None and other.seq != one.seq:
            kept = max(other, one, key=lambda each: (each.last_seq, each.seq))
            superseded.append((one if kept is other else other).seq)
            one = kept
        known[one.run_id] = one
    rows = [(bytes.fromhex(one.run_id), one.seq, one.last_seq) for one in known.values()]
    db.executemany("INSERT OR REPLACE INTO archived VALUES (?, ?, ?)", rows)
    db.executemany("INSERT OR IGNORE INTO superseded VALUES (?)", [(seq,) for seq in superseded])
    db.execute("UPDATE archive SET seq = ?", (upto,))


def forget(db: sqlite3.Connection, run_ids: Iterable[str]) -> None:
    """Delete what is noted of these runs."""
    ids = [(bytes.fromhex(run_id),) for run_id in run_ids if _is_hex(run_id)]
    db.executemany("DELETE FROM archived WHERE run_id = ?", ids)


def supersede(db: sqlite3.Connection, run_ids: Iterable[str]) -> None:
    """Note that nobody needs what the archive has of these runs, which were removed."""
    db.executemany("INSERT OR IGNORE INTO superseded VALUES (?)", [(one.seq,) for one in _among(db, run_ids)])


def forget_superseded(db: sqlite3.Connection, seqs: Iterable[int]) -> None:
    db.executemany("DELETE FROM superseded WHERE seq = ?", [(seq,) for seq in seqs])


def places(db: sqlite3.Connection, run_ids: Iterable[str]) -> dict[str, int]:
    """The messages of those of these runs that are archived."""
    return {one.run_id: one.seq for one in _among(db, run_ids)}


def read_upto(db: sqlite3.Connection) -> int:
    """The message up to which the archive is read."""
    return int(db.execute("SELECT seq FROM archive").fetchone()[0])


def superseded(db: sqlite3.Connection) -> list[int]:
    return [seq for (seq,) in db.execute("SELECT seq FROM superseded")]


def ends(db: sqlite3.Connection, after: Place, before_us: int) -> EndsPage:
    """Runs of the list that ended before this time, behind a place in it, in order."""
    rows = db.execute(ENDS, (orjson.dumps(sorted(RUN_ENDED)).decode(), *after, before_us, PAGE)).fetchall()
    known = {one.run_id: one.last_seq for one in _among(db, [row[1] for row in rows])}
    runs, gone = list[RunEnd](), list[Place]()
    for ended_us, run_id, created_us, seq in rows:
        if seq is not None and seq > known.get(run_id, -1):
            runs.append(RunEnd(run_id, ended_us, created_us))
        else:
            gone.append((ended_us, run_id))
    return EndsPage(runs, gone, rows[-1][:2] if len(rows) == PAGE else None)


def note_ends(db: sqlite3.Connection, rows: Iterable[Row]) -> None:
    """Add those of these rows to the list that have ended, if it is kept. Belongs to the transaction of the rows."""
    if _listed(db) != NOT_LISTED:
        found = (
            (_ended_us(row.created_us, row.started_us, row.took_us), row.run_id)
            for row in rows
            if row.status in RUN_ENDED
        )
        db.executemany("INSERT OR IGNORE INTO ends VALUES (?, ?)", found)


def forget_ends(db: sqlite3.Connection, gone: Iterable[Place]) -> None:
    db.executemany("DELETE FROM ends WHERE (ended_us, run_id) = (?, ?)", gone)


def list_ends(db: sqlite3.Connection, after: Place) -> Place | None:
    """Keep the list from now on, and add a page of the runs behind a place by their creation that ended before. Returns
    where the next page begins; None: the list has all."""
    if _listed(db) == LISTED:
        return None
    rows = [row for status in RUN_ENDED for row in db.execute(RUNS_OF_STATUS, (status, *after, PAGE))]
    rows.sort()
    rows = rows[:PAGE]
    known = {one.run_id: one.last_seq for one in _among(db, [row[1] for row in rows])}
    found = [(_ended_us(row[0], *row[3:]), row[1]) for row in rows if row[2] > known.get(row[1], -1)]
    db.executemany("INSERT OR IGNORE INTO ends VALUES (?, ?)", found)
    following = rows[-1][:2] if len(rows) == PAGE else None
    db.execute("UPDATE archive SET listed = ?", (LISTED if following is None else ARE_LISTED,))
    return following


def unlist_ends(db: sqlite3.Connection) -> None:
    """Keep the list no more."""
    if _listed(db) != NOT_LISTED:
        db.execute("DELETE FROM ends")
        db.execute("UPDATE archive SET listed = ?", (NOT_LISTED,))


def _listed(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT listed FROM archive").fetchone()[0])


def _ended_us(created_us: int, started_us: int | None, took_us: int | None) -> int:
    return created_us if started_us is None or took_us is None else started_us + took_us


def noted(db: sqlite3.Connection, after: str, since: int) -> list[tuple[str, int]]:
    """Archived runs and their messages, of ids behind this one, and messages behind that one, in the order of ids."""
    return [(run_id.hex(), seq) for run_id, seq in db.execute(NOTED, (bytes.fromhex(after), since, PAGE))]


def _among(db: sqlite3.Connection, run_ids: Iterable[str]) -> list[Archived]:
    found = ((run_id, db.execute(OF_RUN, (bytes.fromhex(run_id),)).fetchone()) for run_id in run_ids if _is_hex(run_id))
    return [Archived(run_id, *row) for run_id, row in found if row is not None]


def _is_hex(run_id: str) -> bool:
    try:
        return bytes.fromhex(run_id).hex() == run_id
    except ValueError:
        return False
