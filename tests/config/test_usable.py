"""The cores and the memory that this process may use."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.config.process.usable import usable_cores, usable_memory


def test_a_quota_below_the_cores_that_a_process_may_use_counts(tmp_path: Path) -> None:
    cores = len(os.sched_getaffinity(0))
    assert cores == usable_cores(tmp_path)
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert 0.5 == usable_cores(tmp_path)
    (tmp_path / "cpu.max").write_text(f"{cores}00001 100000\n")
    assert cores == usable_cores(tmp_path)


def test_the_cores_of_the_affinity_count(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert 1 == usable_cores(tmp_path)
    finally:
        os.sched_setaffinity(0, before)


def test_a_limit_below_the_memory_of_the_machine_counts(tmp_path: Path) -> None:
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert machine == usable_memory(tmp_path)
    for text, expected in (("max\n", machine), ("1048576\n", 1 << 20), (f"{machine + 1}\n", machine)):
        (tmp_path / "memory.max").write_text(text)
        assert expected == usable_memory(tmp_path)
