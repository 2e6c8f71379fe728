"""A worker of the tests' own, straight on the broker: it answers tasks as a test tells it to, and counts what it
sees."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Raw

from penstock.actors.control import run_operations
from penstock.actors.runs.loading import load
from penstock.broker import names
from penstock.broker.nats.pull import Delivery
from penstock.broker.store import Store
from penstock.broker.worker_messages import TaskPayload, decode
from penstock.engine.definition.definitions import WorkflowDef
from penstock.engine.run.event_payloads import Failure
from penstock.engine.run.events import Event, StepCompleted, StepFailed, StepStarted
from penstock.engine.run.state import Run
from penstock.engine.validation import parse

Answer = Callable[["Echo", TaskPayload], Awaitable[None]]


def chain(name: str, steps: int = 3, **more: Any) -> dict[str, Any]:
    """A definition of steps s0, s1, … one after the other, all of task type `<name>.echo`."""
    return {
        "name": name,
        "steps": [
            {"id": f"s{n}", "task": f"{name}.echo", "depends_on": [f"s{n - 1}"] if n else [], **more}
            for n in range(steps)
        ],
    }


async def register(store: Store, document: dict[str, Any]) -> tuple[WorkflowDef, str]:
    definition = parse(document)
    return definition, await store.definitions.register(definition)


async def start(store: Store, document: dict[str, Any], value: bytes = b"null") -> str:
    return await run_operations.start(store, *await register(store, document), Raw(value))


async def ended(store: Store, run_id: str, timeout_s: float = 20) -> Run:
    """The run's state once its log says that it has ended."""
    async with asyncio.timeout(timeout_s):
        async for _ in store.history.follow(run_id):
            run = (await load(store, run_id)).run
            if run is not None and run.ended:
                return run
    raise AssertionError("unreachable")


async def without_history(store: Store, run_id: str) -> None:
    """Delete the history of a run, as by the age of the log."""
    await store.broker.remove(f"STREAM.PURGE.{names.HISTORY}", {"filter": names.stored_subject(run_id)})


class Echo:
    """Completes every task with its input, unless `answer` does something else. `seen` counts deliveries by task id."""

    def __init__(self, store: Store, answer: Answer | None = None) -> None:
        self.store, self.seen = store, Counter[str]()
        self._answer = answer
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, delivery: Delivery) -> None:
        task = asyncio.get_running_loop().create_task(self._handle(delivery))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _handle(self, delivery: Delivery) -> None:
        task = decode(delivery.data)
        self.seen[task.task_id] += 1
        await (self._answer or Echo.complete)(self, task)
        await delivery.ack()

    async def started(self, task: TaskPayload) -> None:
        await self._send(
            StepStarted(run_id=task.run_id, step_id=task.step_id, attempt_number=task.attempt, worker_id="echo")
        )

    async def complete(self, task: TaskPayload, output: bytes | None = None) -> None:
        await self.started(task)
        payload = task.input if output is None else Raw(output)
        await self._send(
            StepCompleted(run_id=task.run_id, step_id=task.step_id, attempt_number=task.attempt, payload=payload)
        )

    async def fail(self, task: TaskPayload, error: str, failure_type: str = "retriable") -> None:
        await self.started(task)
        failure = Failure(error=error, failure_type=failure_type)
        await self._send(
            StepFailed(run_id=task.run_id, step_id=task.step_id, attempt_number=task.attempt, payload=failure)
        )

    async def _send(self, event: Event) -> None:
        await self.store.history.send(event)


@asynccontextmanager
async def echo(store: Store, task: str, answer: Answer | None = None) -> AsyncIterator[Echo]:
    worker = Echo(store, answer)
    async with store.tasks.consume(task, worker.take, batch=200, room=lambda: 200):
        yield worker
