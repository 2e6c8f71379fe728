"""Threads for functions that are not async. They end with the process in any state: a stop never waits for them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, NamedTuple


class _Outcome(NamedTuple):
    value: Any
    error: BaseException | None


class _Job(NamedTuple):
    future: asyncio.Future[_Outcome]
    call: Callable[..., Any]
    arguments: tuple[Any, ...]


class Threads:
    """Owned by a running worker. Threads are created on demand, at most `most`."""

    def __init__(self, most: int) -> None:
        self._most, self._made, self._busy = most, 0, 0
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()

    async def run(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """The result of `call`. If this is cancelled before a thread has begun, it is not called at all; later, the
        thread continues and counts as busy until it ends."""
        job = _Job(self._loop.create_future(), call, arguments)
        self._busy += 1
        if self._busy > self._made < self._most:
            self._made += 1
            threading.Thread(target=self._work, name=f"task-{self._made}", daemon=True).start()
        self._jobs.put(job)
        outcome = await job.future
        if outcome.error is not None:
            raise outcome.error
        return outcome.value

    def close(self) -> None:
        """End idle threads now, and the others when they are done."""
        for _ in range(self._made):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            outcome = _outcome(job)
            with contextlib.suppress(RuntimeError):  # the loop has been closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._done, job.future, outcome)
            del job, outcome

    def _done(self, future: asyncio.Future[_Outcome], outcome: _Outcome) -> None:
        self._busy -= 1
        if not future.done():
            future.set_result(outcome)


def _outcome(job: _Job) -> _Outcome:
    if job.future.cancelled():  # nobody waits any more, and another worker may have the task by now
        return _Outcome(None, None)
    try:
        return _Outcome(job.call(*job.arguments), None)
    except BaseException as error:  # as its own thread ends with it, it is raised where the function was called
        return _Outcome(None, error)
