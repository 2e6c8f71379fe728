"""A share of a core for each of some processes: one that has used more than its share is stopped until time has passed
for it. It needs no rights beyond those to send signals to one's own processes, unlike control groups."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

from .processes import cpu_s

LOOK_S = 0.004  # while a process runs, it can exceed its share by as much
SAVED_S_MAX = 0.02  # of CPU: what a process that was idle may use at once


class Allowance:
    """What one process may still use of its share of a core, in s of CPU; below 0 it must wait."""

    def __init__(self, share: float, now: float, used_s: float) -> None:
        self._share, self._at, self._used_s = share, now, used_s
        self.left_s = 0.0

    def look(self, now: float, used_s: float) -> bool:
        """Whether it may run from `now` on, having used that much CPU since it began."""
        self.left_s += (now - self._at) * self._share - (used_s - self._used_s)
        self.left_s = min(self.left_s, SAVED_S_MAX)
        self._at, self._used_s = now, used_s
        return self.left_s >= 0


@contextmanager
def quota(pids: Collection[int], share: float) -> Iterator[None]:
    """Each of these processes uses at most this share of a core for the time of the block."""
    over = threading.Event()
    thread = threading.Thread(target=_watch, args=(pids, share, over), name="quota")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _watch(pids: Collection[int], share: float, over: threading.Event) -> None:
    now = time.monotonic()
    allowances = {pid: Allowance(share, now, cpu_s([pid])) for pid in pids}
    runs = dict.fromkeys(pids, True)
    while not over.wait(LOOK_S):
        now = time.monotonic()
        for pid, allowance in allowances.items():
            if (may := allowance.look(now, cpu_s([pid]))) != runs[pid]:
                _send(pid, signal.SIGCONT if may else signal.SIGSTOP)
                runs[pid] = may
    for pid in pids:
        _send(pid, signal.SIGCONT)


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
