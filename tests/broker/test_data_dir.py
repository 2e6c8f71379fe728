"""The directory of the embedded broker: still the same, and able to take bytes."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.broker.embedded.data_dir import ROOM_BYTES, DataDir
from penstock.engine.errors import Conflict, Unavailable
from tests.support.file_limits import limited


@pytest.fixture
def data(data_dir: Path) -> Iterator[DataDir]:
    """Taken, and with streams in it."""
    data = DataDir(data_dir)
    data.take()
    (data_dir / "jetstream").mkdir()
    data.remember()
    yield data
    data.release()


def test_room_is_tried_out_and_leaves_nothing_behind(data: DataDir) -> None:
    assert data.problem() is None
    assert {"jetstream", "lock"} == set(os.listdir(data.path))


def test_what_takes_no_bytes_is_named_with_the_reason(data: DataDir) -> None:
    with limited([os.getpid()], ROOM_BYTES - 1):
        assert f"the data directory {data.path} cannot be written to: File too large" == data.problem()
        with pytest.raises(Unavailable, match="File too large"):
            data.check()
    assert resource.RLIM_INFINITY == resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    data.check()


def test_streams_that_were_removed_or_replaced_are_gone(data: DataDir, tmp_path: Path) -> None:
    assert not data.gone()
    (data.path / "jetstream").rename(tmp_path / "aside")
    assert data.gone()
    (data.path / "jetstream").mkdir()
    assert data.gone()  # another one
    (data.path / "jetstream").rmdir()
    (tmp_path / "aside").rename(data.path / "jetstream")
    assert not data.gone()


def test_another_file_system_in_its_place_is_no_place_for_a_broker(data: DataDir) -> None:
    shm = Path("/dev/shm") / data.path.parent.name
    shm.mkdir()
    try:
        shutil.rmtree(data.path)
        data.path.symlink_to(shm)
        assert data.gone()
        assert "is on another file system than before" in (data.problem() or "")
    finally:
        shm.rmdir()


def test_a_directory_that_was_made_anew_is_locked_again(data: DataDir) -> None:
    shutil.rmtree(data.path)
    data.take()
    with pytest.raises(Conflict, match="in use by another process"):
        DataDir(data.path).take()
    data.release()
    other = DataDir(data.path)
    other.take()
    other.release()
