"""A worker process for tests: `python -m tests.support.echo_worker TASK…` completes every task with its input."""

from __future__ import annotations

import sys
from typing import Any

from penstock.worker import Worker


async def echo(value: Any) -> Any:
    return value


def main() -> None:
    worker = Worker(max_tasks=100)
    for task in sys.argv[1:]:
        worker.task(task)(echo)
    worker.run()


if __name__ == "__main__":
    main()
