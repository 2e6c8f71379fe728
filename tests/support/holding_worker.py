"""A worker process for tests that begins tasks and never ends them.

python -m tests.support.holding_worker TASK WORKER_ID
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from penstock.worker import Worker


async def hold(value: Any) -> None:
    await asyncio.Event().wait()


def main() -> None:
    task, worker_id = sys.argv[1:]
    worker = Worker(worker_id=worker_id)
    worker.task(task)(hold)
    worker.run()


if __name__ == "__main__":
    main()
