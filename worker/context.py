"""What a task function may know and ask for beyond its input."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson

from penstock.broker import names
from penstock.broker.store import Store
from penstock.broker.tasks import TaskPayload
from penstock.config.limits import PAYLOAD_BYTES_MAX
from penstock.engine.errors import TooLarge
from penstock.worker import signals
from penstock.worker.patience import patiently


class TaskFacts:
    """Which execution of which step this is: `attempt` counts from 1, `iteration` from 0; `deliveries` counts how often the
    broker has handed out this very attempt; `metadata` is the step's own, `workflow` the workflow's name."""

    def __init__(self, task: TaskPayload, deliveries: int) -> None:
        self.run_id, self.step_id, self.task_id = task.run_id, task.step_id, task.task_id
        self.attempt, self.iteration, self.deliveries = task.attempt, task.iteration, deliveries
        self.workflow = task.workflow_name
        self.metadata: Mapping[str, str] = task.metadata


class Context(TaskFacts):
    """Belongs to one execution of an async task function. While the broker is away, its methods wait."""

    def __init__(self, task: TaskPayload, deliveries: int, store: Store) -> None:
        super().__init__(task, deliveries)
        self._store = store

    async def checkpoint(self, value: Any) -> None:
        """Keep `value` (JSON, at most 1 MiB) for later attempts and iterations of this step, until the run ends. Raises TooLarge."""
        body = orjson.dumps(value)
        if len(body) > PAYLOAD_BYTES_MAX:
            raise TooLarge(f"the checkpoint has {len(body)} bytes, {PAYLOAD_BYTES_MAX} is the most")
        await patiently(lambda: self._store.checkpoints.put(names.step_key(self.run_id, self.step_id), body))

    async def load_checkpoint(self) -> Any:
        """The latest checkpoint of this step, None without one; bytes if it is no JSON."""
        entry = await patiently(lambda: self._store.checkpoints.get(names.step_key(self.run_id, self.step_id)))
        return None if entry is None else _decoded(entry.value)

    async def wait_signal(self, name: str, timeout_s: float | None = None) -> Any:
        """The payload of the run's signal `name`: JSON decoded, or bytes if it is no JSON.

        A signal stays: one that came before counts, and waiting for it again gives it again. Raises TimeoutError.
        """
        async with asyncio.timeout(timeout_s):
            return _decoded(await signals.wait(self._store, self.run_id, name))

    async def send_signal(self, run_id: str, name: str, payload: Any = None) -> None:
        """Send a signal to a run: bytes as they are, anything else as JSON, at most 1 MiB. Raises Invalid, TooLarge."""
        await signals.send(self._store, run_id, name, signals.signal_json(payload))


def _decoded(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return body
