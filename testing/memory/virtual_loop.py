"""An event loop on the time of a service in memory: a task function that sleeps for an hour takes no time.

What a function awaits beyond that, such as a thread or a socket, is waited for in real time, for REAL_S_MAX at most.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextvars import Context
from typing import TypeVarTuple

from penstock.testing.memory.timeline import DueAction, Timeline

REAL_S_MAX = 10.0
POLL_S = 0.001

Ts = TypeVarTuple("Ts")


class _VirtualTimer(asyncio.TimerHandle):
    """`due` is its place in the time of the service."""

    due: DueAction | None = None

    def cancel(self) -> None:
        super().cancel()
        if self.due is not None:
            self.due.drop()


class VirtualLoop(asyncio.SelectorEventLoop):
    """Owned by a service in memory, which runs it whenever something may have become ready."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        super().__init__()
        self._calls = 0
        self._timers: set[_VirtualTimer] = set()

    @property
    def awaits_nothing_virtual(self) -> bool:
        """Whether nothing will become ready by time."""
        self._timers = {timer for timer in self._timers if not timer.cancelled()}
        return not self._timers

    def time(self) -> float:
        return self._timeline.now

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        self._calls += 1
        return super().call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = _VirtualTimer(when, callback, args, self, context)

        def due() -> None:
            self._timers.discard(handle)
            self.call_soon(callback, *args, context=context)
            self.run_ready()

        handle.due = self._timeline.at(when, due)
        self._timers.add(handle)
        return handle

    def run_ready(self) -> None:
        """Run what is ready, and what that makes ready, until nothing is. Inside the loop it does nothing: what is
        ready comes next anyway."""
        if self.is_running():
            return
        while self._run_once_ready() > 1:  # more than its own end
            pass

    def run_real(self, is_over: Callable[[], bool]) -> None:
        """Wait in real time, until it is over or REAL_S_MAX has passed."""
        until = time.monotonic() + REAL_S_MAX
        while not is_over() and time.monotonic() < until:
            time.sleep(POLL_S)
            self.run_ready()

    def _run_once_ready(self) -> int:
        """Run what is ready now, also below a loop of the test's own. Returns how many calls that has asked for."""
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        self._calls = 0
        try:
            self.call_soon(self.stop)
            self.run_forever()
        finally:
            asyncio._set_running_loop(outer)
        return self._calls
