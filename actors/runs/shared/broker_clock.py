"""An estimate of the broker's time: a host's own clock never decides when a timer is due."""

from __future__ import annotations

import math
import time


class BrokerClock:
    """A lower bound of the broker's time: last observed timestamp plus elapsed time. Owned by one shard.

    It is behind by the latency of that observation. The last observation counts, not the best one: the broker's clock
    may be set back, and a new leader's clock may be behind. Nor have the two clocks time to drift apart.
    """

    def __init__(self) -> None:
        self._ahead_s = -math.inf  # of this process's monotonic clock; before the first observation, no timer is due

    def observe(self, at: float, received: float) -> None:
        """Observe a timestamp of the broker (`at`, s since the epoch) that was received at this monotonic time."""
        self._ahead_s = at - received

    def now(self) -> float:
        """A lower bound of the broker's time, in s since the epoch."""
        return time.monotonic() + self._ahead_s
