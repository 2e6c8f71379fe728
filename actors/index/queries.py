"""The SQL that finds the runs of a selection: lists and counts.

The rows to walk over come from the smallest list that holds all runs of the selection: that of a label, of a workflow,
of a status, or what a text finds. The other conditions are checked on each of its rows. So a list takes as long as its
shortest condition allows, and only two long lists with few runs in common take long: whoever asks sets a time limit.
"""

from __future__ import annotations

import copy
import re
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import orjson
from msgspec.structs import replace

from penstock.actors.index.rows import IMPORTED_TEXT, PAUSED_TEXT, trigger_text
from penstock.actors.index.selection import GroupBy, Selection
from penstock.engine.access.scopes import matches
from penstock.engine.run.state import RUN_ENDED, RunStatus

INSTANT_US_MAX = 2**63 - 1
AFTER_ANY_ID = "\U0010ffff"
EVERY_STATUS = frozenset[str](RunStatus)
OPEN = EVERY_STATUS - RUN_ENDED  # one that has ended is not paused, though its row may say so for a while (rows.py)
ID_PREFIX = re.compile("[0-9a-f]{1,32}")
MERGED_MAX = (
    64  # labels that a text finds, or workflows: their lists are merged; of more, the runs are sorted or checked
)
SORTED_MAX = 20_000  # rows: to sort so many takes some 20 ms

Place = tuple[int, str]
"""Where a run stands in a list: when it was created (in us), then its id."""

WORKFLOWS = "SELECT DISTINCT workflow FROM totals"
LARGEST_WORKFLOWS = """
SELECT workflow FROM totals GROUP BY workflow HAVING sum(runs) > 0 ORDER BY sum(runs) DESC, workflow LIMIT ?
"""
LARGEST_TRIGGERS = """
SELECT text FROM labels WHERE text > ':' AND text < ';' AND text NOT LIKE '::%' ORDER BY runs DESC, text LIMIT ?
"""
FIND_LABEL = "SELECT label_id, runs FROM labels WHERE text = ?"
FIND_TEXT = """
SELECT label_id, runs FROM labels WHERE instr(coalesce(folded, text), ?) AND substr(text, 1, 1) <> ':'
"""
SIZE = """
SELECT coalesce(sum(runs), 0) FROM totals
WHERE (:workflow IS NULL OR workflow = :workflow) AND status IN (SELECT value FROM json_each(:statuses))
"""
SIZE_OF_PARENT = "SELECT count(*) FROM runs WHERE parent = :parent"
SIZE_OF_PREFIX = """
SELECT count(*) FROM (SELECT 1 FROM runs WHERE run_id >= :prefix AND run_id < :prefix || 'g' LIMIT :most)
"""
IN_STATUS = "d.status = :status"
IN_ALLOWED = "workflow IN (SELECT value FROM json_each(:allowed))"
SIZE_OF_ALLOWED = """
SELECT coalesce(sum(runs), 0) FROM totals WHERE workflow IN (SELECT value FROM json_each(:allowed))
"""
IN_RUN_IDS = "d.run_id IN (SELECT value FROM json_each(:run_ids))"
IN_STATUSES = "+d.status IN (SELECT value FROM json_each(:statuses))"
BOUNDS = "d.created_us >= :first AND (d.created_us, d.run_id) < (:last, :last_id)"
# The rows that a text finds. Each run is there once.
OF_TEXT = """
(SELECT status, created_us, run_id FROM json_each(:any_label) CROSS JOIN labelled ON label_id = value
 WHERE status IN (SELECT value FROM json_each(:statuses)) AND created_us >= :first AND created_us <= :last
 UNION
 SELECT status, created_us, run_id FROM runs WHERE run_id >= :text AND run_id < :text || 'g'
 AND +status IN (SELECT value FROM json_each(:statuses)) AND +created_us >= :first AND +created_us <= :last) AS d
"""  # with a +, no index is made use of: that of the ids is the right one
HAS_LABEL = """
EXISTS (SELECT 1 FROM labelled AS l
 WHERE (l.label_id, l.status, l.created_us, l.run_id) = ({label}, d.status, d.created_us, d.run_id))
"""
HAS_TEXT = """
(d.run_id >= :text AND d.run_id < :text || 'g' OR EXISTS (SELECT 1 FROM json_each({run}.labels)
 WHERE value IN (SELECT value FROM json_each(:any_label))))
"""
LIST = "SELECT d.created_us, d.run_id FROM {rows} ORDER BY d.created_us DESC, d.run_id DESC"
NTH = "SELECT d.created_us FROM {rows} ORDER BY d.created_us DESC, d.run_id DESC LIMIT 1 OFFSET :nth"
ENDS = "SELECT min(d.created_us), max(d.created_us) FROM {rows}"
OLDEST = "SELECT d.created_us, d.created_us FROM {rows} ORDER BY d.created_us LIMIT 1"
NEWEST = "SELECT d.created_us, d.created_us FROM {rows} ORDER BY d.created_us DESC LIMIT 1"
TOTALS = "SELECT d.status, count(*) FROM {rows} GROUP BY 1"
COUNTED = """
SELECT status, sum(runs) FROM totals
WHERE (:workflow IS NULL OR workflow = :workflow) AND status IN (SELECT value FROM json_each(:statuses)) GROUP BY 1
"""
TOTAL = "SELECT :status, count(*) FROM {rows}"
COUNT = """
SELECT edge.value, (
 SELECT count(*) FROM {rows}
 AND d.created_us >= max(edge.value, :first) AND d.created_us <= min(edge.value + :width - 1, :last)
) FROM json_each(:edges) AS edge
"""
TOOK = """
SELECT {run}.took_us FROM {rows} AND {run}.took_us IS NOT NULL ORDER BY d.created_us DESC LIMIT :limit
"""
COUNT_GROUPED = """
SELECT d.status, d.created_us - (d.created_us % :width + :width) % :width AS edge, count(*) FROM {rows} GROUP BY 1, 2
"""


