"""Recorded histories must for ever fold to the state that they were recorded with: old logs are read by new engines.

To record a new one: write `golden/<name>.json` with `about`, `definition` and `records` (the events of a run's history as they are
on the wire, each with its sequence and the time of its storing); then `python -m tests.properties.recorded <file>` adds the
snapshot. Read it before it is committed. A file whose test fails is not recorded again: the engine is put right.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from penstock.engine.state import from_snapshot, to_snapshot
from tests.properties.recorded import FOLDER, folded, read, record, snapshot, written

FILES = sorted(FOLDER.glob("*.json"))
golden = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def test_there_are_recordings() -> None:
    assert len(FILES) >= 15


@golden
def test_a_recorded_history_folds_to_its_recorded_state(path: Path) -> None:
    history = read(path)
    assert history.snapshot is not None, "it has no snapshot yet: record it"
    assert snapshot(history) == history.snapshot


@golden
def test_a_recorded_snapshot_is_still_read(path: Path) -> None:
    history = read(path)
    assert from_snapshot(msgspec.json.encode(history.snapshot)) == folded(history)


@golden
def test_every_prefix_of_a_recorded_history_has_a_snapshot_that_is_read_back(path: Path) -> None:
    history = read(path)
    prefixes = [folded(history, count) for count in range(1, len(history.records) + 1)]
    assert [run and from_snapshot(to_snapshot(run)) for run in prefixes] == prefixes


@golden
def test_a_recording_is_kept_as_it_would_be_written(path: Path) -> None:
    assert path.read_bytes() == written(read(path))


def test_recording_again_changes_nothing(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_bytes(written(msgspec.structs.replace(read(FILES[0]), snapshot={"status": "wrong"})))
    before = wrong.read_bytes()
    assert not record(wrong)
    assert wrong.read_bytes() == before
