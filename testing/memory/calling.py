"""Calls of task functions: what they return or raise becomes the outcome that a worker would report."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from penstock.broker.worker_messages import decode_input
from penstock.testing.memory.outcomes import CalledTask, outcome_of
from penstock.worker.functions import TaskFunction
from penstock.worker.outcomes import Outcome
from penstock.worker.tasks.failures import NonRetriable, failure

if TYPE_CHECKING:
    from penstock.testing.memory.timeline import Timeline
    from penstock.testing.memory.virtual_loop import VirtualLoop

Report = Callable[[Outcome], None]


class CancellableCall(Protocol):
    """A call that goes on."""

    def cancel(self, reason: str) -> None: ...


class Calls:
    """Owned by a service in memory. `checkpoints` are by run and step, `signals` by run and name. `said` are the log
    lines, chunks and progress of steps: run, step, kind, JSON."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._loop: VirtualLoop | None = None
        self._running: dict[int, tuple[CalledTask, CancellableCall]] = {}
        self._waiters: dict[tuple[str, str], list[asyncio.Future[bytes]]] = {}
        self.checkpoints: dict[tuple[str, str], bytes] = {}
        self.signals: dict[tuple[str, str], bytes] = {}
        self.said: list[tuple[str, str, str, bytes]] = []
        self.send_signal: Callable[[str, str, bytes], None]

    @property
    def loop(self) -> VirtualLoop:
        """Made when the first function needs it."""
        if self._loop is None:
            from penstock.testing.memory.virtual_loop import VirtualLoop

            self._loop = VirtualLoop(self._timeline)
        return self._loop

    def call(self, function: TaskFunction, task: CalledTask, report: Report) -> None:
        """Call the function; `report` is called with the outcome, now or later."""
        try:
            value = decode_input(task.payload) if function.takes else None
        except orjson.JSONDecodeError as error:
            report(failure(NonRetriable(f"the input cannot be read: {error}")))
            return
        if function.is_async or function.takes > 1:
            self._begin(function, task, value, report)
        else:
            report(outcome_of(function.name, (lambda: function.call(value)) if function.takes else function.call))

    def cancel(self, task: CalledTask, reason: str) -> None:
        """Cancel the call of this task, if it goes on."""
        found = self._running.get(id(task))
        if found is not None:
            found[1].cancel(reason)
            self.loop.run_ready()

    def signal(self, run_id: str, name: str, payload: bytes) -> None:
        """Store a signal, and let the functions go on that wait for it."""
        self.signals[run_id, name] = payload
        for waiter in self._waiters.pop((run_id, name), []):
            if not waiter.done():
                waiter.set_result(payload)
        if self._loop is not None:
            self._loop.run_ready()

    async def wait_signal(self, run_id: str, name: str) -> bytes:
        """The payload of the run's signal, once it is there."""
        if (found := self.signals.get((run_id, name))) is not None:
            return found
        waiter: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        waiters = self._waiters.setdefault((run_id, name), [])
        waiters.append(waiter)
        try:
            return await waiter
        finally:
            if waiter in waiters:
                waiters.remove(waiter)

    def close(self) -> None:
        """Cancel what still goes on."""
        for task, _ in list(self._running.values()):
            self.cancel(task, "the service is closed")
        if self._loop is not None:
            self._loop.run_ready()
            self._loop.close()

    def _begin(self, function: TaskFunction, task: CalledTask, value: Any, report: Report) -> None:
        """Call a function that may go on for a while."""
        from penstock.testing.memory.blocking import AsyncCall, BlockingCall  # few tests need them
        from penstock.testing.memory.contexts import context_of

        context = context_of(self, task) if function.takes > 1 else None
        kind = AsyncCall if function.is_async else BlockingCall
        arguments = (value,)[: function.takes]

        def ended(outcome: Outcome) -> None:
            self._running.pop(id(task), None)
            report(outcome)

        running: AsyncCall | BlockingCall = kind(self.loop, function, arguments, context, ended)
        self._running[id(task)] = (task, running)
        running.begin()
        self.loop.run_ready()
        if id(task) in self._running and self.loop.awaits_nothing_virtual and not any(self._waiters.values()):
            self.loop.run_real(lambda: id(task) not in self._running)
