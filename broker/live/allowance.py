"""How much one execution may say: a burst, a rate, and an amount in all, so that a flood pushes out little of what
others have said."""

from __future__ import annotations

from penstock.config.limits import (
    ENTRY_OVERHEAD_BYTES,
    SAID_AFTER_THAT_BYTES_PER_S,
    SAID_AT_ONCE_BYTES,
    SAID_BYTES_PER_S,
    SAID_IN_ALL_BYTES,
)


class TokenBucket:
    """Bytes that may be taken: `most` at once, refilled at a rate. Once it is empty, nothing may be taken until a
    second's worth is there: so what is dropped in a flood is counted together."""

    __slots__ = ("_at", "_closed", "_left", "_most", "_per_s")

    def __init__(self, most: float, per_s: float, now: float) -> None:
        """`now` is in s, of any clock that only grows."""
        self._most, self._per_s, self._left, self._at, self._closed = most, per_s, most, now, False

    def open(self, size: int, now: float) -> bool:
        """Whether so many bytes may be taken."""
        self._left = min(self._most, self._left + (now - self._at) * self._per_s)
        self._at = now
        if self._closed and self._left >= min(self._per_s, self._most):
            self._closed = False
        self._closed = self._closed or self._left < size
        return not self._closed

    def take(self, size: int) -> None:
        self._left -= size


class Allowance:
    """Of one execution, for its log lines or its chunks."""

    __slots__ = ("_all", "_burst")

    def __init__(self, now: float) -> None:
        self._burst = TokenBucket(SAID_AT_ONCE_BYTES, SAID_BYTES_PER_S, now)
        self._all = TokenBucket(SAID_IN_ALL_BYTES, SAID_AFTER_THAT_BYTES_PER_S, now)

    def take(self, size: int, now: float) -> bool:
        """Take the bytes of one entry. False: there is no room, it must be dropped."""
        size += ENTRY_OVERHEAD_BYTES
        if not (self._burst.open(size, now) and self._all.open(size, now)):
            return False
        self._burst.take(size)
        self._all.take(size)
        return True
