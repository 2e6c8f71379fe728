"""What a task function can read and request beyond its input."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson

from penstock.broker.worker_messages import TaskPayload
from penstock.config.limits import PAYLOAD_BYTES_MAX
from penstock.engine.definition.signals import check_size, check_target
from penstock.engine.errors import TooLarge
from penstock.worker.tasks.payloads import as_json
from penstock.worker.transport import HeldTask


class TaskFacts:
    """The execution of the step: `attempt` counts from 1, `iteration` from 0; `deliveries` counts how often the broker
    has delivered this attempt; `metadata` is the step's own, `workflow` the workflow's name. `item` is the number of a
    map's element, from 0; None of any other step. `previous_error` says why a planner's attempt before this one has
    failed."""

    def __init__(self, task: TaskPayload, deliveries: int) -> None:
        self.run_id: str = task.run_id
        self.step_id: str = task.step_id
        self.task_id: str = task.task_id
        self.attempt: int = task.attempt
        self.iteration: int = task.iteration
        self.item: int | None = task.item
        self.previous_error: str | None = task.previous_error
        self.deliveries: int = deliveries
        self.workflow: str = task.workflow_name
        self.metadata: Mapping[str, str] = task.metadata


class Context(TaskFacts):
    """Belongs to one execution of an async task function. While the service is unavailable, its methods wait."""

    def __init__(self, task: TaskPayload, held: HeldTask) -> None:
        super().__init__(task, held.deliveries)
        self._held = held

    async def checkpoint(self, value: Any) -> None:
        """Store `value` (JSON, at most 1 MiB) for later attempts and iterations of this step, until the run ends.
        Raises TooLarge, and TypeError for a value that is not JSON."""
        body = as_json(value)
        if len(body) > PAYLOAD_BYTES_MAX:
            raise TooLarge(f"the checkpoint has {len(body)} bytes, {PAYLOAD_BYTES_MAX} is the most")
        await self._held.checkpoint(body)

    async def load_checkpoint(self) -> Any:
        """The latest checkpoint of this step, None without one; bytes if it is not JSON."""
        body = await self._held.load_checkpoint()
        return None if body is None else _decoded(body)

    async def wait_signal(self, name: str, timeout_s: float | None = None) -> Any:
        """The payload of the run's signal `name`: decoded JSON, or bytes if it is not JSON.

        A signal is stored: an earlier one counts, and waiting for it again returns it again. Raises TimeoutError,
        Invalid.
        """
        check_target(self.run_id, name)
        async with asyncio.timeout(timeout_s):
            return _decoded(await self._held.wait_signal(name))

    async def send_signal(self, run_id: str, name: str, payload: Any = None) -> None:
        """Send a signal to a run: bytes as they are, anything else as JSON, at most 1 MiB. Raises Invalid, TooLarge."""
        check_target(run_id, name)
        body = payload if isinstance(payload, bytes) else as_json(payload)
        check_size(body)
        await self._held.send_signal(run_id, name, body)


def _decoded(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return body
