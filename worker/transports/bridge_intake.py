"""The tasks that a worker of the bridge holds, at most its `max_tasks`: polled, begun, kept alive, given back when it
stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

from penstock.broker.worker_protocol.bridge_messages import PolledTask, PollTasks, ResolveTask
from penstock.config.limits import ACK_WAIT_S, POLL_MS_MAX, POLL_TASKS_MAX, TASKS_BYTES_MAX
from penstock.config.logging import get_logger
from penstock.config.process.background import all_of, background, end, start
from penstock.engine.definition.http_requests import BUILTIN as HTTP_WORKER
from penstock.engine.definition.http_requests import TASK as HTTP_TASK
from penstock.engine.errors import PenstockError
from penstock.worker.functions import TaskFunction
from penstock.worker.transport import Handle, HeldTask, IntakeLimits
from penstock.worker.transports.answer_exchange import AnswerExchange
from penstock.worker.transports.bridge_client import BridgeClient

POLL_MS = POLL_MS_MAX // 2
AGAIN_S, AGAIN_S_MAX = 0.1, 2.0  # after an error
RELEASE_S_MAX = 2.0  # what the last poll may take to end when the worker stops
KEEP_ALIVE_S = ACK_WAIT_S / 3
KEEP_ALIVE_AT_ONCE = 16

Resolve = Callable[[str, ResolveTask], Awaitable[None]]

log = get_logger()


class PolledHeldTask(HeldTask, Protocol):
    async def keep_alive(self) -> None:
        """Report that the task is still in progress."""


class BridgeIntake:
    """Owned by a running worker (`open_bridge_intake`)."""

    def __init__(
        self,
        client: BridgeClient,
        functions: Sequence[TaskFunction],
        held: Callable[[PolledTask, Resolve], PolledHeldTask],
        handle: Handle,
        bounds: IntakeLimits,
        worker_id: str,
    ) -> None:
        self._client, self._held, self._handle, self._bounds, self._worker_id = client, held, handle, bounds, worker_id
        self._functions = {function.name: function for function in functions}
        self._running: dict[PolledHeldTask, asyncio.Task[None]] = {}
        self._bytes = 0
        self._exchanging = AnswerExchange(client)
        self._freed = self._exchanging.room
        self._polling: asyncio.Task[Any] | None = None
        self._stopping = False
        self._again_s = AGAIN_S

    def cancel(self) -> None:
        for task in self._running.values():
            task.cancel()

    async def stop(self) -> None:
        """Stop as Transport.receiving says."""
        self._stopping = True
        self._freed.set()
        if self._polling is not None:
            await self._end(self._polling)
        if self._running:
            log.info("worker_finishing", tasks=len(self._running), grace_s=self._bounds.grace_s)
            await asyncio.wait(self._running.values(), timeout=self._bounds.grace_s)
        self.cancel()
        if self._running:
            await asyncio.wait(self._running.values())
        for polled in list(self._running):  # cancelled before its first step
            await polled.give_back()

    async def poll(self) -> None:
        """Request tasks whenever there is room, as long as the worker runs."""
        self._polling = asyncio.current_task()
        try:
            while not self._stopping:
                if self._room > 0:
                    for task in await self._asked():
                        await self._take(task)
                else:
                    await self._until_freed()
        finally:
            self._exchanging.close()

    async def _until_freed(self) -> None:
        """Wait until a task has ended, or only its report is left to be sent, which leaves with the next poll, unless
        the bytes of tasks are the limit."""
        self._freed.clear()
        self._exchanging.open = self._bytes < TASKS_BYTES_MAX
        await self._freed.wait()
        self._exchanging.open = False

    async def keep_alive(self) -> None:
        """Send a heartbeat for every task held, so that it stays with this worker, also when a front end dies."""
        at_once = asyncio.Semaphore(KEEP_ALIVE_AT_ONCE)

        async def beat(polled: PolledHeldTask) -> None:
            async with at_once:
                await polled.keep_alive()

        known: frozenset[PolledHeldTask] = frozenset()
        while True:
            await asyncio.sleep(KEEP_ALIVE_S)
            await all_of(map(beat, known.intersection(self._running)))
            known = frozenset(self._running)

    @property
    def _room(self) -> int:
        """The number of tasks to request: none while the inputs of running tasks are large."""
        return (
            self._bounds.max_tasks - len(self._running) + self._exchanging.leaving
            if self._bytes < TASKS_BYTES_MAX
            else 0
        )

    async def _end(self, poll: asyncio.Task[Any]) -> None:
        """Have the service end the last poll: if it was cut off, tasks in flight would be delivered again only minutes
        later."""
        with suppress(PenstockError, TimeoutError):
            async with asyncio.timeout(RELEASE_S_MAX):
                await self._client.poll(self._request(0))
                await asyncio.wait((poll,))
        await end(poll)

    async def _asked(self) -> list[PolledTask]:
        try:
            tasks = await self._exchanging.poll(self._request(min(self._room, POLL_TASKS_MAX)))
            self._again_s = AGAIN_S
            return tasks
        except PenstockError as error:
            log.warning("poll_failed", error=str(error))
            await asyncio.sleep(self._again_s)
            self._again_s = min(self._again_s * 2, AGAIN_S_MAX)
            return []

    def _request(self, max_tasks: int) -> PollTasks:
        builtin = HTTP_WORKER if HTTP_TASK in self._functions else None
        return PollTasks(list(self._functions), max_tasks, POLL_MS, self._worker_id, self._bounds.group, builtin)

    async def _take(self, task: PolledTask) -> None:
        polled = self._held(task, self._exchanging.resolve)
        function = self._functions.get(task.task)
        if self._stopping or function is None:
            await polled.give_back()
            return
        size = memoryview(task.input).nbytes
        self._bytes += size
        self._running[polled] = start(self._run(function, polled, size), name="task")

    async def _run(self, function: TaskFunction, polled: PolledHeldTask, size: int) -> None:
        try:
            await self._handle(function, polled)
        finally:
            del self._running[polled]
            self._bytes -= size
            self._freed.set()


@asynccontextmanager
async def open_bridge_intake(
    client: BridgeClient,
    functions: Sequence[TaskFunction],
    held: Callable[[PolledTask, Resolve], PolledHeldTask],
    handle: Handle,
    bounds: IntakeLimits,
    worker_id: str,
) -> AsyncIterator[BridgeIntake]:
    """Take tasks for the time of the block; its end is as `BridgeIntake.stop` says."""
    polling = BridgeIntake(client, functions, held, handle, bounds, worker_id)
    async with (
        background(polling.keep_alive(), name="worker_keep_alive"),
        background(polling.poll(), name="worker_poll"),
    ):
        try:
            yield polling
        finally:
            await polling.stop()
