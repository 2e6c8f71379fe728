"""The way from the command line to the console: who says where it is, and opens a page of it."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import time
from pathlib import Path

import httpx2
import pytest

from tests.e2e.conftest import StartService
from tests.support.service import PENSTOCK, STOP_S_MAX, Service, clean_environ, free_port
from tests.support.waiting import until_found

NOBODY = {"name": "quiet", "steps": [{"id": "wait", "task": "nobody.serves"}]}
READY_S_MAX = 40.0


@pytest.fixture
def run_id(service: Service, tmp_path: Path) -> str:
    """A run that goes on."""
    with service.client() as api:
        api.register(json.dumps(NOBODY).encode())
        return api.start("quiet").run_id


def with_browser(service: Service, folder: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """The command with a browser that only writes down what it is to show; and what that is."""
    opened, browser = folder / "opened", folder / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" >>"{opened}"\n')
    browser.chmod(0o755)
    return called(service, *arguments, BROWSER=f"{browser} %s"), opened.read_text().splitlines()


def called(service: Service, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PENSTOCK, *arguments],
        env={**service.environ, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def test_ready_says_where_the_console_is(start_service: StartService) -> None:
    service = start_service(shards=1, http_workers=1)
    [ready] = until_found(lambda: [line for line in service.log_lines() if line["event"] == "ready"])
    assert f"{service.url}/console" == ready["console"]
    assert 200 == httpx2.get(str(ready["console"])).status_code


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a terminal")
def test_a_terminal_shows_it_as_a_line(tmp_path: Path) -> None:
    port = free_port()
    command = [
        PENSTOCK,
        "serve",
        f"--listen=:{port}",
        f"--broker-port={free_port()}",
        f"--data-dir={tmp_path / 'data'}",
    ]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, env=clean_environ(), stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)
    os.close(theirs)
    try:
        line = f"The console: http://127.0.0.1:{port}/console\r\n"
        assert line in _read_until(ours, line)
    finally:
        process.terminate()
        _read_until(ours, None)
        assert 0 == process.wait(STOP_S_MAX)
        os.close(ours)


def _read_until(terminal: int, text: str | None) -> str:
    """What comes out of a terminal until this text, or until its end."""
    found, deadline = "", time.monotonic() + READY_S_MAX
    while (text is None or text not in found) and (left := deadline - time.monotonic()) > 0:
        if not select.select([terminal], [], [], left)[0]:
            break
        try:
            piece = os.read(terminal, 65536)
        except OSError:
            break  # the last process has closed it
        found += piece.decode()
    return found


def test_start_opens_the_page_of_the_run(service: Service, run_id: str, tmp_path: Path) -> None:
    done, opened = with_browser(service, tmp_path, "run", "start", "quiet", "--open")
    assert 0 == done.returncode, done.stderr
    [started] = done.stdout.splitlines()
    assert re.fullmatch("[0-9a-f]{32}", started)
    assert started != run_id
    assert [f"{service.url}/console/runs/{started}"] == opened
    assert opened[0] in done.stderr.splitlines()


def test_watch_opens_the_page_of_the_run(service: Service, run_id: str, tmp_path: Path) -> None:
    with service.client() as api:
        api.cancel(run_id)
    done, opened = with_browser(service, tmp_path, "run", "watch", run_id[:20], "--open")
    assert 4 == done.returncode
    assert [f"{service.url}/console/runs/{run_id}"] == opened


def test_without_a_browser_the_address_is_printed(service: Service, run_id: str, tmp_path: Path) -> None:
    nothing = {"PATH": str(tmp_path), "BROWSER": "", "DISPLAY": "", "WAYLAND_DISPLAY": ""}
    done = called(service, "run", "start", "quiet", "--open", **nothing)
    assert 0 == done.returncode, done.stderr
    address = f"{service.url}/console/runs/{done.stdout.strip()}"
    assert done.stderr.splitlines()[:2] == [address, "no browser was found here: open the address by hand"]
