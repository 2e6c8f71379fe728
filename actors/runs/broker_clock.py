"""The broker's clock, as far as a shard can tell it: no host's own clock has a say in when a timer is due."""

from __future__ import annotations

import math
import time


class BrokerClock:
    """Owned by one shard. Never ahead of the clock that it shows, as it was last seen; behind it by what that sight
    took to arrive.

    Not the best sight counts but the last one: the broker's clock may be set back, and another node may come to lead,
    whose clock is behind. It also leaves both clocks no time to drift apart.
    """

    def __init__(self) -> None:
        self._ahead_s = -math.inf  # of this process's monotonic clock; until it is seen, no time has come

    def saw(self, at: float, received: float) -> None:
        """The broker has said what its time is (`at`, s since the epoch), which was heard at this monotonic time."""
        self._ahead_s = at - received

    def now(self) -> float:
        """The broker's time, in s since the epoch: this at least."""
        return time.monotonic() + self._ahead_s
