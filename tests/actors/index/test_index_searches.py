"""Searches of the run index: what they read, and that they end."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from msgspec.structs import replace

from penstock.actors.index import counting, reader, run_index
from penstock.actors.index.counting import BackwardCount
from penstock.actors.index.file import IndexFile, connect, index_path, prepare
from penstock.actors.index.queries import RunQuery, TimeRange
from penstock.actors.index.reader import Took
from penstock.actors.index.rows import PAUSED_TEXT, Row
from penstock.actors.index.run_index import RunIndex
from penstock.actors.index.selection import GroupBy, Selection
from penstock.config.limits import STATS_DURATIONS_MAX
from penstock.engine.errors import Invalid
from penstock.engine.run.state import RunStatus
from penstock.engine.times import rfc3339

RUNS = 3000
UNITED = ("SCAN d", "SCAN CONSTANT ROW")  # what the parts of a union have found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An index in which half of the runs have one label, and each has one of a thousand values of another; one in a
    hundred runs, and half of these are paused."""
    path = index_path(tmp_path)
    prepare(path, "s")
    with closing(IndexFile(path)) as file:
        file.write([_row(number) for number in range(RUNS)], file.at)
    return path


@pytest.fixture
def index(path: Path) -> Iterator[RunIndex]:
    with closing(RunIndex(path)) as opened:
        yield opened


def _row(number: int) -> Row:
    labels = [f"half:{number % 2}", f"many:{number % 1000}", *([PAUSED_TEXT] if number % 200 == 0 else [])]
    status = RunStatus.RUNNING if number % 100 == 0 else RunStatus.COMPLETED
    return Row(f"{number:032x}", f"w{number % 5}", status, number, 0, 0, None, None, tuple(labels), number, number)


@pytest.mark.parametrize(
    ("wanted", "kind"),
    [
        (Selection(), "status"),
        (Selection(workflow="w1"), "workflow"),
        (Selection(labels=("half:1",)), "label"),
        (Selection(labels=("half:1",), workflow="w1"), "workflow"),
        (Selection(labels=("half:1", "many:7"), workflow="w1"), "label"),
        (Selection(text="half:0", workflow="w1"), "workflow"),
        (Selection(text="many:7"), "text"),
        (Selection(text="many:77", workflow="w1"), "text"),
        (Selection(labels=("half:1",), prefix="0" * 31), "prefix"),
        (Selection(paused=True), "label"),
        (Selection(paused=True, workflow="w0", labels=("half:0",)), "label"),
        (Selection(paused=True, labels=("many:200",)), "label"),
        (Selection(paused=False, labels=("many:7",)), "label"),
        (Selection(paused=False, workflow="w1"), "workflow"),
        (Selection(labels=("half:1",), statuses=frozenset({"running"})), "label"),
        (Selection(pattern="w1*"), "workflow"),
        (Selection(pattern="?1"), "workflow"),
        (Selection(pattern="w[12]"), "workflows"),
        (Selection(pattern="w[12]", labels=("many:7",)), "label"),
        (Selection(pattern="x*"), "none"),
        (Selection(pattern="x*", workflow="w1"), "none"),
    ],
)
def test_a_search_walks_over_the_shortest_list(path: Path, wanted: Selection, kind: str) -> None:
    with closing(connect(path, "rw")) as db:
        query = RunQuery(db, wanted, TimeRange())
        assert kind == query.source.kind
        assert RUNS > query.source.size


@pytest.mark.parametrize(
    "wanted",
    [
        Selection(labels=("half:1",)),
        Selection(labels=("half:1", "many:7"), workflow="w1"),
        Selection(text="half:1"),
        Selection(text="many:7"),
        Selection(text="half:", workflow="w1"),
        Selection(labels=("half:1",), statuses=frozenset({"failed"})),
        Selection(paused=True),
        Selection(paused=True, workflow="w0", text="half:"),
        Selection(paused=False, workflow="w0"),
    ],
)
def test_no_statement_of_a_search_reads_a_whole_table_of_runs(path: Path, wanted: Selection) -> None:
    statements: list[str] = []
    with closing(connect(path, "rw")) as db:
        query = RunQuery(db, wanted, TimeRange())
        db.set_trace_callback(statements.append)
        for found in query.lists(10):
            list(found)
        list(query.totals())
        db.set_trace_callback(None)
        plans = [(one, row[3]) for one in statements for row in db.execute(f"EXPLAIN QUERY PLAN {one}")]
    assert len(statements) >= 2
    scans = [(one, plan) for one, plan in plans if plan.startswith("SCAN") and "json_each" not in plan]
    assert [] == [plan for one, plan in scans if not ("UNION" in one and plan in UNITED)]
    assert any("SEARCH" in plan for _, plan in plans)


