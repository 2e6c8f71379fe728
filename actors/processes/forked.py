"""A child that is forked from the supervisor: it begins with all that the supervisor has imported, and shares these
pages with it and its siblings. It is there in a few milliseconds, with the same code at each restart.

A fork is safe here because the supervisor has one thread, and no event loop while it starts children.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import weakref
from collections.abc import Callable, Collection
from contextlib import suppress
from multiprocessing.connection import wait

from penstock.config.process import rate_limited_log
from penstock.config.process.background import FAILURES
from penstock.config.process.parent import end_with, set_name
from penstock.telemetry.warnings import WARNINGS

STANDARD = (0, 1, 2)
OPEN_FILES = "/proc/self/fd"
STOPPING = (signal.SIGTERM, signal.SIGINT)


class ForkedChild:
    """A started child of this process, with the interface of a multiprocessing.Process. It gets SIGTERM when this
    process ends."""

    def __init__(
        self, name: str, target: Callable[..., None], arguments: tuple[object, ...], inherited: Collection[int] = ()
    ) -> None:
        """It calls `target`, and ends with it. `inherited` are the open files that it keeps besides its standard
        ones."""
        self._process = multiprocessing.get_context("fork").Process(
            target=_begin, args=(name, os.getpid(), inherited, target, arguments), name=name
        )
        # Until the child has its own handlers, signals wait: those of this process would take them there, for nothing.
        former = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, former)
        # multiprocessing's own is a pipe, which processes that the child forks would keep open after its end.
        self.sentinel = os.pidfd_open(self.pid)
        weakref.finalize(self, os.close, self.sentinel)

    @property
    def pid(self) -> int:
        pid = self._process.pid
        assert pid is not None
        return pid

    @property
    def exitcode(self) -> int | None:
        return self._process.exitcode

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    def join(self, timeout: float | None = None) -> None:
        wait([self.sentinel], timeout)


def _begin(
    name: str, parent: int, inherited: Collection[int], target: Callable[..., None], arguments: tuple[object, ...]
) -> None:
    """Drop what is the parent's, and call the target."""
    set_name(name)
    os.setpgid(0, 0)  # Ctrl-C goes to the whole group; the supervisor decides the order
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # drops one that came before the group was left
    signal.signal(signal.SIGINT, signal.default_int_handler)
    end_with(parent)
    _close_all_but((*STANDARD, *inherited))  # else a lock of the parent would last as long as this process
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
    WARNINGS.clear()
    FAILURES.clear()
    rate_limited_log.reset()
    target(*arguments)


def _close_all_but(kept: Collection[int]) -> None:
    for number in map(int, os.listdir(OPEN_FILES)):
        if number not in kept:
            with suppress(OSError):  # that of the listing itself
                os.close(number)
