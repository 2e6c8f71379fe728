"""How a client that follows a run connects again after a lost connection."""

from __future__ import annotations

from penstock.engine.errors import Unavailable

RECONNECT_S = 0.2
RECONNECT_S_MAX = 5.0
RECONNECTS_MAX = 10  # in a row, without one that succeeds


class Reconnects:
    """Owned by one call of `follow`: how many connections in a row have failed."""

    def __init__(self) -> None:
        self._failures: int = RECONNECTS_MAX  # the first connection has no second try

    def connected(self) -> None:
        self._failures = 0

    def failed(self, error: Unavailable) -> None:
        """Count a failed connection. Raises `error` when it was one too many."""
        self._failures += 1
        if self._failures > RECONNECTS_MAX:
            raise error

    @property
    def pause_s(self) -> float:
        """How long to wait before the next connection: twice as long after each one that failed."""
        return min(RECONNECT_S * float(2**self._failures), RECONNECT_S_MAX)
