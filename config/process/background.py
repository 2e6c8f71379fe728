"""Background tasks. Tasks are started here and nowhere else: so none fails unseen, and none is garbage-collected while
it runs.

    start        one task; its owner keeps it, awaits it or cancels it
    begin        the same for thousands a second
    background   a loop beside a block: when it fails, the block ends with its error
    restarting   a loop beside a block: when it fails, it is started again
    all_of       several at once: an error ends the others (`both`: of two kinds)
    each_of      several at once: the error of one is its result, and does not affect the others

To fail is to end by an error that is not `expected`. That is logged (background_failed) and counted in FAILURES. A
cancellation always passes through.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from penstock.config.logging import get_logger
from penstock.config.process.rate_limited_log import log_rate_limited

# Before a loop is started again: twice as long each time, until it has run for longer than AGAIN_S_MAX.
AGAIN_S, AGAIN_S_MAX = 1.0, 30.0

FAILURES: Counter[str] = Counter()
"""Failures in this process, by the name of the work."""

T = TypeVar("T")
U = TypeVar("U")
Work = Coroutine[Any, Any, T]
Errors = type[BaseException] | tuple[type[BaseException], ...]

_running: set[asyncio.Task[Any]] = set()  # a loop holds its tasks weakly
_begun: set[str] = set()  # names of what `begin` has started
# The loop that reports errors of it; asking the loop for its exception handler takes as long as starting a task.
_watched: asyncio.AbstractEventLoop | None = None

log = get_logger()


def start(
    work: Work[T], *, name: str, over: Callable[[], None] | None = None, expected: Errors = ()
) -> asyncio.Task[T]:
    """Start a task. `over` is called when it has ended, except by cancellation: it ends or restarts what depends on it.

    `expected` are errors that whoever awaits the task handles. `name` says what it does; it is a label of a metric.
    """
    task = asyncio.get_running_loop().create_task(work)
    _running.add(task)
    task.add_done_callback(partial(_ended, name, over, expected))
    return task


def begin(work: Work[None], *, name: str) -> asyncio.Task[None]:
    """Start a task at a third of the cost of `start`, for what starts thousands of times a second.

    The owner must keep the task while it runs and drop it when it has ended: the loop reports its error only when
    nothing refers to the task any more.
    """
    loop = asyncio.get_running_loop()
    if loop is not _watched or name not in _begun:
        _watch(loop, name)
    return loop.create_task(work, name=name)


@asynccontextmanager
async def background(work: Work[None], *, name: str, expected: Errors = ()) -> AsyncIterator[None]:
    """Run `work` until the block is left. If it fails before, the block is cancelled and raises its error."""
    inside = True

    def over() -> None:
        if inside and task.exception() is not None:
            block.reschedule(0)

    block = asyncio.timeout(None)
    task = start(work, name=name, over=over, expected=expected)
    try:
        async with block:
            yield
    except TimeoutError:
        if not block.expired():
            raise
    finally:
        inside = False
        await end(task)
    if block.expired() and (error := task.exception()) is not None:
        raise error


@asynccontextmanager
async def restarting(loop: Callable[[], Work[object]], *, name: str, again_s: float = AGAIN_S) -> AsyncIterator[None]:
    """Run the loop until the block is left, or until it returns. If it fails, it is started again after a delay."""
    task = start(again_and_again(loop, name=name, again_s=again_s), name=name)
    try:
        yield
    finally:
        await end(task)


async def again_and_again(loop: Callable[[], Work[object]], *, name: str, again_s: float = AGAIN_S) -> None:
    """Run the loop until it returns. If it fails, it is started again after a delay."""
    delay_s = again_s
    while True:
        began_at = time.monotonic()
        try:
            await loop()
            return
        except Exception as error:
            report(name, error)
        if time.monotonic() - began_at > AGAIN_S_MAX:
            delay_s = again_s
        await asyncio.sleep(delay_s)
        delay_s = min(2 * delay_s, AGAIN_S_MAX)


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel these tasks and wait until they have ended. Their errors are not raised here."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


async def all_of(works: Iterable[Work[T]]) -> list[T]:
    """All results, in the order of the works. An error ends the others, and is raised as it is once they have ended."""
    tasks = [asyncio.get_running_loop().create_task(work) for work in works]
    try:
        if tasks:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        await end(*(task for task in tasks if not task.done()))
        # Also when the caller is cancelled: an error that nobody looks at would be reported as forgotten.
        errors = [error for task in tasks if not task.cancelled() and (error := task.exception())]
    if errors:
        raise errors[0]
    return [task.result() for task in tasks]


async def both(one: Work[T], other: Work[U]) -> tuple[T, U]:
    """As `all_of`, for two works of different types."""
    works: list[Work[Any]] = [one, other]
    first, second = await all_of(works)
    return first, second


async def each_of(works: Iterable[Work[T]]) -> list[T | Exception]:
    """All results or errors, in the order of the works."""
    return await all_of(map(_caught, works))


async def first_of(*works: Work[object], name: str) -> None:
    """Return when one of them does; the others are cancelled."""
    tasks = [start(work, name=name) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end(*tasks)


def report(name: str, error: BaseException) -> None:
    """Log and count an unexpected error of this work."""
    FAILURES[name] += 1
    log_rate_limited(
        log, "background_failed", "error", of=name, work=name, error=f"{type(error).__name__}: {error}", exc_info=error
    )


def _ended(name: str, over: Callable[[], None] | None, expected: Errors, task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if task.cancelled():
        return
    error = task.exception()
    if error is not None and not isinstance(error, expected):
        report(name, error)
    if over is not None:
        over()


def _watch(loop: asyncio.AbstractEventLoop, name: str) -> None:
    """Have the loop report errors of tasks of this name. A worker may run in the loop of an application: all else goes
    to the exception handler that the application has set, or to asyncio's own."""
    global _watched
    _begun.add(name)
    _watched = loop
    other = loop.get_exception_handler()
    if isinstance(other, _Unhandled):
        return
    loop.set_exception_handler(_Unhandled(other))


class _Unhandled:
    """An exception handler of a loop that reports errors of begun tasks and passes on everything else."""

    def __init__(self, other: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None) -> None:
        self._other = other

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        task, error = context.get("task") or context.get("future"), context.get("exception")
        if isinstance(task, asyncio.Task) and task.get_name() in _begun and isinstance(error, Exception):
            report(task.get_name(), error)
        elif self._other is not None:
            self._other(loop, context)
        else:
            loop.default_exception_handler(context)


async def _caught(work: Work[T]) -> T | Exception:
    try:
        return await work
    except Exception as error:
        return error
