"""Sends the latest progress of an execution: the first one at once, then at most one every PROGRESS_EVERY_S."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from penstock.broker.live.progress import StepProgress
from penstock.config.limits import PROGRESS_EVERY_S
from penstock.engine.errors import PenstockError, Unavailable
from penstock.worker.live.outbox import Outboxes

Say = Callable[[StepProgress], Awaitable[None]]


class ProgressSender:
    """Of one execution. `put` is for any thread, all else for the loop."""

    def __init__(self, say: Say, shared: Outboxes) -> None:
        self._say, self._shared = say, shared
        self._latest: StepProgress | None = None
        self._awake = self._closed = False
        self._sending: asyncio.Task[None] | None = None

    def put(self, progress: StepProgress) -> None:
        """Have it sent, unless another one follows soon."""
        with self._shared.lock:
            self._latest = progress
            awake, self._awake = self._awake, True
        if not awake:
            self._shared.call(self._begin)

    def close(self) -> None:
        """The execution has ended: its progress is of no interest any more."""
        self._closed = True
        if self._sending is not None:
            self._sending.cancel()

    def _begin(self) -> None:
        if not self._closed:
            self._sending = self._shared.start(self._send_all())

    async def _send_all(self) -> None:
        while (progress := self._take()) is not None:
            try:
                await self._say(progress)
            except Unavailable:
                pass  # the next one says more
            except PenstockError:  # the attempt is over, or the service knows no progress
                return
            await asyncio.sleep(PROGRESS_EVERY_S)

    def _take(self) -> StepProgress | None:
        with self._shared.lock:
            progress, self._latest = self._latest, None
            self._awake = progress is not None
        return progress
