"""A child that is forked from the supervisor: what it has of its parent, and what it must not have."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from pathlib import Path

import pytest

from penstock.actors.processes.forked import ForkedChild
from penstock.config.process.background import FAILURES
from penstock.telemetry.warnings import WARNINGS

SECONDS_MAX = 30.0

# The supervisor has one thread; pytest has more when its tests run side by side.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")

# A parent that starts one child, prints its id, and waits to be killed.
PARENT = """
import time
from penstock.actors.processes.forked import ForkedChild
print(ForkedChild("child", time.sleep, (60,)).pid, flush=True)
time.sleep(60)
"""


def ended(child: ForkedChild) -> int | None:
    child.join(SECONDS_MAX)
    return child.exitcode


def say(handle: int, find: Callable[[], object]) -> None:
    os.write(handle, repr(find()).encode())


def said_by_child(find: Callable[[], object]) -> str:
    """What `find` returns in a child, as text."""
    reader, writer = os.pipe()
    try:
        assert ended(ForkedChild("child", say, (writer, find), inherited=[writer])) == 0
        return os.read(reader, 1 << 16).decode()
    finally:
        os.close(reader)
        os.close(writer)


@pytest.mark.parametrize(
    ("target", "arguments", "code"), [(time.sleep, (0,), 0), (sys.exit, (7,), 7), (int, ("x",), 1)]
)
def test_the_exit_code_says_how_the_target_ended(
    target: Callable[..., None], arguments: tuple[object], code: int
) -> None:
    assert code == ended(ForkedChild("child", target, arguments))


def test_it_is_alive_until_it_is_told_to_end() -> None:
    child = ForkedChild("child", time.sleep, (SECONDS_MAX,))
    assert child.exitcode is None
    child.terminate()
    assert -signal.SIGTERM == ended(child)


def test_it_holds_no_lock_of_its_parent(tmp_path: Path) -> None:
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    reader, writer = os.pipe()
    child = ForkedChild("child", lambda: (os.write(writer, b"begun"), time.sleep(SECONDS_MAX)), (), inherited=[writer])
    try:
        assert b"begun" == os.read(reader, 5)
        os.close(lock)
        again = os.open(tmp_path / "lock", os.O_RDWR)
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(again)
    finally:
        child.kill()
        ended(child)
        os.close(reader)
        os.close(writer)


def test_it_has_the_files_that_were_named_and_no_others() -> None:
    # Three standard ones, the pipe, and the listing itself.
    assert "5" == said_by_child(lambda: len(os.listdir("/proc/self/fd")))


def test_no_handler_of_its_parent_takes_its_signals() -> None:
    taken: list[int] = []
    former = signal.signal(signal.SIGTERM, lambda number, frame: taken.append(number))
    try:
        child = ForkedChild("child", signal.pause, ())
        child.terminate()
        assert -signal.SIGTERM == ended(child)
    finally:
        signal.signal(signal.SIGTERM, former)
    assert [] == taken


def test_it_is_in_a_group_of_its_own_and_has_its_name() -> None:
    assert "(True, 'child')" == said_by_child(
        lambda: (os.getpgid(0) == os.getpid(), Path("/proc/self/comm").read_text().strip())
    )


def test_what_its_parent_has_to_report_is_not_its_own() -> None:
    FAILURES["work"] += 1
    WARNINGS.waiting.append({"event": "of the parent"})
    try:
        assert "(0, 0)" == said_by_child(lambda: (len(WARNINGS.waiting), FAILURES["work"]))
        assert {"event": "of the parent"} in WARNINGS.waiting
    finally:
        WARNINGS.clear()
        FAILURES.clear()


def test_its_end_is_seen_while_a_process_of_its_own_lives_on() -> None:
    reader, writer = os.pipe()
    grandchild = [sys.executable, "-c", "import time; time.sleep(60)"]

    def leave_one_behind() -> None:
        os.write(writer, str(subprocess.Popen(grandchild, pass_fds=[writer]).pid).encode())

    child = ForkedChild("child", leave_one_behind, (), inherited=[writer])
    left = int(os.read(reader, 20))
    try:
        assert wait([child.sentinel], SECONDS_MAX)
        assert 0 == child.exitcode
        assert Path(f"/proc/{left}").exists()
    finally:
        os.kill(left, signal.SIGKILL)
        os.close(reader)
        os.close(writer)


def test_it_ends_when_its_parent_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = os.pidfd_open(int(parent.stdout.readline()))
    try:
        parent.kill()
        assert wait([child], SECONDS_MAX)
    finally:
        parent.wait()
        parent.stdout.close()
        os.close(child)
