"""`AsyncRunHandle`: a run that an asyncio client starts when it is awaited."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing
from math import inf
from typing import Any, Self, TypeVar, overload

from penstock.client import requests
from penstock.client.async_connection import AsyncConnection
from penstock.client.live.asynchronous import follow
from penstock.client.runs.starting import AGAIN_S, WantedRun, late, result_of
from penstock.client.sending.following import Reconnects
from penstock.client.views import CancelledRun, EventView, RunView, Sent
from penstock.engine.errors import Unavailable

T = TypeVar("T")


class AsyncRunHandle:
    """A run that starts when it is awaited, or when the first of its methods is. Made by `AsyncClient.run`, and used
    while that client is open. All of it has one idempotency key: it starts once."""

    def __init__(self, service: AsyncConnection, run: WantedRun) -> None:
        self._service, self._run = service, run
        self._run_id: str | None = None
        self._is_registered = run.definition is None

    def __await__(self) -> Generator[Any, None, Self]:
        return self._started().__await__()

    @property
    def run_id(self) -> str:
        """The run's id. Raises RuntimeError before the run has started."""
        if self._run_id is None:
            raise RuntimeError("the run has not started: await it first, as in `run = await client.run(...)`")
        return self._run_id

    async def _started(self) -> Self:
        """Start the run, unless it has started. Raises NotFoundError, InvalidError, UnavailableError."""
        await self._registered()
        if self._run_id is None:
            self._run_id = (await self._service.send(self._run.starting())).run_id
        return self

    async def _registered(self) -> None:
        if not self._is_registered and (registering := self._run.registering()):
            await self._service.send(registering)
            self._is_registered = True

    @overload
    async def result(self, timeout: float | None = None) -> Any: ...
    @overload
    async def result(self, timeout: float | None = None, *, type: type[T]) -> T: ...
    async def result(self, timeout: float | None = None, *, type: Any = Any) -> Any:  # noqa: A002
        """The run's output, or what a step of it responds, when it is there; `type` is what it is converted to.

        Raises TimeoutError after `timeout` seconds (the run goes on), RunFailedError when the run failed or was
        cancelled, UnavailableError when the service stays away.
        """
        await self._registered()
        deadline = inf if timeout is None else time.monotonic() + timeout
        reconnects = Reconnects(self._service.retries)
        while True:
            left_s = deadline - time.monotonic()
            try:
                found = await self._service.send(self._run.awaiting(left_s))
                reconnects.connected()
            except Unavailable as error:
                reconnects.failed(error)
                await asyncio.sleep(max(0.0, min(reconnects.pause_s, left_s)))
            else:
                self._run_id = found.run_id
                if found.outcome != "running":
                    return result_of(found, type)
                await asyncio.sleep(max(0.0, min(AGAIN_S, left_s)))
            if timeout is not None and time.monotonic() >= deadline:
                raise late(self._run.workflow, timeout)

    async def events(self, after: int = 0) -> AsyncGenerator[EventView]:
        """The run's history after stream sequence `after`, live, until the run ends: as `AsyncClient.follow`."""
        await self._started()
        async with aclosing(follow(self._service, self.run_id, after)) as events:
            async for event in events:
                yield event

    async def view(self) -> RunView:
        """The run with its steps, as it is now."""
        await self._started()
        return await self._service.send(requests.get_run(self.run_id))

    async def cancel(self, reason: str | None = None, *, compensate: bool = False) -> CancelledRun:
        """Cancel the run: as `AsyncClient.cancel`."""
        await self._started()
        return await self._service.send(requests.cancel(self.run_id, reason, compensate=compensate))

    async def signal(self, name: str, payload: bytes = b"") -> Sent:
        """Send a signal to the run: as `AsyncClient.signal`."""
        await self._started()
        return await self._service.send(requests.signal(self.run_id, name, payload))
