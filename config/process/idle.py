"""How much of the CPU that this process may use is idle."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from penstock.config.process.usable import control_group, core_quota

LOOK_S = 0.5  # the kernel counts in hundredths of a second
STAT = Path("/proc/stat")
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class IdleShare:
    """The share of the CPU that was idle lately; 0 where the system does not say."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, stat: Path = STAT, group: Path | None = None
    ) -> None:
        self._clock, self._stat, self._group = clock, stat, control_group() if group is None else group
        self._cores = os.cpu_count() or 1
        self._before = (self._clock(), *self._read())
        self._share = 0.0

    def __call__(self) -> float:
        """It is measured anew every LOOK_S, since the last time."""
        now, (since, idle_s, used_s) = self._clock(), self._before
        if (passed := now - since) < LOOK_S:
            return self._share
        self._before = (now, *self._read())
        _, idle_now, used_now = self._before
        share = (idle_now - idle_s) / (passed * self._cores)
        if (quota := core_quota(self._group)) is not None:
            share = min(share, 1 - (used_now - used_s) / (passed * quota))
        self._share = min(1.0, max(0.0, share))
        return self._share

    def _read(self) -> tuple[float, float]:
        """CPU time of the machine that was idle, and that the group has used, in s."""
        idle_s = used_s = 0.0
        with suppress(OSError, ValueError, IndexError):
            idle_s = int(self._stat.read_text().split(maxsplit=5)[4]) * TICK_S
        with suppress(OSError, ValueError, IndexError):
            used_s = int((self._group / "cpu.stat").read_text().split()[1]) / 1e6
        return idle_s, used_s
