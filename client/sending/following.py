"""How a client that reads a stream connects again after a lost connection."""

from __future__ import annotations

from penstock.engine.errors import Unavailable

RECONNECT_S = 0.2
RECONNECT_S_MAX = 5.0
RECONNECTS_MAX = 10  # in a row, without one that succeeds


class Reconnects:
    """Owned by one reader of a stream: how many connections in a row have failed."""

    def __init__(self, first: int) -> None:
        """`first` is how often the first connection is tried again."""
        self._failures: int = 0
        self._most = first

    def connected(self) -> None:
        self._failures = 0
        self._most = RECONNECTS_MAX

    def failed(self, error: Unavailable) -> None:
        """Count a failed connection. Raises `error` when it was one too many."""
        self._failures += 1
        if self._failures > self._most:
            raise error

    @property
    def pause_s(self) -> float:
        """How long to wait before the next connection: twice as long after each one that failed."""
        return min(RECONNECT_S * float(2**self._failures), RECONNECT_S_MAX)
