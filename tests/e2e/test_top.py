"""`penstock top` on a terminal, in a pipe and as JSON."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from penstock.cli.operating.top import observing
from penstock.cli.operating.top.observing import Observation, Observer, counted
from penstock.cli.operating.top.screen import ORDERS, Look, drawn, queue_rows, reasons
from penstock.cli.terminal.session import UNAVAILABLE
from penstock.client.views import TaskQueueView
from tests.support.service import PENSTOCK, Service, clean_environ, free_port

pytestmark = pytest.mark.timeout(120)

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
CLEARED = "\x1b[2J"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("top"), shards=1, http_workers=1) as started, started.client() as client:
        for name in ("alpha", "beta"):
            steps = [{"id": "a", "task": f"{name}.work"}]
            client.register(orjson.dumps({"name": name, "steps": steps}))
        for name in ("alpha", "beta", "beta"):
            client.start(name)
        yield started


class Screen:
    """Owned by a test: the command on a pseudo terminal."""

    def __init__(self, url: str, *args: str) -> None:
        self._ours, theirs = pty.openpty()
        self.resize(40, 120)
        environ = {**clean_environ(), "SERVICE_URL": url, "TERM": "xterm"}
        for name in ("COLUMNS", "LINES"):
            environ.pop(name, None)
        self.process = subprocess.Popen(
            [PENSTOCK, "top", *args], env=environ, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)
        self.raw = ""

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, key: str) -> None:
        os.write(self._ours, key.encode())

    def until(self, text: str) -> str:
        """What was drawn since the last call, up to this text and what came with it."""
        return self._until(lambda seen: text in seen, text)

    def narrow(self, columns: int) -> str:
        """The last screen that was drawn, when all of it is at most so wide: one in its old size may come before."""

        def last(seen: str) -> str:
            return seen[seen.rfind("penstock top") :]

        def is_narrow(seen: str) -> bool:
            return "q quit" in last(seen) and max(map(len, last(seen).splitlines())) <= columns

        return last(self._until(is_narrow, f"a screen of {columns} columns"))

    def _until(self, wanted: Callable[[str], bool], what: str) -> str:
        deadline, seen = time.monotonic() + 30, ""
        while not wanted(text := ESCAPES.sub("", seen).replace("\r\n", "\n")):
            assert time.monotonic() < deadline, f"{what!r} is not in {text[-2000:]!r}"
            if select.select([self._ours], [], [], 0.5)[0]:
                seen += os.read(self._ours, 65_536).decode(errors="replace")
        self.raw += seen
        return text

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        os.close(self._ours)


@contextmanager
def opened(url: str, *args: str) -> Iterator[Screen]:
    screen = Screen(url, *args)
    try:
        yield screen
    finally:
        screen.close()


def test_a_terminal_shows_queues_that_keys_sort_and_a_new_size_at_once(service: Service) -> None:
    with opened(service.url, "--every", "0.2") as screen:
        first = screen.until("q quit")
        assert first.index("beta.work") < first.index("alpha.work"), "more tasks wait"
        assert "by waiting" in first
        for order in list(ORDERS)[1:]:
            screen.press("s")
            sorted_by = screen.until(f"by {order}")
        sorted_by += screen.until("q quit")
        assert sorted_by.rindex("alpha.work") < sorted_by.rindex("beta.work")
        screen.press("r")
        screen.until("reversed")
        screen.press(" ")
        screen.until("paused")
        screen.resize(20, 60)
        assert len(screen.narrow(60).splitlines()) <= 20
        assert screen.raw.count(CLEARED) <= 1, "the screen is drawn over, and not cleared each time"
        screen.press("q")
        assert 0 == screen.process.wait(20)


def test_a_service_that_goes_away_is_named_and_waited_for(tmp_path: Any) -> None:
    with Service(tmp_path / "going", shards=1, http_workers=1) as going, opened(going.url, "--every", "0.2") as screen:
        screen.until("q quit")
        going.stop()
        screen.until("no answer: ")
        going.start()
        screen.until("rates  runs started")
        screen.press("q")
        assert 0 == screen.process.wait(20)


def test_a_broker_that_freezes_is_named_within_3_s(tmp_path: Path) -> None:
    with Service(tmp_path / "service", shards=1, http_workers=1) as service, service.client() as client:
        observer = Observer(client)
        assert not observer.observe().problem
        frozen = service.kill("broker", signal.SIGSTOP)
        try:
            begin = time.monotonic()
            assert "the broker of the service does not answer" == observer.observe().problem
            assert time.monotonic() - begin < 3
        finally:
            os.kill(frozen, signal.SIGCONT)


def test_a_pipe_gets_one_screen_and_json_all_of_it(service: Service) -> None:
    printed = service.penstock("top", "--once").stdout
    for said in ("runs   running 3", "runs started 0.0/s", "TASK TYPE", "beta.work", "WAITS BECAUSE"):
        assert said in printed
    assert "\x1b" not in printed
    found = orjson.loads(service.penstock("top", "--json").stdout)
    assert {"beta.work": 2, "alpha.work": 1} == {one["task"]: one["waiting"] for one in found["queues"]}
    assert {"running": 3} == found["runs"]


def test_runs_that_are_held_up_are_shown_with_their_reason(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observing, "HELD_S", 0.0)
    with service.client() as client:
        deadline = time.monotonic() + 30
        while len(held := Observer(client).observe().held) < 3:
            assert time.monotonic() < deadline
    assert {"no_worker"} == {one.reason for run in held for one in run.waiting}


def test_what_holds_up_one_workflow_does_not_hide_the_others(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observing, "HELD_S", 0.0)
    monkeypatch.setattr(observing, "HELD_MAX", 2)
    with service.client() as client:
        deadline = time.monotonic() + 30
        while len(held := Observer(client).observe().held) < 2:
            assert time.monotonic() < deadline
    assert {"alpha", "beta"} == {run.workflow_id for run in held}, "the two newest runs are both of beta"
    assert ["held   no_worker (alpha.work) 1  no_worker (beta.work) 1"] == reasons(held)
    assert ["held   no_worker (beta.work) 2  no_worker (alpha.work) 1"] == reasons([*held, *_of(held, "beta")])
    assert [] == reasons([])


def _of(held: list[observing.HeldRun], workflow: str) -> list[observing.HeldRun]:
    return [run for run in held if run.workflow_id == workflow]


def test_without_a_service_it_ends_with_exit_code_3() -> None:
    with opened(f"http://127.0.0.1:{free_port()}") as screen:
        screen.until("Is it running?")
        assert UNAVAILABLE == screen.process.wait(20)


@pytest.mark.parametrize("height", [1, 4, 12, 40])
def test_no_screen_is_too_small(height: int) -> None:
    from rich.console import Console

    queues = [TaskQueueView(f"t{number}", number, 0, 0) for number in range(50)]
    seen = Observation(1.0, {"running": 1}, {"runs started": 2.0}, queues)
    console = Console(width=50, height=height, record=True, file=io.StringIO())
    console.print(drawn(seen, Look(), 50, height))
    assert len(console.export_text().splitlines()) <= max(height, 15)


def test_an_order_and_its_reverse_have_the_same_queues() -> None:
    queues = [TaskQueueView("a", 1, 0, 3), TaskQueueView("b", 5, 0, 0, oldest_at="2026-01-01T00:00:00Z")]
    seen = Observation(1.0, queues=queues)
    for order in ORDERS:
        rows = queue_rows(seen, Look(order))
        assert rows == queue_rows(seen, Look(order, reverse=True))[::-1]
    assert "b" == queue_rows(seen, Look("oldest"))[0][0]


def test_counters_of_all_processes_are_added() -> None:
    lines = [
        "# TYPE penstock_run_events counter",
        'penstock_run_events_total{host="h",process="shard-0",workflow="w",event="started"} 3.0',
        'penstock_run_events_total{host="h",process="shard-1",workflow="w",event="started"} 4.0',
        "# TYPE penstock_runs gauge",
        'penstock_runs{workflow="w",status="running"} 2.0',
        'penstock_runs{workflow="v",status="running"} 5.0',
    ]
    counters, runs = counted("\n".join(lines) + "\n")
    assert (7.0, {"running": 7}) == (counters["runs started"], runs)
