"""What the tests of the worker do on both sides of it: put tasks on a queue, and wait for what a worker reports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import orjson
from msgspec import Raw
from uuid_utils import uuid7

from penstock.broker import names
from penstock.broker.nats.pull import Delivery
from penstock.broker.store import Store
from penstock.engine.run.commands import DispatchTask
from penstock.engine.run.events import Event, StepCompleted, StepFailed, decode
from penstock.worker import Worker

TIMEOUT_S = 10


def new_run_id() -> str:
    return uuid7().hex


async def dispatch(
    store: Store,
    task: str,
    value: Any = None,
    *,
    run_id: str | None = None,
    attempt: int = 1,
    iteration: int = 0,
    metadata: dict[str, str] | None = None,
    group: str | None = None,
    step_id: str = "s",
) -> str:
    """Queue a task of a step; returns its run id."""
    run_id = run_id or new_run_id()
    command = DispatchTask(step_id, task, attempt, iteration, Raw(orjson.dumps(value)), metadata or {}, group)
    await store.tasks.send(run_id, "flow", command)
    return run_id


async def put_raw(store: Store, task: str, run_id: str, body: bytes) -> None:
    await store.publisher.send(names.task_subject(task, run_id), body)


async def durable(store: Store, task: str, ack_wait_s: float) -> None:
    """The task type's consumer, before any worker makes it."""
    name = names.task_consumer(task)
    config = {
        "name": name,
        "durable_name": name,
        "ack_policy": "explicit",
        "ack_wait": int(ack_wait_s * 1e9),
        "max_ack_pending": -1,
        "filter_subject": names.task_filter(task),
    }
    await store.broker.api(f"CONSUMER.CREATE.{names.TASKS}.{name}", {"stream_name": names.TASKS, "config": config})


def output_of(event: StepCompleted | StepFailed) -> Any:
    """The output of a step that completed with one."""
    assert isinstance(event, StepCompleted), event
    assert isinstance(event.payload, Raw)
    return orjson.loads(bytes(event.payload))


@asynccontextmanager
async def taking(store: Store, task: str) -> AsyncIterator[asyncio.Queue[Delivery]]:
    """Another receiver of the task type: what it is given."""
    taken: asyncio.Queue[Delivery] = asyncio.Queue()
    async with store.tasks.consume(task, taken.put_nowait, batch=1, room=lambda: 1):
        yield taken


def is_answer(event: Event) -> bool:
    return isinstance(event, StepCompleted | StepFailed)


async def reported(store: Store, run_id: str, until: Callable[[Event], bool] = is_answer) -> list[Event]:
    """The run's events up to the first that `until` accepts."""
    events: list[Event] = []
    async with asyncio.timeout(TIMEOUT_S):
        async for stored in store.history.follow(run_id):
            if stored is not None:
                events.append(decode(stored.data))
                if until(events[-1]):
                    break
    return events


async def answer(store: Store, run_id: str) -> StepCompleted | StepFailed:
    """The first answer to the run's task."""
    last = (await reported(store, run_id))[-1]
    assert isinstance(last, StepCompleted | StepFailed)
    return last


async def waiting(store: Store, task: str) -> int:
    """Tasks of this type that the broker still keeps."""
    state = (await store.broker.api(f"STREAM.INFO.{names.TASKS}", {"subjects_filter": names.task_filter(task)}))[
        "state"
    ]
    return sum((state.get("subjects") or {}).values())


async def until(holds: Callable[[], Coroutine[Any, Any, bool]], within_s: float = TIMEOUT_S) -> None:
    """Return once it holds."""
    async with asyncio.timeout(within_s):
        while not await holds():  # noqa: ASYNC110 - the broker sends no notification
            await asyncio.sleep(0.005)


async def acknowledged(store: Store, task: str, within_s: float = TIMEOUT_S) -> None:
    async def none_left() -> bool:
        return await waiting(store, task) == 0

    await until(none_left, within_s)


async def outcome(
    store: Store, worker: Worker, task: str, value: Any = None, **more: Any
) -> StepCompleted | StepFailed:
    """What a worker answers to one task."""
    run_id = await dispatch(store, task, value, **more)
    async with worker.running():
        return await answer(store, run_id)
