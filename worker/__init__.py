"""The worker SDK: what a process that carries out steps imports.

    worker = Worker()

    @worker.task("word-count")
    def word_count(text: str) -> dict[str, int]:
        return {"words": len(text.split())}

    worker.run()

Here: `Worker` (worker.py), what it knows of each registered function (functions.py), what happens to one task
(execution.py, outcomes.py, failures.py), what a function may ask for (context.py, blocking.py), threads for functions
that are not async (threads.py), and its entry in the workers bucket (registration.py). Where tasks come from and
answers go is a Transport (transport.py): straight through the broker (direct.py, intake.py), or over HTTP (bridge.py,
polling.py, bridge_client.py). A service that is away is waited for (patience.py); loops beside a block are started by
background.py. Not here: what becomes of an answer. A worker reports facts; retries and the run's course are the
engine's. Start reading at execution.py: one task from the moment that it is held to its answer, in one screen.
"""

from penstock.worker.outcomes import Continue, Pause
from penstock.worker.tasks.blocking import BlockingContext
from penstock.worker.tasks.context import Context
from penstock.worker.tasks.failures import NonRetriable, RetryAfter
from penstock.worker.worker import Worker

__all__ = ["BlockingContext", "Context", "Continue", "NonRetriable", "Pause", "RetryAfter", "Worker"]
