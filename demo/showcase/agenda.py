"""When the showcase does what: one thing after the other, until somebody stops it."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from itertools import count
from threading import Event

from penstock.engine.errors import NotFound, PenstockError

Act = Callable[[], float | None]
"""Returns after how many seconds it is to be called again; None: never."""

AFTER_FAILURE_S = 5.0
IDLE_S = 60.0


class Agenda:
    """Owned by the command; the acts are called in its thread."""

    def __init__(self, report: Callable[[PenstockError], None]) -> None:
        """`report` receives the error of an act that the service has refused, which is called again a little later."""
        self._report, self._numbers = report, count()
        self._acts: list[tuple[float, int, Act]] = []

    def after(self, seconds: float, act: Act) -> None:
        heapq.heappush(self._acts, (time.monotonic() + seconds, next(self._numbers), act))

    def run(self, stop: Event) -> None:
        """Do what is due, until `stop` is set."""
        while not stop.wait(self._pause_s()):
            while self._acts and self._acts[0][0] <= time.monotonic() and not stop.is_set():
                self._do(heapq.heappop(self._acts)[2])

    def _do(self, act: Act) -> None:
        try:
            again_s = act()
        except NotFound:
            return  # somebody has removed what it is about
        except PenstockError as error:
            self._report(error)
            again_s = AFTER_FAILURE_S
        if again_s is not None:
            self.after(again_s, act)

    def _pause_s(self) -> float:
        return max(0.0, self._acts[0][0] - time.monotonic()) if self._acts else IDLE_S
