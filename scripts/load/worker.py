"""One worker of the load: `python -m load.worker`, in the folder scripts/. It returns what it gets."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock.worker import Worker

from .chain import HOLD, TASK
from .live_workloads import SAY, say

MAX_TASKS = 500


async def echo(value: Any) -> Any:
    return value


async def hold(seconds: float) -> float:
    """Take as long as the input says."""
    await asyncio.sleep(seconds)
    return seconds


def main() -> None:
    """Work until SIGTERM."""
    worker = Worker(max_tasks=MAX_TASKS)
    worker.task(TASK)(echo)
    worker.task(HOLD)(hold)
    worker.task(SAY)(say)
    worker.run()


if __name__ == "__main__":
    main()
