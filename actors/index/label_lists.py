"""The sorted lists of runs by label, in the file of the run index: written together with the rows (file.py).

Each distinct label has an id, and a list of its runs for each status. A run's row has the ids of its labels.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import orjson

from penstock.actors.index.rows import Row
from penstock.engine.run.state import RunStatus

TEXTS = "SELECT label_id, text FROM labels WHERE label_id IN (SELECT value FROM json_each(?))"
ADD = """
INSERT INTO labels (text, folded, runs) VALUES (?, ?, ?)
ON CONFLICT (text) DO UPDATE SET runs = runs + excluded.runs RETURNING label_id
"""
ADD_TO_LIST = "INSERT INTO labelled VALUES (?, ?, ?, ?)"
MOVE = """
UPDATE labelled SET status = ?
WHERE label_id = (SELECT label_id FROM labels WHERE text = ?) AND status = ? AND created_us = ? AND run_id = ?
"""
RELABEL = """
UPDATE runs SET labels = (
    SELECT nullif(json_group_array(label_id), '[]')
    FROM (SELECT label_id FROM json_each(?) CROSS JOIN labels ON text = value ORDER BY key)
) WHERE run_id = ?
"""


class LabelLists:
    """Owned by the writer of the file; its caller has a transaction open."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def texts(self, label_ids: Collection[int]) -> dict[int, str]:
        return dict(self._db.execute(TEXTS, (orjson.dumps(list(label_ids)).decode(),)))

    def add(self, rows: Sequence[Row]) -> dict[str, int]:
        """Put new rows into the lists of their labels. Returns the ids of these labels."""
        counts = Counter(text for row in rows for text in row.labels)
        ids = {text: self._db.execute(ADD, (text, folded(text), runs)).fetchone()[0] for text, runs in counts.items()}
        if ids:
            self._db.executemany(ADD_TO_LIST, _places(rows, ids))
        return ids

    def move(self, rows: Iterable[tuple[Row, Row]]) -> None:
        """Rows before and after: their places in the lists, and what the row says of its labels."""
        labelled = [(old, new) for old, new in rows if old.labels or new.labels]
        self._db.executemany(
            MOVE,
            [
                (new.status, text, old.status, old.created_us, old.run_id)
                for old, new in labelled
                if old.status is not new.status
                for text in old.labels
            ],
        )
        self._relabel([(old, new) for old, new in labelled if old.labels != new.labels])

    def forget(self, rows: Sequence[Row]) -> None:
        """Take rows out of the lists of their labels."""
        counts = Counter(text for row in rows for text in row.labels)
        ids = {text: self._db.execute(ADD, (text, None, -runs)).fetchone()[0] for text, runs in counts.items()}
        self._db.executemany(
            "DELETE FROM labelled WHERE (label_id, status, created_us, run_id) = (?, ?, ?, ?)", _places(rows, ids)
        )
        self._db.executemany("DELETE FROM labels WHERE label_id = ? AND runs <= 0", [(one,) for one in ids.values()])

    def _relabel(self, rows: Sequence[tuple[Row, Row]]) -> None:
        """Rows before and after, which were moved, and are paused now, or go on."""
        if not rows:
            return
        self.forget([new._replace(labels=_without(old.labels, new.labels)) for old, new in rows])
        self.add([new._replace(labels=_without(new.labels, old.labels)) for old, new in rows])
        self._db.executemany(RELABEL, [(orjson.dumps(new.labels).decode(), new.run_id) for _, new in rows])


def folded(text: str) -> str | None:
    """The text without regard to case; None where that is the text itself."""
    found = text.casefold()
    return None if found == text else found


def _without(labels: Iterable[str], others: Collection[str]) -> tuple[str, ...]:
    return tuple(text for text in labels if text not in others)


def _places(rows: Iterable[Row], ids: Mapping[str, int]) -> list[tuple[int, RunStatus, int, str]]:
    return [(ids[text], row.status, row.created_us, row.run_id) for row in rows for text in row.labels]
