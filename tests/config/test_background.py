"""Work beside other work: its death is seen, ends or restarts what depends on it, and no cancellation is lost."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from penstock.config.process import rate_limited_log
from penstock.config.process.background import (
    FAILURES,
    again_and_again,
    all_of,
    background,
    begin,
    each_of,
    end,
    restarting,
    start,
)

WAIT_S = 5.0


@pytest.fixture(autouse=True)
def _no_failures() -> Iterator[None]:
    FAILURES.clear()
    rate_limited_log.reset()
    yield
    FAILURES.clear()


async def _fail() -> None:
    raise OSError("no space left")


async def _for_ever() -> None:
    await asyncio.Event().wait()


async def test_a_death_is_logged_counted_and_reported() -> None:
    told = asyncio.Event()

    with capture_logs() as logs:
        start(_fail(), name="sweeper", over=told.set)
        async with asyncio.timeout(WAIT_S):
            await told.wait()

    assert {"sweeper": 1} == FAILURES
    assert [("background_failed", "sweeper", "OSError: no space left")] == [
        (one["event"], one["work"], one["error"]) for one in logs
    ]


async def test_an_expected_error_is_its_awaiters_alone() -> None:
    with capture_logs() as logs:
        task = start(_fail(), name="opener", expected=OSError)
        with pytest.raises(OSError, match="no space left"):
            await task

    assert not logs
    assert not FAILURES


async def test_a_cancelled_task_has_not_died() -> None:
    told: list[str] = []

    task = start(_for_ever(), name="sweeper", over=lambda: told.append("over"))
    await end(task)

    assert task.cancelled()
    assert not told
    assert not FAILURES


async def test_a_task_that_nobody_keeps_is_not_collected() -> None:
    async def work() -> None:
        await asyncio.get_running_loop().create_future()  # only the task itself knows it

    seen = weakref.ref(start(work(), name="kept"))
    await asyncio.sleep(0)
    gc.collect()

    task = seen()
    assert task is not None
    await end(task)


async def test_a_dead_loop_ends_its_block_with_its_error() -> None:
    reached = False

    async def block() -> None:
        nonlocal reached
        async with background(_fail(), name="renewal"):
            await asyncio.Event().wait()
            reached = True

    with pytest.raises(OSError, match="no space left"):
        await block()

    assert not reached
    assert {"renewal": 1} == FAILURES


async def test_the_blocks_own_error_is_not_replaced() -> None:
    with pytest.raises(TimeoutError, match="mine"):
        async with background(_for_ever(), name="renewal"):
            raise TimeoutError("mine")

    assert not FAILURES


async def test_a_block_left_in_peace_ends_its_loop() -> None:
    ended = asyncio.Event()

    async def loop() -> None:
        try:
            await _for_ever()
        finally:
            ended.set()

    async with background(loop(), name="renewal"):
        await asyncio.sleep(0)

    assert ended.is_set()
    assert not FAILURES


@pytest.mark.parametrize(
    "beside", [lambda: background(_for_ever(), name="loop"), lambda: restarting(_for_ever, name="loop")]
)
async def test_cancellation_passes_through_the_end_of_a_block(beside) -> None:  # type: ignore[no-untyped-def]
    leaving = asyncio.Event()
    passed: list[str] = []

    async def caller() -> None:
        async with beside():
            leaving.set()
        passed.append("swallowed")

    task = start(caller(), name="caller")
    await leaving.wait()  # it waits now for the end of its loop
    task.cancel()
    await asyncio.wait([task])

    assert task.cancelled()
    assert not passed


async def test_a_dead_loop_is_begun_again() -> None:
    lives = 0
    again = asyncio.Event()

    async def loop() -> None:
        nonlocal lives
        lives += 1
        if lives < 3:
            raise OSError("no space left")
        again.set()
        await _for_ever()

    async with restarting(loop, name="sweeper", again_s=0.001), asyncio.timeout(WAIT_S):
        await again.wait()

    assert lives == 3
    assert {"sweeper": 2} == FAILURES


async def test_a_loop_that_returns_is_over() -> None:
    async def loop() -> None:
        return None

    async with asyncio.timeout(WAIT_S):
        await again_and_again(loop, name="sweeper")

    assert not FAILURES


async def test_the_first_error_of_several_ends_the_others_and_is_raised_as_it_is() -> None:
    ended = asyncio.Event()

    async def other() -> None:
        try:
            await _for_ever()
        finally:
            ended.set()

    with pytest.raises(OSError, match="no space left") as caught:
        await all_of([other(), _fail()])

    assert type(caught.value) is OSError
    assert ended.is_set()


async def test_an_error_of_one_is_its_result_and_not_the_others_business() -> None:
    async def fine() -> None:
        await asyncio.sleep(0)

    failed, done = await each_of([_fail(), fine()])

    assert isinstance(failed, OSError)
    assert done is None


async def test_a_cancellation_at_the_time_of_an_error_is_not_lost_and_neither_is_reported() -> None:
    async def fails_when_cancelled() -> None:
        try:
            await _for_ever()
        finally:
            raise OSError("no space left")

    forgotten = list[str]()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: forgotten.append(context["message"]))
    task = start(all_of([fails_when_cancelled()]), name="caller", expected=OSError)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])

    assert task.cancelled()
    del task
    gc.collect()
    assert [] == forgotten


async def _fails() -> None:
    raise ValueError("broken")


async def test_an_error_of_begun_work_is_reported_once_nobody_has_its_task() -> None:
    task = begin(_fails(), name="begun")
    await asyncio.wait([task])
    del task
    gc.collect()
    assert {"begun": 1} == FAILURES


async def test_an_application_keeps_its_exception_handler_and_the_errors_of_its_own_tasks() -> None:
    """A worker may run in its loop."""
    loop, seen = asyncio.get_running_loop(), list[str]()
    loop.set_exception_handler(lambda loop, context: seen.append(str(context["exception"])))
    await begin(asyncio.sleep(0), name="another")
    task = asyncio.create_task(_fails(), name="the application's")
    await asyncio.wait([task])
    del task
    gc.collect()
    assert (["broken"], 0) == (seen, FAILURES.total())
