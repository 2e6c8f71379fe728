"""Threads for functions that are not async."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

from penstock.worker.tasks.threads import Threads


async def test_a_job_whose_caller_was_cancelled_before_it_began_is_never_run() -> None:
    threads, go, ran = Threads(1), threading.Event(), list[str]()
    first = asyncio.ensure_future(threads.run(go.wait))
    cancelled = asyncio.ensure_future(threads.run(ran.append, "cancelled"))
    await asyncio.sleep(0)
    cancelled.cancel()
    with suppress(asyncio.CancelledError):
        await cancelled
    last = asyncio.ensure_future(threads.run(ran.append, "last"))
    go.set()
    assert await first
    await last
    threads.close()
    assert ["last"] == ran


async def test_a_job_that_has_begun_goes_on_when_its_caller_is_cancelled_and_its_thread_is_used_again() -> None:
    threads, begun, go, ran = Threads(1), threading.Event(), threading.Event(), list[str]()

    def job() -> None:
        begun.set()
        go.wait()
        ran.append("to its end")

    caller = asyncio.ensure_future(threads.run(job))
    await asyncio.to_thread(begun.wait, 10)
    caller.cancel()
    go.set()
    await threads.run(ran.append, "next")
    threads.close()
    assert ["to its end", "next"] == ran
