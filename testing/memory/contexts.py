"""The context of a task function, in memory: the worker's own, over checkpoints and signals in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from penstock.broker.live.progress import progress
from penstock.config.limits import CHUNK_BYTES_MAX
from penstock.engine.errors import TooLarge
from penstock.testing.memory.outcomes import CalledTask
from penstock.worker.live.step_log import StepLog
from penstock.worker.tasks.context import Context

LOG, CHUNK, PROGRESS = "log", "chunk", "progress"


class StepMemory(Protocol):
    """What is kept for steps and runs (calling.py)."""

    checkpoints: dict[tuple[str, str], bytes]
    said: list[tuple[str, str, str, bytes]]
    send_signal: Callable[[str, str, bytes], None]

    def wait_signal(self, run_id: str, name: str) -> Awaitable[bytes]: ...


class _Store:
    """Belongs to one call."""

    def __init__(self, memory: StepMemory, task: CalledTask) -> None:
        self._memory, self._task, self.deliveries = memory, task.payload, task.deliveries

    async def checkpoint(self, body: bytes) -> None:
        self._memory.checkpoints[self._task.run_id, self._task.step_id] = body

    async def load_checkpoint(self) -> bytes | None:
        return self._memory.checkpoints.get((self._task.run_id, self._task.step_id))

    async def wait_signal(self, name: str) -> bytes:
        return await self._memory.wait_signal(self._task.run_id, name)

    async def send_signal(self, run_id: str, name: str, payload: bytes) -> None:
        self._memory.send_signal(run_id, name, payload)


class _Said:
    """Belongs to one call."""

    def __init__(self, memory: StepMemory, task: CalledTask) -> None:
        self._memory, self._task = memory, task.payload
        self._log: StepLog | None = None

    @property
    def log(self) -> StepLog:
        if self._log is None:
            self._log = StepLog(lambda body: self._put(LOG, body))
        return self._log

    def stream(self, body: bytes) -> None:
        """Raises TooLarge."""
        if len(body) > CHUNK_BYTES_MAX:
            raise TooLarge(f"the chunk has {len(body)} bytes, {CHUNK_BYTES_MAX} is the most")
        self._put(CHUNK, body)

    def progress(self, done: float, total: float | None, text: str) -> None:
        """Raises Invalid."""
        self._put(PROGRESS, msgspec.json.encode(progress(done, total, text, self._task.attempt)))

    def _put(self, kind: str, body: bytes) -> None:
        self._memory.said.append((self._task.run_id, self._task.step_id, kind, body))


def context_of(memory: StepMemory, task: CalledTask) -> Context:
    """What the function of this task is given."""
    return Context(task.payload, _Store(memory, task), _Said(memory, task))
