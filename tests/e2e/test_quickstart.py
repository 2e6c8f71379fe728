"""`scripts/quickstart --keep`, called once and once more: in a copy of the checkout that shares its virtualenv."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.service import STOP_S_MAX, clean_environ

ROOT = Path(__file__).resolve().parents[2]
CONSOLE = re.compile(r"^The console: (http://127\.0\.0\.1:\d+/console)$", re.MULTILINE)
STOP = re.compile(r"^  kill (\d+) (\d+)$", re.MULTILINE)


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Path]:
    """What the script looks at, with an installation that it takes for its own. What is left running is stopped."""
    for name in ("scripts", "setup.cfg", "pyproject.toml"):
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, tmp_path / name)
    for folder in re.findall(r"^ *penstock[.a-z]* = ([a-z]+)$", (ROOT / "setup.cfg").read_text(), re.MULTILINE):
        (tmp_path / folder).symlink_to(ROOT / folder)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "bin").symlink_to(ROOT / ".venv" / "bin")
    fingerprint = subprocess.run(
        ["bash", "-c", ". scripts/lib.sh; fingerprint"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    (tmp_path / ".venv" / "installed").write_text(f"{fingerprint.stdout.strip()}\ndev\n")
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "one.md").write_text("# One\n\ntwo words\n")
    yield tmp_path
    kept = tmp_path / "penstock-data" / "quickstart.kept"
    if kept.exists():
        serve, worker, *_ = kept.read_text().split()
        os.kill(int(worker), signal.SIGTERM)
        _stopped(int(serve))


def _stopped(pid: int) -> None:
    """End a process that is no child of ours, and wait for its end."""
    end = os.pidfd_open(pid)
    signal.pidfd_send_signal(end, signal.SIGTERM)
    assert select.select([end], [], [], STOP_S_MAX)[0], "the service did not stop"
    os.close(end)


def _quickstart(checkout: Path) -> subprocess.CompletedProcess[str]:
    command = [checkout / "scripts" / "quickstart", "--keep", "--path", "texts"]
    return subprocess.run(command, cwd=checkout, env=clean_environ(), capture_output=True, text=True, timeout=90)


def test_a_second_keep_uses_the_service_that_the_first_one_left(checkout: Path) -> None:
    first = _quickstart(checkout)
    assert 0 == first.returncode, first.stderr
    assert "Starting the service on" in first.stderr
    second = _quickstart(checkout)
    assert 0 == second.returncode, second.stderr
    assert "The service that an earlier --keep left is running on" in second.stderr
    assert "result equals the direct computation" in second.stdout
    consoles = [CONSOLE.findall(said.stdout) for said in (first, second)]
    assert consoles[0] == consoles[1]
    assert 1 == len(consoles[0])
    assert STOP.findall(first.stdout) == STOP.findall(second.stdout) != []
