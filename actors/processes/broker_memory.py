"""Has the embedded broker collect its garbage when it has become quiet: it would keep for minutes what a burst took."""

from __future__ import annotations

import time

from penstock.broker.embedded.memory import collect_garbage, cpu_s
from penstock.broker.embedded.server import EmbeddedBroker
from penstock.config.settings import BrokerSettings

LOOK_S = 5.0
BUSY_SHARE = 0.1  # of a core
# The broker keeps blocks for 10 s after they were used, and its maps of their subjects for 2 minutes.
COLLECTED_AFTER_S = (15.0, 45.0, 150.0)


class Quiet:
    """How long the broker has been quiet, and whether its garbage is to be collected by now: a few times, then not
    until it has been busy again."""

    def __init__(self, now: float) -> None:
        self._looked_at, self._since = now, now
        self._used_s: float | None = None
        self._collected = 0

    def is_due(self, now: float, used_s: float | None) -> bool:
        """`used_s`: the CPU time of the broker so far; None: not known."""
        if self._was_busy(now, used_s):
            self._since, self._collected = now, 0
        self._looked_at, self._used_s = now, used_s
        left = COLLECTED_AFTER_S[self._collected :]
        return bool(left) and now - self._since >= left[0]

    def collected(self, used_s: float | None) -> None:
        """Garbage was collected, which is no work of the broker's."""
        self._used_s = used_s
        self._collected += 1

    def _was_busy(self, now: float, used_s: float | None) -> bool:
        if used_s is None or self._used_s is None or used_s < self._used_s:
            return True  # another process
        return used_s - self._used_s > BUSY_SHARE * (now - self._looked_at)


class BrokerMemory:
    """Owned by the supervisor's process, which calls `watch` between its waits."""

    def __init__(self, broker: EmbeddedBroker, settings: BrokerSettings) -> None:
        self._broker, self._settings = broker, settings
        self._quiet = Quiet(time.monotonic())
        self._next_look = 0.0

    def watch(self) -> float:
        """Look if it is time to, and collect. Returns in how many s to call it again."""
        now = time.monotonic()
        if now < self._next_look:
            return self._next_look - now
        if self._quiet.is_due(now, self._used_s()):
            collect_garbage(self._settings)
            self._quiet.collected(self._used_s())
        self._next_look = time.monotonic() + LOOK_S
        return LOOK_S

    def _used_s(self) -> float | None:
        command = self._broker.command
        return None if command is None or command.exitcode is not None else cpu_s(command.pid)
