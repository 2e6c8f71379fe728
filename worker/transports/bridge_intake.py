"""The tasks that a worker of the bridge holds, at most its `max_tasks`: polled, begun, kept alive, given back when it
stops.

A type with limits of its own (../local_limits.py) has a poll of its own, for as many tasks as they allow: so it gets no
more, and does not hold up the other types, which share one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Protocol

from penstock.broker.worker_protocol.bridge_messages import PolledTask, PollTasks, ResolveTask
from penstock.config.limits import ACK_WAIT_S, POLL_MS_MAX, POLL_TASKS_MAX, TASKS_BYTES_MAX
from penstock.config.logging import get_logger
from penstock.config.process.background import all_of, background, end, start
from penstock.engine.definition.http_requests import BUILTIN as HTTP_WORKER
from penstock.engine.definition.http_requests import TASK as HTTP_TASK
from penstock.engine.errors import PenstockError
from penstock.worker.functions import TaskFunction
from penstock.worker.local_limits import TaskAllowance, allowance_of
from penstock.worker.transport import Handle, HeldTask, IntakeLimits
from penstock.worker.transports.answer_exchange import AnswerExchange
from penstock.worker.transports.bridge_client import BridgeClient

POLL_MS = POLL_MS_MAX // 2
TURN_MS = 1_000  # the longest poll that holds room which another poll of this worker may need
AGAIN_S, AGAIN_S_MAX = 0.1, 2.0  # after an error
RELEASE_S_MAX = 2.0  # what the last poll may take to end when the worker stops
KEEP_ALIVE_S = ACK_WAIT_S / 3
KEEP_ALIVE_AT_ONCE = 16

Resolve = Callable[[str, ResolveTask], Awaitable[None]]

log = get_logger()


class PolledHeldTask(HeldTask, Protocol):
    async def keep_alive(self) -> None:
        """Report that the task is still in progress."""


class _Polled:
    """Task types with one poll. `asked`: how many tasks its waiting poll may bring; `busy`: the last one brought
    some."""

    __slots__ = ("allowance", "asked", "busy", "names")

    def __init__(self, names: list[str], allowance: TaskAllowance | None) -> None:
        self.names, self.allowance, self.asked, self.busy = names, allowance, 0, False

    @property
    def allowed(self) -> int:
        return POLL_TASKS_MAX if self.allowance is None else min(self.allowance.room, POLL_TASKS_MAX)


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
        self._polls = _polls_of(functions)
        self._allowances = {poll.names[0]: poll.allowance for poll in self._polls if poll.allowance is not None}
        self._polling: set[asyncio.Task[Any]] = set()
        self._stopping = False
        self._again_s = AGAIN_S

    def cancel(self) -> None:
        for task in self._running.values():
            task.cancel()

    async def stop(self) -> None:
        """Stop as Transport.receiving says."""
        self._stopping = True
        self._freed.set()
        if self._polling:
            await self._end(self._polling)
        if self._running:
            log.info("worker_finishing", tasks=len(self._running), grace_s=self._bounds.grace_s)
            await asyncio.wait(self._running.values(), timeout=self._bounds.grace_s)
        self.cancel()
        if self._running:
            await asyncio.wait(self._running.values())
        for polled in list(self._running):  # cancelled before its first step
            await polled.give_back()

    async def poll(self, stack: AsyncExitStack) -> None:
        """Request tasks whenever there is room, as long as the stack is open."""
        for polled in self._polls:
            await stack.enter_async_context(background(self._poll(polled), name="worker_poll"))

    async def _poll(self, polled: _Polled) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._polling.add(task)
        try:
            while not self._stopping:
                if (room := min(self._room(polled), polled.allowed)) > 0:
                    for found in await self._asked(polled, room):
                        await self._take(found)
                    await self._let_others_poll()
                else:
                    await self._until_freed(polled)
        finally:
            self._exchanging.close()

    async def _let_others_poll(self) -> None:
        """Those that wait for room look before this one does, in the order in which they came."""
        if len(self._polls) > 1:
            self._freed.set()
            await asyncio.sleep(0)

    async def _until_freed(self, polled: _Polled) -> None:
        """Wait until there may be room again: a task has ended, its type's rate allows another, or only its report is
        left to be sent.

        The report then leaves with the next poll, unless the bytes of tasks are the limit, or the room for a poll
        is not all that it waits for.
        """
        self._freed.clear()
        self._exchanging.open = not self._allowances and self._bytes < TASKS_BYTES_MAX
        opens_in_s = None if polled.allowance is None else polled.allowance.opens_in_s
        with suppress(TimeoutError):
            async with asyncio.timeout(opens_in_s):
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

    def _room(self, polled: _Polled) -> int:
        """The number of tasks that a poll may request: none while the inputs of running tasks are large.

        Several polls share the room: one that is not busy requests one task, and one is left for each other, if there
        are enough.
        """
        if self._bytes >= TASKS_BYTES_MAX:
            return 0
        if len(self._polls) == 1:
            return self._free
        return min(self._free, max(self._free - self._idle, 1) if polled.busy else 1)

    @property
    def _free(self) -> int:
        """Room that no poll has requested."""
        held = len(self._running) - self._exchanging.leaving
        return self._bounds.max_tasks - held - sum(polled.asked for polled in self._polls)

    @property
    def _idle(self) -> int:
        """How many other polls a poll that is about to begin has to leave room for."""
        return sum(other.asked == 0 for other in self._polls) - 1

    async def _end(self, polls: set[asyncio.Task[Any]]) -> None:
        """Have the service end the last polls: if one was cut off, tasks in flight would be delivered again only
        minutes later."""
        with suppress(PenstockError, TimeoutError):
            async with asyncio.timeout(RELEASE_S_MAX):
                await self._client.poll(self._request(list(self._functions), 0, 0))
                await asyncio.wait(polls)
        await end(*polls)

    async def _asked(self, polled: _Polled, room: int) -> list[PolledTask]:
        shared = len(self._polls) > 1 and (room > 1 or self._free <= self._idle)
        polled.asked, polled.busy = room, False
        try:
            tasks = await self._exchanging.poll(self._request(polled.names, room, TURN_MS if shared else POLL_MS))
            self._again_s, polled.busy = AGAIN_S, bool(tasks)
            return tasks
        except PenstockError as error:
            log.warning("poll_failed", error=str(error))
            await asyncio.sleep(self._again_s)
            self._again_s = min(self._again_s * 2, AGAIN_S_MAX)
            return []
        finally:
            polled.asked = 0

    def _request(self, names: list[str], max_tasks: int, timeout_ms: int) -> PollTasks:
        builtin = HTTP_WORKER if HTTP_TASK in names else None
        return PollTasks(names, max_tasks, timeout_ms, self._worker_id, self._bounds.group, builtin)

    async def _take(self, task: PolledTask) -> None:
        polled = self._held(task, self._exchanging.resolve)
        function = self._functions.get(task.task)
        if self._stopping or function is None:
            await polled.give_back()
            return
        size = memoryview(task.input).nbytes
        self._bytes += size
        if allowance := self._allowances.get(task.task):
            allowance.begin()
        self._running[polled] = start(self._run(function, polled, size), name="task")

    async def _run(self, function: TaskFunction, polled: PolledHeldTask, size: int) -> None:
        try:
            await self._handle(function, polled)
        finally:
            if allowance := self._allowances.get(function.name):
                allowance.end()
            del self._running[polled]
            self._bytes -= size
            self._freed.set()


def _polls_of(functions: Sequence[TaskFunction]) -> list[_Polled]:
    """One poll for all types without limits, and one for each type with some."""
    allowances = {function.name: allowance_of(function.limits, time.monotonic) for function in functions}
    free = [name for name, allowance in allowances.items() if allowance is None]
    limited = [_Polled([name], allowance) for name, allowance in allowances.items() if allowance is not None]
    return [_Polled(free, None), *limited] if free else limited


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
    async with background(polling.keep_alive(), name="worker_keep_alive"), AsyncExitStack() as stack:
        await polling.poll(stack)
        try:
            yield polling
        finally:
            await polling.stop()
