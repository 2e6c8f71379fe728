"""A worker process for crash tests: what each task does depends only on its input, its attempt and its checkpoint."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock.worker import Context, Continue, NonRetriable, Pause, Worker

ITERATIONS = 3
PAUSE_S = 0.02

worker = Worker(max_tasks=100, worker_id="crash-worker")


@worker.task("crash.echo")
async def echo(value: Any) -> Any:
    return value


@worker.task("crash.flaky")
async def flaky(value: Any, ctx: Context) -> Any:
    """Its first attempt fails."""
    if ctx.attempt == 1:
        raise RuntimeError("not yet")
    return value


@worker.task("crash.fatal")
async def fatal(value: Any, ctx: Context) -> Any:
    """Its first attempt fails for good: only a replay leads to a second one."""
    if ctx.attempt == 1:
        raise NonRetriable("not like this")
    return value


@worker.task("crash.hanging")
async def hanging(value: Any, ctx: Context) -> Any:
    """Its first attempt never ends."""
    if ctx.attempt == 1:
        await asyncio.Event().wait()
    return value


@worker.task("crash.draft")
async def draft(value: int) -> Any:
    return Continue(value + 1) if value + 1 < ITERATIONS else {"drafts": value + 1}


@worker.task("crash.pausing")
async def pausing(value: Any, ctx: Context) -> Any:
    found = await ctx.load_checkpoint()
    if found is None:
        raise Pause(PAUSE_S, checkpoint={"seen": value}, name="a while")
    return found


@worker.task("crash.signalled")
async def signalled(value: Any, ctx: Context) -> Any:
    return [value, await ctx.wait_signal("go")]


if __name__ == "__main__":
    worker.run()
