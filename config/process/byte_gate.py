"""A bound on the bytes that a process holds at once for one purpose."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress


class ByteGate:
    """Owned by the process, for one purpose. Whoever asks first is let in first."""

    def __init__(self, most: int) -> None:
        self.most, self.free = most, most
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, size: int) -> Share:
        """Wait until so many bytes are free, and take them. More than there are at all counts as all."""
        size = min(size, self.most)
        if not self._waiting and size <= self.free:
            self.free -= size
            return Share(self, size)
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it was let in at the same moment
                self._give_back(size)
            else:
                with suppress(ValueError):  # it was passed over at the same moment
                    self._waiting.remove((size, turn))
                self._let_in()
            raise
        return Share(self, size)

    def _give_back(self, size: int) -> None:
        self.free += size
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting and self._waiting[0][0] <= self.free:
            size, turn = self._waiting.popleft()
            if not turn.done():
                self.free -= size
                turn.set_result(None)


class Share:
    """Bytes that somebody has taken of a gate."""

    __slots__ = ("_gate", "size")

    def __init__(self, gate: ByteGate, size: int) -> None:
        self._gate, self.size = gate, size

    def keep(self, size: int) -> None:
        """Give back what is beyond this size."""
        beyond = self.size - min(size, self.size)
        self.size -= beyond
        self._gate._give_back(beyond)

    def give_back(self) -> None:
        """Give back what is left. It may be called again."""
        self.keep(0)
