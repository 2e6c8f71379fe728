"""Processes that are started again whenever they end, as an operator's own supervisor would do; and their descendants,
by id."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from load.processes import descendants

from penstock.broker.embedded.child_program import ChildProgram

PR_SET_CHILD_SUBREAPER = 36
LOOK_S = 0.1
AGAIN_S = 0.5
STOP_S_MAX = 20.0
GONE_S_MAX = 5.0


class Place:
    """One process of ours, again and again. `log` gets what it says."""

    def __init__(self, name: str, arguments: Sequence[str], environ: Mapping[str, str], log: Path) -> None:
        self.name, self.log = name, log
        self._arguments, self._environ = arguments, environ
        self._command: ChildProgram | None = None
        self._again_at = 0.0

    @property
    def pid(self) -> int | None:
        return self._command.pid if self.alive and self._command else None

    @property
    def alive(self) -> bool:
        return self._command is not None and self._command.exitcode is None

    def look(self) -> None:
        """Start it if it does not run, but not at once after it has ended."""
        if self.alive:
            return
        if self._command is not None:
            self._command, self._again_at = None, time.monotonic() + AGAIN_S
        if time.monotonic() >= self._again_at:
            with self.log.open("ab") as output:
                self._command = ChildProgram(self._arguments, self._environ, output)

    def stop(self) -> int | None:
        """End it in peace; its exit code, None when it did not end in time."""
        if self._command is None:
            return None
        self._command.terminate()
        self._command.join(STOP_S_MAX)
        return self._command.exitcode


class Places:
    """Owned by the storm. Everything that comes of these processes stays among this one's descendants, so nothing is
    left over."""

    def __init__(self) -> None:
        self.all: list[Place] = []
        # What outlives its own parent, say a frozen shard its supervisor, becomes a child of this process.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)

    def add(self, place: Place) -> Place:
        place.look()
        self.all.append(place)
        return place

    async def keep(self) -> None:
        """Start again what ends, for ever. In the thread that started them: their lives hang on it."""
        while True:
            for place in self.all:
                place.look()
            await asyncio.sleep(LOOK_S)

    def end(self) -> None:
        """Kill everything that is left, and wait until it is gone. It may be called at any time, more than once."""
        deadline = time.monotonic() + GONE_S_MAX
        while (left := alive(os.getpid())) and time.monotonic() < deadline:
            for pid in left:
                strike(pid, signal.SIGKILL)
            _bury()
            time.sleep(0.02)


def alive(root: int) -> list[int]:
    """The descendants of a process, without itself, without those of which only the exit code is left."""
    return sorted(descendants(root) - {root})


def strike(pid: int, number: signal.Signals) -> bool:
    """Send a signal to a process of ours; False, and nothing is done, when it is none (any more)."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if pid not in descendants(os.getpid()):  # asked while the handle is held: another one cannot take its id now
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def _bury() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
