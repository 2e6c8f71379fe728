"""One worker of the load: `python -m load.worker`, in the folder scripts/. It returns what it gets."""

from __future__ import annotations

from typing import Any

from penstock.worker import Worker

from .chain import TASK

MAX_TASKS = 500


async def echo(value: Any) -> Any:
    return value


def main() -> None:
    """Work until SIGTERM."""
    worker = Worker(max_tasks=MAX_TASKS)
    worker.task(TASK)(echo)
    worker.run()


if __name__ == "__main__":
    main()
