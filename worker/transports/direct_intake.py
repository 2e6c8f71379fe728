"""The tasks that a worker holds, at most its `max_tasks`: pulled, begun, kept alive, and given back when it stops.

When their messages are large it requests fewer: none while they have TASKS_BYTES_MAX. With several task types, each
always has one request pending, so that none starves; all other free slots belong to the types that have work. Requests
of a type that are not needed, and those of others from before the worker was full, are cancelled.

A type with limits of its own (../local_limits.py) has no request pending while they allow no task.

Tasks of runs that are bound to this worker come in addition, and first, because no other worker can take them. While
some wait, it requests one shared task at a time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial

from penstock.broker.nats.pull import Delivery, Pull
from penstock.broker.store import Store
from penstock.broker.worker_protocol.receiving import return_unworked
from penstock.config.limits import TASKS_BYTES_MAX
from penstock.config.logging import get_logger
from penstock.config.process.background import all_of, background, begin
from penstock.engine.errors import Unavailable
from penstock.worker.functions import TaskFunction
from penstock.worker.local_limits import TaskAllowance, allowance_of
from penstock.worker.transport import IntakeLimits

BALANCE_S = 1.0

Handle = Callable[[TaskFunction, Delivery], Awaitable[None]]

log = get_logger()


class _Source:
    """One task type. `busy`: something came since the last balance; `closed`: nothing may be requested now. `pending`:
    how many more wait for this worker, according to the last of them."""

    __slots__ = ("allowance", "busy", "closed", "function", "pending", "pull", "recalling")

    def __init__(self, function: TaskFunction, allowance: TaskAllowance | None) -> None:
        self.function, self.allowance = function, allowance
        self.pull: Pull | None = None
        self.busy, self.closed = False, True
        self.pending = 0
        self.recalling = asyncio.Lock()

    @property
    def asked(self) -> int:
        return 0 if self.pull is None else self.pull.left


class DirectIntake:
    """Owned by a running worker (`open_direct_intake`)."""

    def __init__(self, store: Store, max_tasks: int, handle: Handle) -> None:
        self._store, self._max, self._handle = store, max_tasks, handle
        self._sources: list[_Source] = []
        self._sticky: list[_Source] = []
        self._running: dict[Delivery, asyncio.Task[None]] = {}
        self._waiting: dict[Delivery, TaskFunction] = {}
        self._waited: frozenset[Delivery] = frozenset()
        self._allowances: dict[str, TaskAllowance | None] = {}
        self._used_up = asyncio.Event()
        self._freed = asyncio.Event()
        self._bytes = 0
        self._stopping = False

    @property
    def held(self) -> int:
        return len(self._running) + len(self._waiting)

    @property
    def _full(self) -> bool:
        return self.held >= self._max or self._bytes >= TASKS_BYTES_MAX

    async def begin(self) -> None:
        """Request the first tasks."""
        for source in [*self._sources, *self._sticky]:
            source.closed = False
        await self._ask()

    async def stop(self, grace_s: float) -> None:
        """Pull no more, give back tasks that have not begun, let the others finish for `grace_s`, then cancel them and
        give them back."""
        self._stopping = True
        await all_of(map(self._recall, [*self._sources, *self._sticky]))
        await self._return(list(self._waiting))
        if self._running:
            log.info("worker_finishing", tasks=len(self._running), grace_s=grace_s)
            await asyncio.wait(self._running.values(), timeout=grace_s)
        await self._cancel_all()

    def cancel(self) -> None:
        """Cancel running tasks: `stop` waits for nothing else."""
        for task in self._running.values():
            task.cancel()

    async def _cancel_all(self) -> None:
        self.cancel()
        if self._running:
            await asyncio.wait(self._running.values())
        await self._return([*self._waiting, *self._running])  # the latter were cancelled before their first step

    def _take(self, source: _Source, delivery: Delivery) -> None:
        source.busy = True
        self._bytes += len(delivery.data)
        if not self._stopping and self._may_begin(source.function):
            self._begin(delivery, source.function)
        else:
            self._waiting[delivery] = source.function
        if source.allowance is not None and self._allowed(source) <= 0:
            self._used_up.set()

    def _take_own(self, source: _Source, delivery: Delivery) -> None:
        source.pending = delivery.pending
        self._take(source, delivery)

    def _begin(self, delivery: Delivery, function: TaskFunction) -> None:
        allowance = self._allowances[function.name]
        if allowance is not None:
            allowance.begin()
            if (opens_in_s := allowance.opens_in_s) is not None:
                asyncio.get_running_loop().call_later(opens_in_s, self._freed.set)
        self._running[delivery] = begin(self._run(delivery, function), name="task")

    async def _run(self, delivery: Delivery, function: TaskFunction) -> None:
        try:
            await self._handle(function, delivery)
        finally:
            if (allowance := self._allowances[function.name]) is not None:
                allowance.end()
            del self._running[delivery]
            self._bytes -= len(delivery.data)
            self._freed.set()

    def _may_begin(self, function: TaskFunction) -> bool:
        allowance = self._allowances[function.name]
        return len(self._running) < self._max and (allowance is None or allowance.room > 0)

    def _allowed(self, source: _Source) -> int:
        """How many more tasks of this type its own limits allow, those that wait here included."""
        if source.allowance is None:
            return self._max
        return source.allowance.room - sum(function is source.function for function in self._waiting.values())

    def _room(self, source: _Source) -> int:
        """How many tasks of this type may be requested now; at least one while there is room at all."""
        if self._stopping or source.closed or self._full:
            return 0
        return min(self._shared_room(source), self._allowed(source))

    def _shared_room(self, source: _Source) -> int:
        if any(own.pending for own in self._sticky):
            return 1  # else runs that are bound to it would wait for others to begin, and then for each other
        if len(self._sources) == 1:
            return self._max - self.held
        others = sum(other.asked for other in self._sources if other is not source)
        return max(self._max - self.held - others, 1) if source.busy else 1

    def _sticky_room(self, source: _Source) -> int:
        """Each type's share of the room is its share of the tasks that wait for this worker, so that none waits longer
        than another.

        Requests from before the worker was full are not cancelled: their tasks wait for the next slot, or are given
        back soon.
        """
        if self._stopping or source.closed or self._full:
            return 0
        pending = sum(own.pending for own in self._sticky)
        share = max((self._max - self.held) * source.pending // pending, 1) if pending else 1
        return min(share, self._allowed(source))

    async def _refill(self) -> None:
        """Called once for all tasks that ended in the same turn of the loop: begin waiting tasks, request more."""
        while True:
            await self._freed.wait()
            self._freed.clear()
            if self._stopping:
                return
            for delivery, function in list(self._waiting.items()):
                if self._may_begin(function):
                    self._begin(delivery, self._waiting.pop(delivery))
            await self._ask()

    async def _ask(self) -> None:
        for source in self._sources:
            if source.pull is not None:
                with suppress(Unavailable):  # asked again when the connection is back
                    await source.pull.top_up()
        for source in self._sticky:
            if source.pull is not None:
                with suppress(Unavailable):
                    await source.pull.top_up()

    async def _recall_used_up(self) -> None:
        """Cancel requests of types whose limits allow no more: shared tasks and those for this worker are requested
        apart, so that one too many may be."""
        while True:
            await self._used_up.wait()
            self._used_up.clear()
            for source in [*self._sources, *self._sticky]:
                if source.asked and self._allowed(source) <= 0:
                    with suppress(Unavailable):  # then what it brings waits here, and is given back
                        await self._recall(source)
            await self._ask()

    async def _balance(self) -> None:
        while True:
            await asyncio.sleep(BALANCE_S)
            for source in self._sticky:
                source.pending = source.pending if source.busy else 0  # they may have been taken back meanwhile
                source.busy = False
            if len(self._sources) > 1:
                await self._call_back()
            stale = [delivery for delivery in self._waiting if delivery in self._waited]
            self._waited = frozenset(self._waiting)
            await self._return(stale)  # another worker may have room

    async def _call_back(self) -> None:
        """Cancel requests that are in the way: those of a full worker, and of the other types when their own type has
        no work."""
        full = self._full
        for source in self._sources:
            if source.asked > (0 if full else 1) and (full or not source.busy):
                await self._recall(source)
            source.busy = False
        await self._ask()

    async def _recall(self, source: _Source) -> None:
        async with source.recalling:
            source.closed = True
            try:
                if source.pull is not None:
                    await source.pull.recall()
            finally:  # else a failure would have this type ask for nothing, for ever
                source.closed = False

    async def _return(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            if self._waiting.pop(delivery, None) is not None:
                self._bytes -= len(delivery.data)
            with suppress(Unavailable):  # then its ack wait brings it back
                await return_unworked(self._store, delivery)

    async def _keep_alive(self, every_s: float) -> None:
        """Extend the ack wait of every task held."""
        while True:
            await asyncio.sleep(every_s)
            for delivery in [*self._running, *self._waiting]:
                with suppress(Unavailable):
                    await delivery.in_progress()

    def _allowance(self, function: TaskFunction) -> TaskAllowance | None:
        """The one of this type, for all its sources."""
        if function.name not in self._allowances:
            self._allowances[function.name] = allowance_of(function.limits, time.monotonic)
        return self._allowances[function.name]

    async def _open(self, stack: AsyncExitStack, functions: Sequence[TaskFunction], group: str | None) -> None:
        for function in functions:
            source = _Source(function, self._allowance(function))
            self._sources.append(source)
            take, room = partial(self._take, source), partial(self._room, source)
            consuming = self._store.tasks.consume(function.name, take, batch=self._max, room=room, group=group)
            source.pull = await stack.enter_async_context(consuming)

    async def _open_sticky(self, stack: AsyncExitStack, functions: Sequence[TaskFunction], worker_id: str) -> None:
        for function in functions:
            source = _Source(function, self._allowance(function))
            self._sticky.append(source)
            take, room = partial(self._take_own, source), partial(self._sticky_room, source)
            stack.push_async_callback(self._store.sticky_tasks.forget, function.name, worker_id)
            consuming = self._store.sticky_tasks.consume(function.name, worker_id, take, batch=self._max, room=room)
            source.pull = await stack.enter_async_context(consuming)


@asynccontextmanager
async def open_direct_intake(
    store: Store, functions: Sequence[TaskFunction], handle: Handle, bounds: IntakeLimits, worker_id: str
) -> AsyncIterator[DirectIntake]:
    """Take tasks for the time of the block; its end is as `DirectIntake.stop` says."""
    intake, group = DirectIntake(store, bounds.max_tasks, handle), bounds.group
    async with AsyncExitStack() as stack:
        await intake._open(stack, functions, group)
        await intake._open_sticky(stack, functions, worker_id)
        waits = [await store.tasks.ack_wait_s(function.name, group) for function in functions]
        await stack.enter_async_context(background(intake._keep_alive(min(waits) / 3), name="worker_keep_alive"))
        await stack.enter_async_context(background(intake._refill(), name="worker_refill"))
        await stack.enter_async_context(background(intake._balance(), name="worker_balance"))
        if any(intake._allowances.values()):
            await stack.enter_async_context(background(intake._recall_used_up(), name="worker_recall"))
        try:
            await intake.begin()
            yield intake
        finally:
            await intake.stop(bounds.grace_s)