class TimeRange(NamedTuple):
    """From `first` (us), to before `last`."""

    first: int = -INSTANT_US_MAX
    last: Place = (INSTANT_US_MAX, AFTER_ANY_ID)


class Source(NamedTuple):
    """Rows that hold all runs of a selection, as `d`. `kind` is what they are found by; `size`: they are not more."""

    kind: str
    size: int
    rows: str
    condition: str


LABELLED = Source("text", 0, "labelled AS d", f"d.label_id = :label AND {IN_STATUS}")
OF_WORKFLOW = Source("workflow", 0, "runs AS d INDEXED BY by_workflow", f"d.workflow = :workflow AND {IN_STATUS}")
OF_ALLOWED = Source("workflows", 0, OF_WORKFLOW.rows, f"d.{IN_ALLOWED} AND {IN_STATUSES}")


class RunQuery:
    """The statements for a selection, as the labels stand now. Belongs to one transaction of a reader. `in_parts`: it
    is read by spans of time, so a source of many rows is one that has them sorted."""

    def __init__(
        self, db: sqlite3.Connection, selection: Selection, span: TimeRange, *, in_parts: bool = False
    ) -> None:
        allowed = [] if selection.pattern is None else _allowed(db, selection.pattern)
        if len(allowed) == 1 and selection.workflow is None:
            selection = replace(selection, workflow=allowed[0])
        self._db, self._of, self._in_parts, self._allowed = db, selection, in_parts, allowed
        self._is_whole = span == TimeRange()
        statuses = EVERY_STATUS if selection.statuses is None else selection.statuses
        self.statuses = sorted(statuses & OPEN if selection.paused else statuses)
        self._values: dict[str, Any] = {
            "workflow": selection.workflow,
            "allowed": orjson.dumps(allowed).decode(),
            "parent": selection.parent,
            "prefix": selection.prefix,
            "run_ids": orjson.dumps(selection.run_ids or ()).decode(),
            "statuses": orjson.dumps(self.statuses).decode(),
            "open": orjson.dumps(sorted(OPEN)).decode(),
            "first": span.first,
            "last": span.last[0],
            "last_id": span.last[1],
        }
        self._texts = self._found_texts()
        self._labels = self._found_labels()
        self._by_text = selection.text is not None and (len(self._texts) != 1 or self._values["text"] is not None)
        self.source = min(self._sources(), key=lambda one: one.size)

    @property
    def empty(self) -> bool:
        """Whether no run can match: no run has one of the labels, or a workflow that may be seen."""
        return None in self._labels or (self._of.pattern is not None and not self._allowed)

    def lists(self, limit: int) -> Iterator[Iterator[Place]]:
        """Lists that hold the newest runs of the selection, each sorted, newest first. A run may be in several."""
        if self.empty:
            return
        if self.source.kind == "text" and self._is_merged:
            yield from self._lists_of_texts()
        elif self.source.kind == "workflows":
            for workflow in self._allowed:
                for status in self.statuses:
                    yield self._run(self._list(OF_WORKFLOW), workflow=workflow, status=status)
        elif self.source.kind in ("label", "workflow", "status"):
            for status in self.statuses:
                yield self._run(self._list(self.source), status=status)
        else:
            yield self._run(f"{self._list(self.source)} LIMIT :limit", limit=limit)

    def bounds(self) -> tuple[int, int] | None:
        """A span of time (us) that holds all runs of the selection, no longer than its source; None without any."""
        if self.empty:
            return None
        found = [bound for bound in self._bounds() if bound[0] is not None]
        return (min(one for one, _ in found), max(one for _, one in found)) if found else None

    def within(self, first: int, last: int) -> RunQuery:
        """The same for the runs that were created from `first` to `last` (us)."""
        part = copy.copy(self)
        part._is_whole = False
        part._values = {**self._values, "first": first, "last": last, "last_id": AFTER_ANY_ID}
        return part

    def reach(self, rows: int) -> int | None:
        """Since when (us) none of the source's sorted lists has many more than so many rows, and one has as many; None
        if none has."""
        found = (self._run(NTH.format(rows=rows_of), nth=rows - 1, **values) for rows_of, values in self._parts())
        return max((created for one in found for (created,) in one), default=None)

    @property
    def is_kept(self) -> bool:
        """Whether the numbers by status are kept anyway."""
        return self._is_whole and self.source.kind in ("workflow", "status") and not list(self._checks(self.source))

    def counts(self, edges: Sequence[int], width: int) -> Iterator[tuple[str, int, int]]:
        """Status, edge and number of runs, of the buckets of `width` us that begin at the edges."""
        if not self._is_sorted:
            yield from self._run(COUNT_GROUPED.format(rows=self._rows(self.source)), width=width)
            return
        statement = COUNT.format(rows=self._rows(self.source, bounded=False))
        for status in self.statuses:
            found = self._run(statement, edges=orjson.dumps(list(edges)).decode(), width=width, status=status)
            yield from ((status, edge, runs) for edge, runs in found)

    def totals(self) -> Iterator[tuple[str, int]]:
        """The number of runs in each status."""
        if self.empty:
            return
        rows = self._rows(self.source)
        if not self._is_sorted:
            yield from self._run(TOTALS.format(rows=rows))
            return
        if self.is_kept:
            yield from self._run(COUNTED)
            return
        for status in self.statuses:
            yield from self._run(TOTAL.format(rows=rows), status=status)

    def took(self, limit: int) -> list[int]:
        """How long the newest completed runs took, in us, the shortest first."""
        if self.empty or RunStatus.COMPLETED not in self.statuses:
            return []
        rows, run = self._rows_of(self.source, [*self._checks(self.source), "{run}.status = 'completed'"])
        found = self._run(TOOK.format(rows=rows, run=run), limit=limit, status=RunStatus.COMPLETED)
        return sorted(took for (took,) in found)

    @property
    def _is_sorted(self) -> bool:
        """Whether the source is a sorted list for each status."""
        return self.source.kind in ("label", "workflow", "status")

    @property
    def _is_merged(self) -> bool:
        return len(self._texts) <= MERGED_MAX and self.source.size > SORTED_MAX

    def _bounds(self) -> Iterator[tuple[int, int]]:
        parts = list(self._parts())
        if not parts and not self._is_sorted:
            yield next(self._run(ENDS.format(rows=self._rows(self.source))))
        for rows, values in parts:
            for statement in (OLDEST, NEWEST):
                yield from self._run(statement.format(rows=rows), **values)

    def _parts(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The sorted lists that hold all rows of the source, each with its values; none for one that is not sorted."""
        rows = self._rows(self.source, checked=False)
        if self._is_sorted:
            yield from ((rows, {"status": status}) for status in self.statuses)
        elif self._in_parts and self.source.kind == "parent":
            yield rows, {}
        elif self._in_parts and self.source.kind == "text" and self.source.size > SORTED_MAX:
            rows = self._rows(LABELLED, checked=False)
            yield from ((rows, {"status": status, "label": one}) for one in self._texts for status in self.statuses)

    def _found_labels(self) -> list[tuple[int, int] | None]:
        """Id and number of runs of each label that a run must have; None for one that no run has. A text that only one
        label contains is as that label."""
        asked = dict.fromkeys(self._of.labels)
        if self._of.trigger is not None:
            asked[trigger_text(self._of.trigger)] = None
        if self._of.imported:
            asked[IMPORTED_TEXT] = None
        if self._of.paused:
            asked[PAUSED_TEXT] = None
        found = [self._db.execute(FIND_LABEL, (text,)).fetchone() for text in asked]
        if len(self._texts) == 1 and self._values["text"] is None:
            found += self._texts.items()
        return sorted(found, key=lambda one: one[1] if one else 0)

    def _found_texts(self) -> dict[int, int]:
        """Of the labels that hold the text: their ids, with the number of runs."""
        text = self._of.text
        if text is None:
            return {}
        found = dict(self._db.execute(FIND_TEXT, (text.casefold(),)))
        self._values["any_label"] = orjson.dumps(list(found)).decode()
        self._values["text"] = text.lower() if ID_PREFIX.fullmatch(text.lower()) else None
        return found

    def _sources(self) -> Iterator[Source]:
        if self.empty:
            yield Source("none", 0, "", "")
            return
        if self._labels and self._labels[0] is not None:
            self._values["label"], size = self._labels[0]
            yield LABELLED._replace(kind="label", size=size)
        if self._by_text:
            yield from self._source_of_text()
        if self._of.parent is not None:
            size = next(self._run(SIZE_OF_PARENT))[0]
            yield Source("parent", size, "runs AS d INDEXED BY by_parent", f"d.parent = :parent AND {IN_STATUSES}")
        if self._of.prefix is not None:
            size = next(self._run(SIZE_OF_PREFIX, most=SORTED_MAX))[0]
            condition = f"d.run_id >= :prefix AND d.run_id < :prefix || 'g' AND {IN_STATUSES}"
            yield Source("prefix", size, "runs AS d", condition)
        if self._of.run_ids is not None:
            yield Source("ids", len(self._of.run_ids), "runs AS d", f"{IN_RUN_IDS} AND {IN_STATUSES}")
        others = (
            self._of.run_ids is not None
            or self._of.by_label
            or self._of.parent is not None
            or self._of.prefix is not None
        )
        by_allowed = 1 < len(self._allowed) <= MERGED_MAX and self._of.workflow is None and not self._in_parts
        size = next(self._run(SIZE))[0] if others or by_allowed else 0
        if by_allowed:
            yield OF_ALLOWED._replace(size=next(self._run(SIZE_OF_ALLOWED))[0])
        if self._of.workflow is not None:
            yield OF_WORKFLOW._replace(size=size)
        elif not self._labels:  # a label has a list for each status, which is not longer
            yield Source("status", size, "runs AS d INDEXED BY by_status", IN_STATUS)

    def _source_of_text(self) -> Iterator[Source]:
        size = sum(self._texts.values()) + len(self._texts)
        if self._values["text"] is not None:
            size += next(self._run(SIZE_OF_PREFIX, prefix=self._values["text"], most=SORTED_MAX))[0]
        is_sorted = not self._in_parts or self._values["text"] is None  # ids are not sorted by time
        if size <= SORTED_MAX or (len(self._texts) <= MERGED_MAX and is_sorted):
            yield Source("text", size, OF_TEXT, "true")

    def _lists_of_texts(self) -> Iterator[Iterator[Place]]:
        for label_id in self._texts:
            for status in self.statuses:
                yield self._run(self._list(LABELLED), status=status, label=label_id)
        if self._values["text"] is not None:
            condition = f"d.run_id >= :text AND d.run_id < :text || 'g' AND {IN_STATUSES}"
            yield self._run(self._list(Source("text", 0, "runs AS d", condition)))

    def _list(self, source: Source) -> str:
        return LIST.format(rows=self._rows(source))

    def _rows(self, source: Source, *, bounded: bool = True, checked: bool = True) -> str:
        """What stands behind FROM, up to the last condition."""
        return self._rows_of(source, list(self._checks(source)) if checked else [], bounded=bounded)[0]

    def _rows_of(self, source: Source, checks: Sequence[str], *, bounded: bool = True) -> tuple[str, str]:
        """As `_rows`, and the name of the row of the run."""
        joined, run = "", "d"
        if not source.rows.startswith("runs "):
            joined = " CROSS JOIN runs AS r ON r.run_id = d.run_id" if any("{run}" in one for one in checks) else ""
            run = "r"
        conditions = [source.condition, *([BOUNDS] if bounded else []), *(one.format(run=run) for one in checks)]
        return f"{source.rows}{joined} WHERE {' AND '.join(conditions)}", run if joined else "d"

    def _checks(self, source: Source) -> Iterator[str]:
        """The conditions that the rows of the source do not fulfil by themselves; `{run}` is the row of the run."""
        for number, one in enumerate(self._labels[1:] if source.kind == "label" else self._labels):
            assert one is not None
            self._values[f"label{number}"] = one[0]
            yield HAS_LABEL.format(label=f":label{number}")
        if self._of.imported is False and (found := self._db.execute(FIND_LABEL, (IMPORTED_TEXT,)).fetchone()):
            self._values["imported"] = found[0]
            yield f"NOT {HAS_LABEL.format(label=':imported')}"
        if self._of.paused is False and (found := self._db.execute(FIND_LABEL, (PAUSED_TEXT,)).fetchone()):
            self._values["paused"] = found[0]
            is_open = "d.status IN (SELECT value FROM json_each(:open))"
            yield f"NOT ({is_open} AND {HAS_LABEL.format(label=':paused')})"
        if self._of.workflow is not None and source.kind != "workflow":
            yield "+{run}.workflow = :workflow"
        if self._of.pattern is not None and source.kind != "workflows":
            yield f"+{{run}}.{IN_ALLOWED}"
        if self._of.parent is not None and source.kind != "parent":
            yield "+{run}.parent = :parent"
        if self._of.prefix is not None and source.kind != "prefix":
            yield "+d.run_id >= :prefix AND +d.run_id < :prefix || 'g'"
        if self._of.run_ids is not None and source.kind != "ids":
            yield f"+{IN_RUN_IDS}"
        if self._by_text and source.kind != "text":
            yield HAS_TEXT

    def _run(self, statement: str, **more: Any) -> Iterator[Any]:
        return self._db.execute(statement, {**self._values, **more})


def groups(db: sqlite3.Connection, by: GroupBy, most: int) -> list[str]:
    """The names of at most so many groups, those with most runs first."""
    if by is GroupBy.WORKFLOW:
        return [name for (name,) in db.execute(LARGEST_WORKFLOWS, (most,))]
    return [text[1:] for (text,) in db.execute(LARGEST_TRIGGERS, (most,))]


def _allowed(db: sqlite3.Connection, pattern: str) -> list[str]:
    """The workflows that match the pattern."""
    return [name for (name,) in db.execute(WORKFLOWS) if matches(pattern, name)]
