"""A worker process for tests: `python -m tests.support.mendable_worker TASK FILE` fails every task for good until FILE
is there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from penstock.worker import NonRetriable, Worker


def main() -> None:
    task, file = sys.argv[1], Path(sys.argv[2])
    worker = Worker(max_tasks=100)

    @worker.task(task)
    def answer(value: Any) -> Any:
        if not file.exists():
            raise NonRetriable("not mended yet")
        return value

    worker.run()


if __name__ == "__main__":
    main()
