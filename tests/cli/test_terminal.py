"""What a person sees: the command on a terminal of 80 columns."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from typing import NamedTuple

from tests.cli.conftest import Answer, Service
from tests.support.service import PENSTOCK, clean_environ

ID = "01a1fbd4e22e73c2b60e9754e7b7a067"
STEPS = {
    "hello": {
        "status": "completed",
        "attempts": 1,
        "worker_id": "machine-19841-ad6eb0",
        "output": {"greeting": "Hello, Ada! " * 5},
    }
}
TIMES = {"started_at": "2026-01-01T00:00:00.000001Z", "finished_at": "2026-01-01T00:00:01.234567Z"}
RUN = {
    "run_id": ID,
    "workflow_id": "a-workflow-with-quite-a-long-name",
    "status": "completed",
    "version": "1",
    "created_at": TIMES["started_at"],
}
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Seen(NamedTuple):
    code: int
    text: str


def on_terminal(service: Service, *args: str, columns: int = 80) -> Seen:
    """Everything that the command writes to its terminal, without colours and movements."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environ = {**clean_environ(), "SERVICE_URL": service.url, "TERM": "xterm"}
    environ.pop("COLUMNS", None)
    with subprocess.Popen([PENSTOCK, *args], env=environ, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        text = b"".join(iter(lambda: _read(ours), b"")).decode()
        os.close(ours)
    return Seen(process.returncode, ESCAPES.sub("", text).replace("\r\n", "\n"))


def _read(end: int) -> bytes:
    try:
        return os.read(end, 65_536)
    except OSError:  # the other end is closed
        return b""


def test_a_list_shows_whole_ids_and_times_for_people_in_80_columns(service: Service) -> None:
    service.on("GET /runs?limit=100", [{**RUN, **TIMES, "steps": STEPS}])
    seen = on_terminal(service, "run", "list")
    (line,) = (line for line in seen.text.splitlines() if ID in line)
    assert "1.2s" in line
    assert " ago" in line
    assert "…" not in seen.text
    assert max(map(len, seen.text.splitlines())) <= 80


def test_an_id_is_whole_even_where_the_terminal_is_too_narrow(service: Service) -> None:
    service.on("GET /runs?limit=100", [{**RUN, **TIMES, "steps": STEPS}])
    seen = on_terminal(service, "run", "list", columns=30)
    assert ID in seen.text
    assert "…" not in seen.text


def test_many_columns_fit_with_whole_headers(service: Service) -> None:
    known = {"language": "python", "transport": "nats", "hostname": "vm", "pid": 1234, "last_seen": TIMES["started_at"]}
    service.on(
        "GET /workers",
        [{"worker_id": "machine-1234-ad6eb0", "task_types": ["hello", "shout"], "worker_group": "gpu", **known}],
    )
    seen = on_terminal(service, "worker", "list", columns=80)
    assert "LANGUAGE" in seen.text
    assert "machine-1234-ad6eb0" in seen.text
    assert max(map(len, seen.text.splitlines())) <= 80


def test_start_and_wait_prints_the_id_at_once_and_shows_the_run_while_it_goes_on(service: Service) -> None:
    service.on("POST /runs", {"run_id": ID})
    running = {
        **RUN,
        "status": "running",
        "started_at": TIMES["started_at"],
        "steps": {"hello": {"status": "queued", "attempts": 1}},
    }
    service.on(f"GET /runs/{ID}", running, {**RUN, **TIMES, "steps": STEPS})
    seen = on_terminal(service, "run", "start", "greet", "--wait")
    assert 0 == seen.code
    first, *rest = seen.text.splitlines()
    assert ID == first
    assert [True, True] == [any(word in line for line in rest) for word in ("queued", "completed")]
    assert any(line.startswith("status") and line.endswith("completed") for line in rest)
    assert STEPS["hello"]["worker_id"] in seen.text


def test_a_live_view_outlasts_a_service_that_is_away_for_a_moment(service: Service) -> None:
    running = {**RUN, "status": "running", "steps": {"hello": {"status": "queued", "attempts": 1}}}
    service.on(f"GET /runs/{ID}", running, Answer(b"starting\n", 503), {**RUN, **TIMES, "steps": STEPS})
    assert 0 == on_terminal(service, "run", "watch", ID).code


def test_many_runs_are_cancelled_under_a_bar_that_knows_how_many(service: Service) -> None:
    part = {"skipped": [], "total": 1000, "dry_run": False}
    more = {**part, "cancelled": [f"{number:032x}" for number in range(1000)], "next": "1.a", "remaining": 500}
    service.on("POST /runs/cancel", more, {**part, "cancelled": [], "total": 500, "remaining": 0})
    seen = on_terminal(service, "run", "cancel", "--workflow", "w")
    assert 0 == seen.code
    assert "cancelling" in seen.text
    assert "1500/1500" in seen.text
    assert f"{999:032x} cancelled" in seen.text
