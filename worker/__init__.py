"""The worker SDK: what a process that carries out steps imports.

    worker = Worker()

    @worker.task("word-count")
    def word_count(text: str) -> dict[str, int]:
        return {"words": len(text.split())}

    worker.run()

`Worker` is in worker.py, what it knows of each registered function in functions.py, what a function may return in
outcomes.py. Rooms: tasks/ carries out one task, from its delivery to its report; transports/ are the two ways to the
service, through the broker or over HTTP, both as transport.py describes them.

Not here: what follows from a report. A worker reports facts; retries and the run's course are the engine's. Start
reading at tasks/execution.py: one task from its delivery to its report, in one screen.
"""

from penstock.worker.outcomes import Continue, Pause
from penstock.worker.tasks.blocking import BlockingContext
from penstock.worker.tasks.context import Context
from penstock.worker.tasks.failures import NonRetriable, RetryAfter
from penstock.worker.worker import Worker

__all__ = ["BlockingContext", "Context", "Continue", "NonRetriable", "Pause", "RetryAfter", "Worker"]
