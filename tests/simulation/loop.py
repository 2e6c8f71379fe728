"""An event loop on virtual time: it waits for nothing, and when nothing is ready it is later.

Everything runs in the order in which it was asked for. A task belongs to the process in whose context it was made; what
belongs to a process that is paused is put aside until it goes on. A process that is frozen stops between two
statements, as by SIGSTOP: the others go on from within the one that it is at.
"""

from __future__ import annotations

import asyncio
from asyncio import Handle, TimerHandle
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from heapq import heapify, heappop
from typing import Any

PRUNE_AT = 256
VAIN_MAX = 50  # cancelled timers that are kept until their time has come


class Standstill(Exception):
    """Nothing is ready and nothing will be: what is waited for never comes."""


class Life:
    """One life of a process: what runs in it can be stopped for a while, or for good. `skew_s`: how much its wall clock
    is ahead. `wakes_at`: when one that is frozen goes on."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.skew_s = 0.0
        self.paused = self.frozen = False
        self.wakes_at = 0.0
        self.ended = False
        self.held: list[Handle] = []
        self.context = copy_context()
        self.context.run(LIFE.set, self)
        self._tasks: list[asyncio.Task[Any]] = []
        self._prune_at = PRUNE_AT

    def own(self, task: asyncio.Task[Any]) -> None:
        self._tasks.append(task)
        if len(self._tasks) > self._prune_at:
            self._tasks = [one for one in self._tasks if not one.done()]
            self._prune_at = max(PRUNE_AT, 2 * len(self._tasks))

    def cancel_all(self) -> None:
        for task in self._tasks:
            if not task.done():
                task.cancel()
        self._tasks.clear()


LIFE: ContextVar[Life | None] = ContextVar("LIFE", default=None)


class Loop(asyncio.BaseEventLoop):
    """`now` are the seconds since the beginning of the world."""

    _ready: Any
    _scheduled: list[TimerHandle]
    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self._vain = 0
        self.troubles: list[dict[str, Any]] = []
        self.set_task_factory(_owned)  # type: ignore[arg-type]
        self.set_exception_handler(lambda _, context: self.troubles.append(context))

    def time(self) -> float:
        return self.now

    @property
    def is_busy(self) -> bool:
        """There is something to do at this moment."""
        return bool(self._ready)

    def pause(self, life: Life) -> None:
        life.paused = True

    def go_on(self, life: Life) -> None:
        life.paused, life.wakes_at = False, 0.0
        held, life.held = life.held, []
        self._ready.extend(held)

    def freeze(self, life: Life, seconds: float) -> None:
        """Called by what runs in this life: return so much later, while only the others run. Raises CancelledError if
        it has ended then.

        A loop within the loop; asyncio only has to be told that it may step other tasks meanwhile.
        """
        task = asyncio.current_task(self)
        life.frozen, life.wakes_at = True, self.now + seconds
        self.call_at(life.wakes_at, _nothing, context=Context())
        if task is not None:
            asyncio.tasks._leave_task(self, task)
        try:
            while self.now < life.wakes_at and not (life.ended or self._stopping):
                self._run_once()
        finally:
            if task is not None:
                asyncio.tasks._enter_task(self, task)
            life.frozen = False
        if not life.paused:
            self.go_on(life)
        if life.ended or self._stopping:
            raise asyncio.CancelledError

    def spawn(self, life: Life, coro: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task of this process."""
        return self.create_task(coro, context=life.context.copy())

    def at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        return self.call_at(when, callback, *args, context=context)

    def _run_once(self) -> None:
        ready, scheduled = self._ready, self._scheduled
        if self._vain > VAIN_MAX and 2 * self._vain > len(scheduled):
            scheduled[:] = [handle for handle in scheduled if not handle._cancelled]  # type: ignore[attr-defined]
            heapify(scheduled)
            self._vain = 0
        while scheduled and scheduled[0]._cancelled:  # type: ignore[attr-defined]
            heappop(scheduled)
        if not ready and not self._stopping:
            if not scheduled:
                raise Standstill
            self.now = max(self.now, scheduled[0].when())
        while scheduled and scheduled[0].when() <= self.now:
            ready.append(heappop(scheduled))
        for _ in range(len(ready)):
            if not ready:
                break  # somebody who was frozen meanwhile has let the others run
            handle = ready.popleft()
            if handle._cancelled:
                continue
            life = handle._context.get(LIFE)
            if life is not None and (life.paused or life.frozen):
                life.held.append(handle)
            else:
                handle._run()

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        self._vain += 1

    def _write_to_self(self) -> None:
        """It never sleeps."""

    def _process_events(self, event_list: object) -> None:
        raise AssertionError("nothing here has a socket")


def _nothing() -> None:
    """It is later now."""


def _owned(loop: Loop, coro: Coroutine[Any, Any, Any], context: Context | None = None) -> asyncio.Task[Any]:
    task = asyncio.Task(coro, loop=loop, context=context)
    life = LIFE.get() if context is None else context.get(LIFE)
    if life is not None:
        life.own(task)
    return task
