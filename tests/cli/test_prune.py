"""`penstock prune` on a terminal: it counts, asks, and removes only after a yes."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
from collections.abc import ItemsView
from contextlib import suppress
from threading import Event, Thread, Timer

import pytest

from tests.cli.conftest import Answer, Penstock, Service
from tests.cli.test_terminal import ESCAPES
from tests.support.service import PENSTOCK, clean_environ

PRUNE = "POST /runs/prune"
QUESTION = "Remove them for good? [y/N]:"
WAIT_S, AGAIN_S, CTRL_C = 20.0, 2.0, "Ctrl-C"
WOULD = {"pruned": ["r1", "r2"], "skipped": [{"run_id": "r3", "reason": "it is \x1bneeded"}], "total": 3}


def asked(service: Service, answer: str, *args: str, until: Event | None = None) -> tuple[int, str]:
    """Exit code and screen of the command, on a terminal at which somebody answers the question so, and presses Ctrl-C
    at that event."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    environ = {**clean_environ(), "SERVICE_URL": service.url, "TERM": "xterm"}
    command = [PENSTOCK, "prune", *args]
    with subprocess.Popen(command, env=environ, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        if until is not None:
            Thread(target=lambda: until.wait(WAIT_S) and process.send_signal(signal.SIGINT)).start()
        overdue = Timer(3 * WAIT_S, process.kill)
        overdue.start()
        text = b""
        while read := _read(ours):
            text += read
            if answer and QUESTION.encode() in text:
                if answer == CTRL_C:
                    Thread(target=_interrupt, args=(process,)).start()
                else:
                    os.write(ours, answer.encode())
                answer = ""
    overdue.cancel()
    os.close(ours)
    return process.returncode, ESCAPES.sub("", text.decode()).replace("\r\n", "\n")


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    """Press Ctrl-C, as people do: once more if nothing happens. A signal that comes just before readline waits for a
    key is noticed with the next one."""
    for _ in range(int(WAIT_S / AGAIN_S)):
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(AGAIN_S)
            return


def _read(end: int) -> bytes:
    try:
        return os.read(end, 65_536)
    except OSError:  # the other end is closed
        return b""


class Held(dict[str, str]):
    """Headers that make an answer wait: `asked` is set when it is wanted, and it is given when `over` is."""

    def __init__(self) -> None:
        self.asked, self.over = Event(), Event()

    def items(self) -> ItemsView[str, str]:
        self.asked.set()
        self.over.wait(WAIT_S)
        return super().items()


def dry_runs(service: Service) -> list[bool]:
    """Whether each of the requests was one that removes nothing."""
    return [body.get("dry_run", False) for body in service.bodies(PRUNE) if isinstance(body, dict)]


def test_a_yes_removes_what_was_counted(service: Service) -> None:
    service.on(PRUNE, {**WOULD, "dry_run": True}, {**WOULD, "dry_run": False})
    code, screen = asked(service, "y\n", "--workflow", "w")
    assert (0, [True, False]) == (code, dry_runs(service))
    before, _, after = screen.partition(QUESTION)
    for said in ("r1 would be pruned", "r3 skipped: it is \\x1bneeded", "2 runs would be pruned, 1 skipped"):
        assert said in before
    assert "2 runs pruned, 1 skipped" in after
    assert all(body["workflow_id"] == "w" for body in service.bodies(PRUNE) if isinstance(body, dict))


@pytest.mark.parametrize("answer", ["n\n", "\n", "\x04"])
def test_anything_else_removes_nothing(service: Service, answer: str) -> None:
    """Also an empty line, and the end of the input."""
    service.on(PRUNE, {**WOULD, "dry_run": True})
    code, screen = asked(service, answer, "--workflow", "w")
    assert (True, [True]) == (code != 0, dry_runs(service))
    assert "runs pruned" not in screen


def test_nobody_is_asked_where_nothing_would_go(service: Service) -> None:
    service.on(PRUNE, {**WOULD, "pruned": [], "total": 1, "dry_run": True})
    code, screen = asked(service, "", "--workflow", "w")
    assert (0, False) == (code, QUESTION in screen)
    assert "0 runs" in screen


def test_yes_asks_nobody(service: Service, penstock: Penstock) -> None:
    service.on(PRUNE, {**WOULD, "dry_run": False})
    assert (0, [False]) == (penstock("prune", "--workflow", "w", "--yes").code, dry_runs(service))


@pytest.mark.parametrize("yes", [True, False])
def test_who_interrupts_it_is_told_what_was_removed_until_then(service: Service, yes: bool) -> None:
    """The requests that were answered count; the one that was under way is the service's to finish."""
    held, first = Held(), {**WOULD, "dry_run": False, "next": "c", "remaining": 2000}
    count = [] if yes else [{**WOULD, "dry_run": True}]
    service.on(PRUNE, *count, first, Answer(headers=held))
    code, screen = asked(
        service, "" if yes else "y\n", "--workflow", "w", *(["--yes"] if yes else []), until=held.asked
    )
    held.over.set()
    after = screen.partition(QUESTION)[2] or screen
    assert (130, [True, False, False][yes:]) == (code, dry_runs(service))
    assert ("r1 pruned" in after, "2 runs pruned, 1 skipped" in after, "Traceback" in after) == (True, True, False)


def test_who_interrupts_the_question_has_nothing_removed(service: Service) -> None:
    service.on(PRUNE, {**WOULD, "dry_run": True})
    code, screen = asked(service, CTRL_C, "--workflow", "w")
    assert (130, [True]) == (code, dry_runs(service))
    assert "runs pruned" not in screen


def test_an_error_leaves_what_was_done_before_it(penstock: Penstock, service: Service) -> None:
    refused = Answer(b"needs a key of scope admin\n", 403)
    service.on(PRUNE, refused)
    failed = penstock("prune", "--workflow", "a", "--yes", "--json")
    assert (1, "", "Error: needs a key of scope admin\n") == failed
    service.on(PRUNE, {**WOULD, "dry_run": False}, refused)
    failed = penstock("prune", "--workflow", "a", "--workflow", "b", "--yes")
    assert (1, True) == (failed.code, "2 runs pruned, 1 skipped" in failed.out)
