"""The file of the run index has the rows that follow from the news, however they come together in batches."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.actors.index.file import IndexFile, connect, prepare
from penstock.actors.index.instants import _converted, instant_us
from penstock.actors.index.rows import Change, News, Row, fold
from penstock.config.process import boot
from penstock.engine.run.events import WorkflowCompleted, WorkflowFailed, WorkflowScheduled, WorkflowStarted
from penstock.engine.run.state import RunStatus

MANY = 157


@pytest.fixture
def file(path: Path) -> Iterator[IndexFile]:
    prepare(path, "stream")
    with closing(IndexFile(path)) as opened:
        yield opened


def begun(number: int, kind: type[WorkflowStarted | WorkflowScheduled] = WorkflowStarted, **more: object) -> Change:
    at_us = None if kind is WorkflowScheduled else number
    return Change(f"{number:032x}", kind, 2 * number + 1, f"w{number % 3}", number, at_us=at_us, **more)  # type: ignore[arg-type]


def ended(number: int, kind: type[WorkflowCompleted | WorkflowFailed] = WorkflowCompleted) -> Change:
    return Change(f"{number:032x}", kind, 10_000 + number, folded=2 * number + 1, at_us=number + 5)


def write(file: IndexFile, news: Sequence[News]) -> Mapping[str, Row]:
    return file.write(news, file.at._replace(seq=file.at.seq + 1))


def rows(path: Path) -> dict[str, tuple[object, ...]]:
    """Without the labels, which the file has as ids."""
    with closing(connect(path, "rw")) as db:
        found = db.execute(
            "SELECT run_id, workflow, status, created_us, status_seq, confirmed, rerun_of, parent, started_us, took_us"
            " FROM runs"
        )
        return {row[0]: row for row in found}


def totals(path: Path) -> dict[tuple[str, str], int]:
    with closing(connect(path, "rw")) as db:
        found = db.execute("SELECT workflow, status, runs FROM totals WHERE runs <> 0")
        return {(workflow, status): runs for workflow, status, runs in found}


def check(path: Path, news: Sequence[News]) -> None:
    """The file has what follows from all the news at once."""
    expected = fold({}, news)
    assert {one.run_id: (*one[:8], *one[9:]) for one in expected.values()} == rows(path)
    counted: dict[tuple[str, str], int] = {}
    for row in expected.values():
        counted[row.workflow, str(row.status)] = counted.get((row.workflow, str(row.status)), 0) + 1
    assert counted == totals(path)


def test_many_rows_are_added_and_moved_whatever_their_number(file: IndexFile, path: Path) -> None:
    first = [
        begun(number, labels=("a:b",) if number % 5 == 0 else (), parent="p" if number % 7 == 0 else None)
        for number in range(MANY)
    ]
    later = [ended(number, WorkflowFailed if number % 4 == 0 else WorkflowCompleted) for number in range(MANY - 3)]
    write(file, first)
    write(file, later[::-1])
    check(path, [*first, *later])


def test_runs_that_begin_and_end_in_one_batch_are_there_once(file: IndexFile, path: Path) -> None:
    news = [one for number in range(MANY) for one in (begun(number), ended(number))]
    write(file, news)
    check(path, news)


def test_a_run_that_begins_although_it_has_a_row_changes_it(path: Path) -> None:
    """It was scheduled, and its row has left the writer's memory; those that begin beside it have none."""
    prepare(path, "stream")
    scheduled = [begun(number, WorkflowScheduled) for number in range(MANY)]
    with closing(IndexFile(path)) as file:
        write(file, scheduled)
    begins = [Change(one.run_id, WorkflowStarted, one.seq + 1000, "w", 99, at_us=99) for one in scheduled]
    others = [begun(number) for number in range(MANY, MANY + 5)]
    with closing(IndexFile(path)) as file:
        changed = write(file, [*others, *begins])
        assert {RunStatus.RUNNING} == {row.status for row in changed.values()}
        check(path, [*scheduled, *others, *begins])
        again = write(file, begins)  # repeats change nothing, in or out of memory
        assert not again
    check(path, [*scheduled, *others, *begins])


def test_an_error_of_the_file_leaves_it_as_it_was(file: IndexFile, path: Path) -> None:
    write(file, [begun(1)])
    file._db.execute("CREATE TRIGGER no BEFORE INSERT ON totals BEGIN SELECT raise(ABORT, 'no'); END")
    at = file.at
    with pytest.raises(sqlite3.IntegrityError, match="no"):
        write(file, [begun(2), ended(1)])
    assert at == file.at
    check(path, [begun(1)])


def grown(path: Path) -> int:
    """A file of many pages; its size, which an empty one in its place would not have, as it may have the inode."""
    prepare(path, "stream")
    with closing(IndexFile(path)) as file:
        write(file, [begun(number) for number in range(20 * MANY)])
    return size(path)


def size(path: Path) -> int:
    return path.stat().st_size


def damage(path: Path) -> None:
    """Overwrite the second half, in place."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"\xff" * (path.stat().st_size // 2))


def start_machine_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "boot_id"
    other.write_text("another start")
    monkeypatch.setattr(boot, "BOOT_ID", other)


def test_a_file_is_looked_through_when_the_machine_has_started_again_and_only_then(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = grown(path)
    start_machine_again(tmp_path, monkeypatch)
    prepare(path, "stream")
    assert before == size(path)  # sound
    damage(path)
    prepare(path, "stream")
    assert before == size(path)  # known to be sound, as no process can do that
    monkeypatch.undo()
    prepare(path, "stream")
    assert {} == rows(path)


def test_a_sound_file_stays_where_that_cannot_be_noted(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = grown(path)
    with closing(connect(path, "rw")) as db:
        db.execute("CREATE TRIGGER no BEFORE UPDATE ON sound BEGIN SELECT raise(ABORT, 'no'); END")
    start_machine_again(tmp_path, monkeypatch)
    prepare(path, "stream")
    assert before == size(path)


def test_a_copy_of_a_file_is_looked_through(path: Path) -> None:
    grown(path)
    damage(path)
    copy = path.with_name("copy")
    shutil.copy(path, copy)
    prepare(copy, "stream")
    assert {} == rows(copy)


def test_where_the_system_has_no_id_of_its_start_a_file_is_always_looked_through(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boot, "BOOT_ID", path.parent / "not there")
    before = grown(path)
    prepare(path, "stream")
    assert before == size(path)
    damage(path)
    prepare(path, "stream")
    assert {} == rows(path)


@given(st.datetimes(timezones=st.timezones() | st.none()).map(lambda at: at.isoformat()) | st.text(max_size=30))
def test_instants_of_any_form_are_as_msgspec_reads_them(text: str) -> None:
    assert _converted(text) == instant_us(text)


@given(st.datetimes(), st.text("0123456789٣ +-.Z", min_size=6, max_size=6))
def test_instants_as_the_service_writes_them_are_too(at: object, fraction: str) -> None:
    text = f"{msgspec.to_builtins(at)[:19]}.{fraction}Z"
    assert _converted(text) == instant_us(text)
