"""The list of runs that ended and are not archived: in the order of their ends, kept only where somebody archives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from penstock.actors.index import archived
from penstock.actors.index.archived import FIRST, Archived
from penstock.actors.index.file import IndexFile, prepare
from penstock.actors.index.queries import Place
from penstock.actors.index.rows import Change, Row
from penstock.actors.index.run_index import RunIndex
from penstock.engine.run.events import WorkflowCompleted, WorkflowFailed, WorkflowResumed, WorkflowStarted
from penstock.engine.run.state import RunStatus

EVER = 2**62


@pytest.fixture
def file(path: Path) -> Iterator[IndexFile]:
    prepare(path, "stream")
    with closing(IndexFile(path)) as opened:
        yield opened


def run_id(number: int) -> str:
    return f"{number:032x}"


def begun(number: int, at_us: int) -> Change:
    return Change(run_id(number), WorkflowStarted, 2 * number + 1, "flow", at_us, at_us=at_us)


def ended(
    number: int, at_us: int, seq: int = 0, kind: type[WorkflowCompleted | WorkflowFailed] = WorkflowCompleted
) -> Change:
    return Change(run_id(number), kind, seq or 1000 + number, folded=2 * number + 1, at_us=at_us)


def write(file: IndexFile, *news: Change) -> None:
    file.write(news, file.at._replace(seq=file.at.seq + 1))


def list_all(file: IndexFile) -> None:
    after: Place | None = FIRST
    while after is not None:
        after = file.list_ends(after)


def listed(index: RunIndex, before_us: int = EVER) -> Sequence[str]:
    found, after = list[str](), FIRST
    while True:
        page = index.ends(after, before_us)
        found += [one.run_id for one in page.runs]
        if page.next is None:
            return found
        after = page.next


def test_runs_stand_in_the_order_of_their_ends_whenever_they_were_created(file: IndexFile, index: RunIndex) -> None:
    list_all(file)
    write(file, begun(1, 10), begun(2, 20), begun(3, 30), begun(4, 40))
    write(file, ended(3, 35), ended(1, 70), ended(2, 50))
    assert [run_id(3), run_id(2), run_id(1)] == listed(index)
    assert [run_id(3)] == listed(index, 50)
    assert [(70, 10)] == [(one.ended_us, one.created_us) for one in index.ends((50, run_id(9)), EVER).runs]


def test_runs_that_ended_before_anybody_archived_are_in_it(
    file: IndexFile, index: RunIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archived, "PAGE", 3)
    write(file, *(begun(number, number) for number in range(10)))
    write(file, *(ended(number, 100 - number) for number in range(8)))
    assert [] == listed(index)
    following = file.list_ends(FIRST)
    assert following is not None
    write(file, ended(8, 1))  # meanwhile
    list_all(file)
    assert [run_id(8), *(run_id(number) for number in reversed(range(8)))] == listed(index)


def test_an_archived_run_a_removed_one_and_one_that_goes_on_leave_it(file: IndexFile, index: RunIndex) -> None:
    list_all(file)
    write(file, *(begun(number, number) for number in range(4)))
    write(file, *(ended(number, 10 + number, kind=WorkflowFailed) for number in range(4)))
    row = Row(run_id(0), "flow", RunStatus.FAILED, 0, 0, 1000)
    file.write_archived([row], [Archived(run_id(0), 1, 1000)], 1)
    file.forget([run_id(1)])
    write(file, Change(run_id(2), WorkflowResumed, 2000))
    page = index.ends(FIRST, EVER)
    assert [run_id(3)] == [one.run_id for one in page.runs]
    assert [(10, run_id(0)), (11, run_id(1)), (12, run_id(2))] == page.gone
    file.forget_ends(page.gone)
    assert ([], [run_id(3)]) == (index.ends(FIRST, EVER).gone, listed(index))
    write(file, ended(2, 90, 3000))
    assert [run_id(3), run_id(2)] == listed(index)


def test_a_run_that_was_brought_back_and_has_ended_again_is_in_it(file: IndexFile, index: RunIndex) -> None:
    list_all(file)
    write(file, begun(1, 1))
    write(file, ended(1, 5, kind=WorkflowFailed))
    file.write_archived([], [Archived(run_id(1), 1, 1001)], 1)
    assert [] == listed(index)
    write(file, Change(run_id(1), WorkflowResumed, 2000))
    write(file, ended(1, 9, 3000))
    assert [run_id(1)] == listed(index)


def test_it_is_not_kept_where_nobody_archives(file: IndexFile, index: RunIndex) -> None:
    write(file, begun(1, 1))
    write(file, ended(1, 5))
    assert [] == listed(index)
    list_all(file)
    assert [run_id(1)] == listed(index)
    file.unlist_ends()
    write(file, begun(2, 2))
    write(file, ended(2, 6))
    assert [] == listed(index)