def test_a_list_of_paused_runs_walks_over_these_alone(path: Path) -> None:
    """However many there are beside them: 15 of 3,000."""
    with closing(connect(path, "rw")) as db:
        for wanted, runs in (
            (Selection(paused=True), 15),
            (Selection(paused=True, statuses=frozenset({"running"}), workflow="w0"), 15),
            (Selection(paused=True, labels=("half:1",)), 0),
        ):
            query = RunQuery(db, wanted, TimeRange())
            assert (15, runs) == (query.source.size, sum(len(list(found)) for found in query.lists(100)))
        ended = RunQuery(db, Selection(paused=True, statuses=frozenset({"completed"})), TimeRange())
        assert [] == [*ended.lists(100)]


async def test_a_search_that_takes_too_long_is_refused_and_the_next_one_is_answered(
    index: RunIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = Selection(labels=("half:1",), text="many:")
    monkeypatch.setattr(reader, "CHECKED_EVERY", 10)
    monkeypatch.setattr(run_index, "SEARCH_S_MAX", 0.0)
    for asked in (index.find(wanted), index.stats(wanted), index.count_matching(wanted)):
        with pytest.raises(Invalid, match="cannot be found within 0 s: narrow after and before"):
            await asked
    monkeypatch.setattr(run_index, "SEARCH_S_MAX", 5.0)
    assert RUNS // 2 == await index.count_matching(wanted)


def test_a_label_and_a_status_that_never_meet_are_found_without_looking_at_any_run(path: Path) -> None:
    """The list of the label is longer than that of the status, but not the part of it that has the status."""
    with closing(connect(path, "rw")) as db:
        query = RunQuery(db, Selection(labels=("half:1",), statuses=frozenset({"running"})), TimeRange())
        steps = count()
        db.set_progress_handler(lambda: next(steps) < 0, 1)
        assert [] == [place for found in query.lists(100) for place in found]
    assert RUNS / 100 > next(steps)


def test_runs_of_a_few_workflows_are_found_without_looking_at_any_other_run(path: Path) -> None:
    """No list has them all and no others."""
    row = _row(RUNS)
    with closing(IndexFile(path)) as file:
        file.write([row._replace(run_id=f"{RUNS + n:032x}", workflow=f"rare-{n}") for n in range(2)], file.at)
    with closing(connect(path, "rw")) as db:
        query = RunQuery(db, Selection(pattern="rare-*"), TimeRange())
        steps = count()
        db.set_progress_handler(lambda: next(steps) < 0, 1)
        found = {run_id for one in query.lists(100) for _, run_id in one}
    assert {f"{RUNS + n:032x}" for n in range(2)} == found
    assert RUNS / 2 > next(steps)


NEARLY_ALL = [
    Selection(statuses=frozenset({"completed", "running"}), before="2262-01-01T00:00:00Z"),
    Selection(labels=("half:1",)),
    Selection(text="many:"),
    Selection(text="half:", workflow="w1"),
    Selection(pattern="w*"),
    Selection(paused=False),
]


@pytest.mark.parametrize("wanted", NEARLY_ALL)
async def test_the_more_time_there_is_the_more_runs_are_counted(
    path: Path, index: RunIndex, monkeypatch: pytest.MonkeyPatch, wanted: Selection
) -> None:
    monkeypatch.setattr(counting, "ROWS_FIRST", 50)
    whole = await index.stats(wanted)
    counted: list[int] = []
    for within_s in (0, 6, 10, 1000):
        with closing(RunIndex(path, count().__next__)) as limited:
            found = await limited.stats_within(wanted, None, within_s)
        assert [whole[0].at] == [one.at for one in found.buckets]  # of the oldest run, though it may not be counted
        if found.since is not None:
            since = rfc3339(found.since / 1e6)
            assert found.buckets[0].counts == (await index.stats(replace(wanted, after=since)))[0].counts
        counted.append(sum(found.buckets[0].counts.values()))
    assert 0 < counted[0] < counted[1] < counted[2] < counted[3] == sum(whole[0].counts.values())


@pytest.mark.parametrize("wanted", NEARLY_ALL)
async def test_what_is_read_stops_when_the_time_is_over(
    path: Path, monkeypatch: pytest.MonkeyPatch, wanted: Selection
) -> None:
    """The second span is all the rest, and the time ends while it is read."""
    monkeypatch.setattr(counting, "ROWS_FIRST", 50)
    monkeypatch.setattr(reader, "CHECKED_EVERY", 100)
    monkeypatch.setattr(BackwardCount, "step", _then_all_the_rest(BackwardCount.step))
    seconds = count()
    with closing(RunIndex(path, seconds.__next__)) as limited:
        found = await limited.stats_within(wanted, None, 10)
    assert found.since is not None
    assert 10 < next(seconds) < 15


def _then_all_the_rest(step: Callable[[BackwardCount], None]) -> Callable[[BackwardCount], None]:
    def stepped(count: BackwardCount) -> None:
        step(count)
        count._rows = RUNS

    return stepped


async def test_numbers_that_are_kept_anyway_need_no_time(path: Path, index: RunIndex) -> None:
    with closing(RunIndex(path, count().__next__)) as limited:
        found = await limited.stats_within(Selection(workflow="w1"), None, 0)
    assert (await index.stats(Selection(workflow="w1")), None) == found


async def test_the_index_is_written_and_listed_while_runs_are_counted(path: Path, index: RunIndex) -> None:
    """A search holds its moment of the file until it has ended."""
    with closing(reader.IndexReader(path)) as counting, closing(IndexFile(path)) as file:
        with counting._moment():
            before = counting.totals()
            file.write([_row(RUNS)], file.at)
            assert before == counting.totals()
            assert f"{RUNS:032x}" == index.query(limit=1).run_ids[0]
        assert RUNS + 1 == sum(counting.totals().values())
    many = await asyncio.gather(*(index.stats(Selection()) for _ in range(10)))
    assert {RUNS + 1} == {sum(sum(one.counts.values()) for one in found) for found in many}


@pytest.mark.parametrize(
    ("wanted", "matches"),
    [
        (Selection(), lambda number: True),
        (Selection(workflow="w1"), lambda number: number % 5 == 1),
        (Selection(labels=("half:1",)), lambda number: number % 2 == 1),
        (
            Selection(text="many:77", workflow="w2"),
            lambda number: number % 1000 in (77, *range(770, 780)) and number % 5 == 2,
        ),
        (Selection(statuses=frozenset({"running"})), lambda number: False),
        (Selection(labels=("of:nothing",)), lambda number: False),
    ],
)
async def test_durations_are_those_of_the_newest_completed_runs(
    index: RunIndex, wanted: Selection, matches: Callable[[int], bool]
) -> None:
    newest = [number for number in range(RUNS) if number % 100 != 0 and matches(number)][-STATS_DURATIONS_MAX:]
    places = [math.ceil(len(newest) * part / 100) - 1 for part in (50, 99)]
    expected = Took(len(newest), *(newest[place] for place in places)) if newest else None
    assert [expected] == await index.durations([wanted])


async def test_groups_are_the_workflows_that_have_such_runs(index: RunIndex) -> None:
    found = await index.grouped_stats(Selection(labels=("many:7",)), GroupBy.WORKFLOW)
    assert {"w2": (RUNS // 1000, RUNS - 1000 + 7)} == {
        name: (sum(sum(one.counts.values()) for one in group.buckets), group.newest) for name, group in found.items()
    }
    assert {} == await index.grouped_stats(Selection(), GroupBy.TRIGGER)


@pytest.mark.parametrize(
    "wanted",
    [
        Selection(),
        Selection(workflow="w1"),
        Selection(statuses=frozenset({"running", "failed"})),
        Selection(workflow="w1", paused=False),
        Selection(pattern="w*"),
    ],
)
async def test_totals_of_all_time_are_what_is_counted(index: RunIndex, wanted: Selection) -> None:
    whole = await index.stats(wanted)
    assert await index.stats(replace(wanted, before="2262-01-01T00:00:00Z")) == whole


def test_totals_of_all_time_are_not_counted_run_by_run(path: Path, index: RunIndex) -> None:
    with closing(connect(path, "rw")) as db:
        asked: list[str] = []
        db.set_trace_callback(asked.append)
        found = dict(RunQuery(db, Selection(), TimeRange()).totals())
    assert RUNS == sum(found.values())
    assert not any("count(*)" in one for one in asked)
