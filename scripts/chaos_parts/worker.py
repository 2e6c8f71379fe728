"""One worker of the storm: `python -m chaos_parts.worker NAME TRANSPORT DIRECTORY SEED`, in the folder scripts/.

It writes down every execution before it begins, and what it gives back is never the same twice: so a result that
counted twice would be seen in what the next step receives. Whether an execution fails depends on the seed and on which
execution it is.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import sys
import time
from pathlib import Path
from typing import Any

from msgspec import json

from penstock.worker import Context, Continue, NonRetriable, RetryAfter, Worker

from .executions import Execution, digest
from .kind_workflows import DOOM, FRAIL, LIST, PIECE, PLAN, PLANS, WORK
from .workflows import LOOP, SIGNAL, SLOW, WAIT

MAX_TASKS = 40
FAIL, RETRY_AFTER, DAWDLE = 0.12, 0.02, 0.02
LAST_ITERATION = 2
SLOW_S = (0.2, 2.0)
WORK_S = (0.0, 0.15)
DAWDLE_S = 4.0
LISTED_MAX, SAID_MAX = 9, 5
HOPELESS, BREAKS = 0.1, 0.2


class Book:
    """Owned by the worker. A line is written whole or not at all, whenever the process is killed."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, value: Any, ctx: Context) -> None:
        execution = Execution(ctx.run_id, ctx.step_id, ctx.attempt, ctx.iteration, digest(value), time.time())
        os.write(self._file, json.encode(execution) + b"\n")


class Tasks:
    """The task functions."""

    def __init__(self, book: Book, seed: str) -> None:
        self._book, self._seed = book, seed

    async def work(self, value: Any, ctx: Context) -> Any:
        dice = self._begin(value, ctx)
        await asyncio.sleep(dice.uniform(*WORK_S))
        await _misfortune(dice)
        by, said = secrets.token_hex(8), dice.randint(0, SAID_MAX)
        for number in range(said):
            ctx.log(f"{by} {number}")
            ctx.stream([by, number])
        pad = "x" * int(ctx.metadata.get("bytes", 0))
        return {"by": by, "even": dice.random() < 0.5, "pad": pad, "said": said}

    async def loop(self, value: Any, ctx: Context) -> Any:
        dice = self._begin(value, ctx)
        await _misfortune(dice)
        found = {"by": secrets.token_hex(8)}
        return found if ctx.iteration >= LAST_ITERATION else Continue(found)

    async def wait(self, value: Any, ctx: Context) -> Any:
        self._begin(value, ctx)
        return await ctx.wait_signal(SIGNAL)

    async def slow(self, value: Any, ctx: Context) -> Any:
        await asyncio.sleep(self._begin(value, ctx).uniform(*SLOW_S))
        return {"by": secrets.token_hex(8)}

    async def doom(self, value: Any, ctx: Context) -> Any:
        self._begin(value, ctx)
        if ctx.attempt == 1:
            raise NonRetriable("chaos: doomed")
        return {"by": secrets.token_hex(8)}

    async def listed(self, value: Any, ctx: Context) -> Any:
        dice = self._begin(value, ctx)
        await _misfortune(dice)
        return [{"number": number, "by": secrets.token_hex(4)} for number in range(dice.randint(0, LISTED_MAX))]

    async def piece(self, value: Any, ctx: Context) -> Any:
        """An element of a map; some fail for good."""
        dice = self._begin(value, ctx)
        await asyncio.sleep(dice.uniform(*WORK_S))
        if dice.random() < HOPELESS:
            raise NonRetriable("chaos: hopeless")
        await _misfortune(dice)
        return {"by": secrets.token_hex(4)}

    async def frail(self, value: Any, ctx: Context) -> Any:
        """It may fail for good at the first attempt, and never later."""
        dice = self._begin(value, ctx)
        await asyncio.sleep(dice.uniform(*WORK_S))
        if ctx.attempt == 1 and dice.random() < BREAKS:
            raise NonRetriable("chaos: broken")
        return {"by": secrets.token_hex(4)}

    async def plan(self, value: Any, ctx: Context) -> Any:
        """Steps for the run, or at the first attempt perhaps what is no plan."""
        dice = self._begin(value, ctx)
        await _misfortune(dice)
        return {"steps": dice.choice(PLANS if ctx.attempt == 1 else PLANS[:-1])}

    def _begin(self, value: Any, ctx: Context) -> random.Random:
        self._book.note(value, ctx)
        return random.Random(f"{self._seed}.{ctx.task_id}.{ctx.attempt}.{ctx.iteration}")


async def _misfortune(dice: random.Random) -> None:
    chance = dice.random()
    if chance < FAIL:
        raise RuntimeError("chaos: failed")
    if chance < FAIL + RETRY_AFTER:
        raise RetryAfter(0.7, "chaos: later")
    if chance < FAIL + RETRY_AFTER + DAWDLE:
        await asyncio.sleep(DAWDLE_S)


def main() -> None:
    """Work until SIGTERM."""
    name, transport, directory, seed = sys.argv[1:]
    tasks = Tasks(Book(Path(directory, name)), seed)
    # An id that outlives its process: a sticky run whose worker never came back would wait for it.
    worker = Worker(worker_id=name, max_tasks=MAX_TASKS, transport="bridge" if transport == "bridge" else "nats")
    for name, function in {
        WORK: tasks.work,
        LOOP: tasks.loop,
        WAIT: tasks.wait,
        SLOW: tasks.slow,
        DOOM: tasks.doom,
        LIST: tasks.listed,
        PIECE: tasks.piece,
        FRAIL: tasks.frail,
        PLAN: tasks.plan,
    }.items():
        worker.task(name)(function)
    worker.run()


if __name__ == "__main__":
    main()
