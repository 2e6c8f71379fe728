"""A share of a core for processes that would take all of it; and what a directory takes of the disk."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from load.kept_workloads import disk_bytes
from load.processes import cpu_s
from load.quota import SAVED_S_MAX, Allowance, quota

BUSY_S = 1.0


def test_a_process_waits_for_what_it_has_used_beyond_its_share() -> None:
    allowance = Allowance(0.5, now=0.0, used_s=5.0)
    assert allowance.look(1.0, 5.5)
    assert not allowance.look(2.0, 6.5)  # it has used 1.5 s, and may have used 1 s
    assert not allowance.look(2.5, 6.5)
    assert allowance.look(3.0, 6.5)


def test_an_idle_process_saves_little() -> None:
    allowance = Allowance(0.1, now=0.0, used_s=0.0)
    assert allowance.look(1000.0, 0.0)
    assert SAVED_S_MAX == allowance.left_s


def test_busy_processes_use_no_more_than_their_share_and_then_all_again() -> None:
    programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        pids = [program.pid for program in programs]
        with quota(pids, 0.1):
            before, begin = cpu_s(pids), time.monotonic()
            time.sleep(BUSY_S)
            used, spent_s = cpu_s(pids) - before, time.monotonic() - begin
        assert 0 < used < 2 * (0.1 * spent_s + 2 * SAVED_S_MAX)
        after = cpu_s(pids)
        while cpu_s(pids) == after:
            os.sched_yield()
    finally:
        for program in programs:
            program.kill()
            program.wait()


def test_a_directory_takes_the_blocks_of_its_files(tmp_path: Path) -> None:
    assert 0 == disk_bytes(tmp_path)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "file").write_bytes(os.urandom(100_000))
    os.sync()
    assert 100_000 <= disk_bytes(tmp_path) < 150_000
