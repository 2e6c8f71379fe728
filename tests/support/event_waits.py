"""Workflows that wait for an event, and what became of them."""

from __future__ import annotations

import asyncio

import orjson

from penstock.actors.runs.loading import load
from penstock.actors.runs.outputs import output_of
from penstock.broker.store import Store
from penstock.engine.run.events import EventReceived, decode
from penstock.engine.run.state import Run, RunStatus, StepStatus
from tests.support.world import ended


def waiting(name: str, **config: object) -> dict[str, object]:
    """A workflow that waits for an event of its own name, so that tests do not meet in the stream of events."""
    step = {"id": "w", "type": "wait_for_event", "config": {"event": f"{name}.paid", **config}}
    return {"name": name, "steps": [step]}


async def send(store: Store, name: str, body: object) -> int:
    return await store.events.publish(f"event.{name}.paid", orjson.dumps(body))


async def waits(store: Store, run_id: str, step_id: str = "w") -> Run:
    """The run's state once the step waits."""
    async with asyncio.timeout(20):
        async for _ in store.history.follow(run_id):
            run = (await load(store, run_id)).run
            if run is not None and run.steps[step_id].status is StepStatus.RUNNING:
                return run
    raise AssertionError("unreachable")


async def result(store: Store, run_id: str, step_id: str = "w") -> object:
    run = await ended(store, run_id)
    assert run.status is RunStatus.COMPLETED, run.error
    return orjson.loads(bytes(await output_of(store, run, step_id)))


async def received(store: Store, run_id: str) -> list[int]:
    """The sequences of all events that the run has received."""
    events = [decode(one.data) for one in await store.history.read(run_id)]
    return [event.payload.seq for event in events if isinstance(event, EventReceived)]


async def records(store: Store) -> int:
    return len(await store.event_waits._bucket.all())
