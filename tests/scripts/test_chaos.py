"""The storm as people call it: a minute of kills and freezes over load, and every promise kept."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from chaos_parts.api import Heard
from chaos_parts.plan import BRIDGE_LOST_S_MAX, ROUND, Deed, plan
from load.connection import Answer

from tests.scripts.conftest import SCRIPTS
from tests.support.waiting import until_true

STORM_S_MAX = 860  # a minute of faults, three until all has ended, as many for the backup, and a busy machine
STOP_S_MAX = 60
SELDOM = {"reruns", "begun now"}  # of few, as dice fall
CHAOS = [sys.executable, str(SCRIPTS / "chaos.py")]


def _survived(seconds: int, seed: int, kept: Path) -> dict[str, Any]:
    """What a storm has done that broke no promise."""
    done = subprocess.run(
        [*CHAOS, "--seconds", str(seconds), "--seed", str(seed), "--keep", str(kept), "--json"],
        capture_output=True,
        text=True,
        timeout=STORM_S_MAX,
        check=False,
    )
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert ([], 0, 0) == (found["violations"], found["lost"], done.returncode), json.dumps(found["histories"])
    return found


@pytest.mark.timeout(900)
def test_a_minute_of_chaos_breaks_no_promise(tmp_path: Path) -> None:
    kept = tmp_path / "storm"
    found = _survived(60, 7, kept)
    assert found["kills"] + found["freezes"] + found["missed"] >= 20
    assert found["kills"] >= 8
    assert {"completed", "cancelled", "failed"} == set(found["runs"])
    assert set(found["restored"]) <= {"completed", "cancelled", "failed"}
    assert found["restored"]["completed"] > 0
    assert {name for name, count in found["acknowledged"].items() if not count} <= SELDOM
    assert found["executions"] > sum(found["runs"].values())
    assert [] == _processes_about(kept)


@pytest.mark.timeout(900)
def test_chaos_while_runs_are_archived_breaks_no_promise(tmp_path: Path) -> None:
    found = _survived(30, 8, tmp_path / "storm")
    assert found["archived"] >= 20
    assert found["kills"] >= 4


async def test_an_interrupted_storm_leaves_no_process_behind(tmp_path: Path) -> None:
    kept = tmp_path / "storm"
    storm = await asyncio.create_subprocess_exec(
        *CHAOS, "--every", "1", "--keep", str(kept), stdout=DEVNULL, stderr=PIPE
    )
    try:
        await until_true(lambda: b'"ready"' in _log(kept) and len(_processes_about(kept)) > 1, STOP_S_MAX)
        storm.send_signal(signal.SIGINT)
        async with asyncio.timeout(STOP_S_MAX):
            _, said = await storm.communicate()
    finally:
        if storm.returncode is None:
            storm.kill()
    assert (1, b"Aborted!") == (storm.returncode, said.strip().splitlines()[-1])
    assert [] == _processes_about(kept)


def test_the_same_seed_makes_the_same_plan_and_another_seed_another() -> None:
    assert plan(7, 600, 2.4) == plan(7, 600, 2.4) != plan(8, 600, 2.4)


@pytest.mark.parametrize("seed", range(20))
def test_ten_minutes_have_at_least_200_kills_and_freezes(seed: int) -> None:
    faults = plan(seed, 600, 2.4)
    assert sum(fault.deed in (Deed.KILL, Deed.FREEZE) for fault in faults) >= 200
    assert {(deed, role) for _, deed, role in ROUND} <= {(fault.deed, fault.role) for fault in faults}
    assert max(fault.at_s for fault in faults) <= 600


def test_a_minute_has_every_kind_of_fault_but_the_one_that_lasts_longer() -> None:
    """What a killed worker of the bridge held may be kept for it for a minute and a half."""
    found = Counter((fault.deed, fault.role) for fault in plan(7, 60, 2.4))
    assert {(deed, role) for _, deed, role in ROUND} - {(Deed.KILL, "bridge-worker")} <= set(found)
    late = [fault for fault in plan(7, 600, 2.4) if fault.at_s > 600 - BRIDGE_LOST_S_MAX]
    assert not any((fault.deed, fault.role) == (Deed.KILL, "bridge-worker") for fault in late)


def test_an_answer_that_is_no_json_is_kept_as_its_text() -> None:
    assert [{"a": 1}, "bad gateway"] == [Heard(Answer(200, body), False).said for body in (b'{"a": 1}', b"bad gateway")]


def test_a_plan_is_printed_and_nothing_is_done() -> None:
    done = subprocess.run(
        [*CHAOS, "--plan", "--seed", "3", "--seconds", "30"],
        capture_output=True,
        text=True,
        timeout=STOP_S_MAX,
        check=True,
    )
    assert [str(fault) for fault in plan(3, 30, 2.4)] == done.stdout.splitlines()[1:]


def _log(kept: Path) -> bytes:
    try:
        return (kept / "serve.log").read_bytes()
    except FileNotFoundError:
        return b""


def _processes_about(kept: Path) -> list[str]:
    """Programs that have this directory among their arguments, but for the storm itself: service, broker, workers."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if any(str(kept) in word for word in words) and CHAOS[1] not in words:
            found.append(" ".join(words))
    return found
