"""Other systems beside penstock: who is skipped and why, what users of another process find, and the ratios. None of
these systems is installed here."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from load.processes import descendants
from peers.comparison import SYSTEMS, Comparison, Found
from peers.packages import cache, python_with, reason
from peers.processes import program, users
from peers.summary import notes, show
from peers.system import Skipped

from tests.scripts.conftest import SCRIPTS

PROGRAM_S_MAX = 250
NOTHING_TO_BE_HAD = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "npm_config_offline": "true"}
OTHERS = {system.name for system in SYSTEMS if not system.name.startswith("penstock")}
USERS = """
import asyncio
from peers.users import load, serve
asyncio.run(serve(lambda users, seconds: load(lambda: asyncio.sleep(seconds), users, seconds)))
"""
LOUD = "import sys; sys.exit('no such database')"


@pytest.mark.timeout(300)
def test_what_cannot_be_installed_is_skipped_with_the_reason(tmp_path: Path) -> None:
    target = tmp_path / "found.json"
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "bench.py"), "--peers", "--quick", "--json", str(target)],
        capture_output=True,
        text=True,
        timeout=PROGRAM_S_MAX,
        env={**os.environ, **NOTHING_TO_BE_HAD, "XDG_CACHE_HOME": str(tmp_path)},
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    found = json.loads(target.read_text())
    assert set(found["skipped"]) == OTHERS
    assert all(name not in found["found"] and why for name, why in found["skipped"].items())
    for users_ in ("16", "64", "1"):
        one = found["found"]["penstock"][users_]
        assert all(value > 0 for name, value in one.items() if name != "others")
        assert 0 <= one["others"] <= 1
        assert one["p50_ms"] <= one["p99_ms"]
    assert "DBOS: skipped: it cannot be installed: ERROR: No matching distribution" in done.stdout


def test_other_systems_have_no_workloads_to_choose() -> None:
    command = [sys.executable, str(SCRIPTS / "bench.py"), "--peers", "--only", "bulk"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_S_MAX, check=False)
    assert (2, "") == (done.returncode, done.stdout)
    assert "leave out --only and --compare" in done.stderr


def test_an_environment_that_failed_is_not_taken_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**NOTHING_TO_BE_HAD, "XDG_CACHE_HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    for _ in range(2):
        with pytest.raises(Skipped):
            python_with("some", "dbos==3.4.0")
    assert not (cache() / "some" / "made").exists()


def test_an_environment_is_made_once_for_the_same_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (cache() / "some").mkdir(parents=True)
    (cache() / "some" / "made").write_text("one==1\ntwo==2")
    assert cache() / "some" / "bin" / "python" == python_with("some", "one==1", "two==2")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("ERROR: Could not find it\nERROR: No matching distribution found\n\nnotice: new pip", "ERROR: No matching"),
        ("npm error code ENOTCACHED\nnpm error request failed\n", "npm error request failed"),
        ("Collecting\nsomething went wrong\n", "something went wrong"),
        ("", "it said nothing"),
    ],
)
def test_the_reason_is_the_last_error(words: str, expected: str) -> None:
    assert reason(words).startswith(expected)


async def test_users_in_another_process_say_how_long_each_run_took(tmp_path: Path) -> None:
    async with users([sys.executable, "-c", USERS], tmp_path / "log") as (load, child):
        assert [3, 1] == [len(await load(count, 0.01)) for count in (3, 1)]
        assert all(0.01 <= took < 5 for took in await load(2, 0.01))
        assert child.exitcode is None
    assert child.exitcode is not None


async def test_users_that_end_too_soon_are_skipped_with_their_last_words(tmp_path: Path) -> None:
    with pytest.raises(Skipped, match="no such database"):
        async with users([sys.executable, "-c", LOUD], tmp_path / "log"):
            pass


async def test_a_program_ends_with_all_that_it_started(tmp_path: Path) -> None:
    nested = "import subprocess, time; print(subprocess.Popen(['sleep', '60']).pid, flush=True); time.sleep(60)"
    log = tmp_path / "log"
    async with program([sys.executable, "-c", nested], log) as child:
        while not log.read_text():
            assert child.exitcode is None
    assert child.exitcode is not None
    while int(log.read_text()) in descendants(1):  # noqa: ASYNC110 - the kernel ends it
        await asyncio.sleep(0)


def test_a_table_has_the_ratios_to_the_first_system(capsys: pytest.CaptureFixture[str]) -> None:
    ours = {users_: Found(400.0, 4.0, 8.0, 1000.0, 0.0) for users_ in (16, 64, 1)}
    theirs = {users_: Found(100.0, 6.0, 20.0, 3000.0, 0.25) for users_ in (16, 64, 1)}
    comparison = Comparison(
        "two cores", {"penstock": "as it is", "other": "as well", "none": ""}, {"penstock": ours, "other": theirs}, {}
    )
    comparison.skipped["none"] = "it cannot be had"
    show(comparison)
    text = capsys.readouterr().out
    assert "went to others: penstock 0 %, other 25 %" in text
    ratios = text.split("The same, to penstock")[1]
    line = next(line for line in ratios.splitlines() if line.startswith("│ other"))
    assert ["0.25", "0.25", "1.50", "2.50", "3.00", "3.00", "3.00"] == line.replace("│", " ").split()[1:]
    assert "none: skipped: it cannot be had" in list(notes(comparison))
