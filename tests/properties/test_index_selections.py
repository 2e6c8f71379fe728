"""What the index finds for a selection is what a filter over all rows finds, whatever list it walks over."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.actors.index import counting, queries, reader
from penstock.actors.index.file import IndexFile, connect, prepare
from penstock.actors.index.instants import instant_us
from penstock.actors.index.rows import DUE_TEXT, PAUSED_TEXT, Row, State, trigger_text, with_pause
from penstock.actors.index.run_index import RunIndex, RunPage
from penstock.actors.index.selection import Selection
from penstock.engine.run.state import RUN_ENDED, RunStatus

EXAMPLES = int(os.environ.get("PROPERTY_EXAMPLES", "0"))
SECOND_US = 1_000_000
EPOCH_US = instant_us("2026-01-01T00:00:00Z") or 0
TEXTS = ("a:1", "a:2", "b:Straße", "b:", "c:a:1", "beef:x")
RUN_IDS = st.integers(0, 200).map(lambda n: f"{n % 3:08x}{n:024x}")
ROWS = st.dictionaries(
    RUN_IDS,
    st.tuples(
        st.sampled_from(["v", "va", "w"]),
        st.sampled_from(list(RunStatus)),
        st.integers(0, 9),
        st.none() | st.just(f"{1:032x}"),
        st.lists(st.sampled_from([*TEXTS, trigger_text("t")]), unique=True, max_size=4),
        st.sampled_from([(), (), (PAUSED_TEXT,), (PAUSED_TEXT, DUE_TEXT)]),
    ),
    max_size=25,
).map(lambda found: [_row(run_id, *fields) for run_id, fields in found.items()])
MOMENTS = st.none() | st.integers(0, 9).map(lambda s: f"2026-01-01T00:00:0{s}Z")
SELECTIONS = st.builds(
    Selection,
    workflow=st.sampled_from([None, None, "v", "x"]),
    statuses=st.none() | st.frozensets(st.sampled_from([*map(str, RunStatus)]), max_size=4),
    after=MOMENTS,
    before=MOMENTS,
    prefix=st.sampled_from([None, None, None, f"{1:08x}"]),
    parent=st.sampled_from([None, None, None, f"{1:032x}"]),
    trigger=st.sampled_from([None, None, "t", "u"]),
    labels=st.lists(st.sampled_from([*TEXTS, "no:such"]), unique=True, max_size=2).map(tuple),
    pattern=st.sampled_from([None, None, "v*", "va*", "*", "x*"]),
    text=st.sampled_from([None, None, "A:", "strasse", "1", "0", "beef", "00000001", "none", ":t", "paused"]),
    paused=st.sampled_from([None, None, True, False]),
)


def _row(
    run_id: str,
    workflow: str,
    status: RunStatus,
    second: int,
    parent: str | None,
    labels: list[str],
    pause: tuple[str, ...] = (),
) -> Row:
    return Row(run_id, workflow, status, EPOCH_US + second * SECOND_US, 0, 9, None, parent, (*labels, *pause))


def matches(row: Row, wanted: Selection) -> bool:
    """The filter, in plain words."""
    first, last = instant_us(wanted.after or ""), instant_us(wanted.before or "")
    own = [text for text in row.labels if not text.startswith(":")]
    by_text = wanted.text is None or (
        any(wanted.text.casefold() in text.casefold() for text in own) or row.run_id.startswith(wanted.text.lower())
    )
    return (
        wanted.workflow in (None, row.workflow)
        and (wanted.statuses is None or row.status in wanted.statuses)
        and (first is None or row.created_us >= first)
        and (last is None or row.created_us <= last)
        and (wanted.prefix is None or row.run_id.startswith(wanted.prefix))
        and wanted.parent in (None, row.parent)
        and (wanted.trigger is None or trigger_text(wanted.trigger) in row.labels)
        and set(wanted.labels) <= set(row.labels)
        and by_text
        and (wanted.pattern is None or row.workflow.startswith(wanted.pattern[:-1]))
        and wanted.paused in (None, PAUSED_TEXT in row.labels and row.status not in RUN_ENDED)
    )


@pytest.mark.parametrize(("merged", "sorted_"), [(64, 20_000), (64, 0), (0, 0)], ids=["sort", "merge", "check"])
@settings(max_examples=EXAMPLES or 100, deadline=None)
@given(rows=ROWS, wanted=SELECTIONS, width=st.integers(1, 4))
def test_lists_and_numbers_are_those_of_a_filter(
    merged: int, sorted_: int, rows: list[Row], wanted: Selection, width: int
) -> None:
    expected = sorted((row for row in rows if matches(row, wanted)), key=_place, reverse=True)
    bounds = patch.multiple(queries, MERGED_MAX=merged, SORTED_MAX=sorted_)
    with bounds, _index(rows) as index, asyncio.Runner() as runner:
        pages = [*_pages(runner.run, index, wanted)]
        assert [row.run_id for row in expected] == [run_id for page in pages for run_id in page.run_ids]
        assert len(expected) == runner.run(index.count_matching(wanted))
        found = runner.run(index.stats(wanted, timedelta(seconds=width)))
        assert _counted(expected, width * SECOND_US) == {one.at: one.counts for one in found}
        assert [one.at for one in found] == sorted(one.at for one in found)
        assert len(expected) == sum(sum(one.counts.values()) for one in runner.run(index.stats(wanted)))


@pytest.mark.parametrize(("merged", "sorted_"), [(64, 20_000), (64, 0), (0, 0)], ids=["sort", "parts", "check"])
@settings(max_examples=EXAMPLES or 60, deadline=None)
@given(
    rows=ROWS,
    wanted=SELECTIONS,
    width=st.none() | st.integers(1, 4),
    rows_first=st.integers(1, 4),
    within_s=st.integers(0, 80),
    steps=st.sampled_from([30, 20_000]),
)
def test_numbers_within_a_time_are_those_of_all_runs_since_then(
    merged: int,
    sorted_: int,
    rows: list[Row],
    wanted: Selection,
    width: int | None,
    rows_first: int,
    within_s: int,
    steps: int,
) -> None:
    """The clock moves by a second whenever somebody looks at it, also while a statement runs."""
    bounds = patch.multiple(queries, MERGED_MAX=merged, SORTED_MAX=sorted_)
    paces = patch.object(counting, "ROWS_FIRST", rows_first), patch.object(reader, "CHECKED_EVERY", steps)
    span = None if width is None else timedelta(seconds=width)
    with bounds, paces[0], paces[1], _index(rows, count().__next__) as index, asyncio.Runner() as runner:
        found = runner.run(index.stats_within(wanted, span, within_s))
        whole = runner.run(index.stats_within(wanted, span, 1e9))
    matching = [row for row in rows if matches(row, wanted)]
    counted = [row for row in matching if found.since is None or row.created_us >= found.since]
    for numbers, expected in ((found, counted), (whole, matching)):
        if width is None:
            statuses = Counter(str(row.status) for row in expected)
            assert [statuses] * bool(expected) == [one.counts for one in numbers.buckets]
        else:
            assert _counted(expected, width * SECOND_US) == {one.at: one.counts for one in numbers.buckets}
    assert whole.since is None


@settings(max_examples=EXAMPLES or 50, deadline=None)
@given(rows=ROWS, gone=st.integers(0, 25))
def test_of_forgotten_runs_nothing_is_left(rows: list[Row], gone: int) -> None:
    left, forgotten = rows[gone:], rows[:gone]
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "runs.sqlite"
        _write(path, rows)
        with closing(IndexFile(path)) as file:
            file.forget([row.run_id for row in forgotten])
        with closing(connect(path, "rw")) as db:
            labels = dict(db.execute("SELECT text, runs FROM labels"))
            (count,) = db.execute("SELECT count(*) FROM labelled").fetchone()
    texts = [text for row in left for text in row.labels]
    assert {text: texts.count(text) for text in texts} == labels
    assert len(texts) == count


def test_a_run_without_labels_has_no_row_for_them() -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "runs.sqlite"
        _write(path, [_row("0" * 32, "w", RunStatus.FAILED, 0, None, [])])
        with closing(connect(path, "rw")) as db:
            assert [(None,)] == db.execute("SELECT labels FROM runs").fetchall()
            assert [(0,), (0,)] == db.execute(
                "SELECT count(*) FROM labels UNION ALL SELECT count(*) FROM labelled"
            ).fetchall()


def _place(row: Row) -> tuple[int, str]:
    return row.created_us, row.run_id


def _write(path: Path, rows: Sequence[Row]) -> None:
    """Each run begins, and comes to its status later, or is paused; every other one was paused before."""
    prepare(path, "s")
    with closing(IndexFile(path)) as file:
        begun = [row._replace(status=RunStatus.RUNNING, labels=with_pause(row.labels)) for row in rows]
        paused = [row._replace(labels=(*row.labels, PAUSED_TEXT)) for row in begun[::2]]
        file.write([*paused, *begun[1::2]], file.at)
    with closing(IndexFile(path)) as file:  # which has no row in memory
        states = [State(row.run_id, row.status, 9, 9, row.labels[len(with_pause(row.labels)) :]) for row in rows]
        file.write(states, file.at)


@contextmanager
def _index(rows: Sequence[Row], clock: Callable[[], float] = time.monotonic) -> Iterator[RunIndex]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "runs.sqlite"
        _write(path, rows)
        with closing(RunIndex(path, clock)) as index:
            yield index


def _pages(run: Callable[[Any], Any], index: RunIndex, wanted: Selection) -> Iterator[RunPage]:
    cursor: str | None = None
    while True:
        page = run(index.find(wanted, 3, cursor))
        yield page
        if (cursor := page.next) is None:
            return


def _counted(rows: Sequence[Row], width_us: int) -> dict[int, dict[str, int]]:
    found: dict[int, Counter[str]] = {}
    for row in rows:
        found.setdefault(row.created_us // width_us * width_us, Counter())[str(row.status)] += 1
    return {at: dict(counts) for at, counts in found.items()}
