"""The worker of http steps: many requests at one time, on one event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

from penstock.config.process.traces import trace_headers
from penstock.config.settings import Settings
from penstock.engine.definition.http_requests import BUILTIN, TASK
from penstock.worker.functions import TaskFunction
from penstock.worker.http_tasks.attempt import HttpAttempts, open_attempts
from penstock.worker.http_tasks.connecting import Resolve
from penstock.worker.tasks.context import Context
from penstock.worker.worker import GRACE_S, Worker


class HttpTaskWorker(Worker):
    """A worker like any other, but for its one function and its reserved task type.

    `settings` say where requests may go, how many are made at one time, where secrets are, and where the broker is.
    `resolve` is how names are looked up; None: as the system does. The other options are those of Worker.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        resolve: Resolve | None = None,
        worker_id: str | None = None,
        group: str | None = None,
        grace_s: float = GRACE_S,
        transport: Literal["nats", "bridge"] = "nats",
        url: str | None = None,
    ) -> None:
        super().__init__(
            max_tasks=settings.http_tasks.slots,
            worker_id=worker_id,
            metadata={"builtin": BUILTIN},
            group=group,
            grace_s=grace_s,
            transport=transport,
            url=url,
        )
        self._own_settings, self._resolve = settings, resolve
        self._attempts: HttpAttempts | None = None
        self._functions[TASK] = TaskFunction(TASK, self._make, takes=2, is_async=True)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Worker]:
        """As Worker's, with connections to the world for the time of the block."""
        async with open_attempts(self._own_settings.http_tasks, self._resolve) as self._attempts, super().running():
            yield self

    def _settings(self) -> Settings:
        return self._own_settings

    async def _make(self, value: object, context: Context) -> dict[str, Any]:
        assert self._attempts is not None
        carried = {} if context.trace_parent is None else {"traceparent": context.trace_parent, **trace_headers()}
        return await self._attempts.make(value, context.task_id, carried)
