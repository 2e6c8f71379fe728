"""The worker SDK: what a process that carries out steps imports.

    worker = Worker()

    @worker.task("word-count")
    def word_count(text: str) -> dict[str, int]:
        return {"words": len(text.split())}

    worker.run()

worker.py has `Worker` and the life of its process; functions.py checks a registered function; tasks/ carries out one
task; live/ sends what it says while it runs; transports/ get tasks and send answers, through the broker or over HTTP,
behind the protocol of transport.py. outcomes.py lists what may become of a task. retrying.py repeats a request while
the service is unavailable.

Not here: what an answer means for the run. A worker reports facts; retries and the run's course are decided by the
engine. Start reading at tasks/executor.py: one task from its delivery to its answer, on one screen.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.worker.outcomes import Continue, Pause
    from penstock.worker.tasks.blocking import BlockingContext
    from penstock.worker.tasks.cancelling import TaskCancelled
    from penstock.worker.tasks.context import Context
    from penstock.worker.tasks.failures import NonRetriable, RetryAfter
    from penstock.worker.worker import Worker

__all__ = [
    "BlockingContext",
    "Context",
    "Continue",
    "NonRetriable",
    "Pause",
    "RetryAfter",
    "TaskCancelled",
    "Worker",
]

_MODULES = {
    "BlockingContext": "tasks.blocking",
    "Context": "tasks.context",
    "Continue": "outcomes",
    "NonRetriable": "tasks.failures",
    "Pause": "outcomes",
    "RetryAfter": "tasks.failures",
    "TaskCancelled": "tasks.cancelling",
    "Worker": "worker",
}


def __getattr__(name: str) -> object:
    """Loads what has the name at its first use: whoever raises NonRetriable needs no connection to a broker."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
