"""All that one execution says: its log, its chunks, its progress. Each part is made when it is first used."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

from penstock.broker.live import lines
from penstock.broker.live.progress import progress
from penstock.broker.worker_messages import TaskPayload
from penstock.config.limits import CHUNK_BYTES_MAX
from penstock.config.logging import get_logger
from penstock.config.process.rate_limited_log import log_rate_limited
from penstock.engine.errors import TooLarge
from penstock.engine.times import rfc3339
from penstock.worker.live.outbox import Outbox, Outboxes, Parcel
from penstock.worker.live.progress_sender import ProgressSender
from penstock.worker.live.step_log import StepLog
from penstock.worker.transport import HeldTask

# What the end of a function waits for all that it said: longer than a request without an answer, and its repeat. What
# has not been stored by then must not hold up the step for ever.
FLUSH_S_MAX = 60.0

log = get_logger()


class LiveOutput:
    """Owned by one execution. `log`, `stream` and `progress` are for any thread."""

    __slots__ = ("_chunks", "_held", "_lines", "_log", "_progress", "_shared", "_task")

    def __init__(self, task: TaskPayload, held: HeldTask, shared: Outboxes) -> None:
        self._task, self._held, self._shared = task, held, shared
        self._log: StepLog | None = None
        self._lines: Outbox | None = None
        self._chunks: Outbox | None = None
        self._progress: ProgressSender | None = None

    @property
    def log(self) -> StepLog:
        if self._log is None:
            self._lines = Outbox(self._send_lines, self._shared)
            self._log = StepLog(self._lines.put)
        return self._log

    def stream(self, body: bytes) -> None:
        """Take a chunk, as JSON. Raises TooLarge."""
        if len(body) > CHUNK_BYTES_MAX:
            raise TooLarge(f"the chunk has {len(body)} bytes, {CHUNK_BYTES_MAX} is the most")
        if self._chunks is None:
            self._chunks = Outbox(self._send_chunks, self._shared)
        self._chunks.put(body)

    def progress(self, done: float, total: float | None, text: str) -> None:
        """Raises Invalid."""
        said = progress(done, total, text, self._task.attempt)
        if self._progress is None:
            self._progress = ProgressSender(self._held.say_progress, self._shared)
        self._progress.put(said)

    async def flush(self) -> None:
        """Take nothing more, and return when all is stored, or after FLUSH_S_MAX: a step behind it is completed without
        the rest."""
        self._end()
        for outbox in self._outboxes():
            outbox.finish()
        try:
            async with asyncio.timeout(FLUSH_S_MAX):
                for outbox in self._outboxes():
                    await outbox.sent()
                for outbox in self._outboxes():
                    await outbox.try_again()
        except TimeoutError:
            log_rate_limited(log, "step_output_late", run_id=self._task.run_id, step_id=self._task.step_id)
            for outbox in self._outboxes():
                outbox.close()

    def close(self) -> None:
        """Take nothing more; what was taken is still sent."""
        self._end()
        for outbox in self._outboxes():
            outbox.close()

    def _outboxes(self) -> Iterator[Outbox]:
        return filter(None, (self._lines, self._chunks))

    def _end(self) -> None:
        if self._log is not None:
            self._log.end()
        if self._progress is not None:
            self._progress.close()

    async def _send_lines(self, parcel: Parcel) -> None:
        notice = [lines.dropped(parcel.dropped, rfc3339(time.time()))] if parcel.dropped else []
        await self._held.say_lines([*notice, *parcel.entries], parcel.number)

    async def _send_chunks(self, parcel: Parcel) -> None:
        await self._held.say_chunks(parcel.entries, parcel.dropped, parcel.number)
