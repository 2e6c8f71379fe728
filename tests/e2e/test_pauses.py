"""A pause that is longer than its step's timeout: over the bridge and over the broker, while the shard that owns the
run dies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import orjson
import pytest

from penstock.broker.store import Store, open_store
from penstock.config.settings import BrokerSettings
from penstock.engine.run.events import Event, StepPaused, WorkflowCompleted, WorkflowFailed
from penstock.worker import Context, Pause, Worker
from tests.e2e.conftest import StartService
from tests.http.bridge import TOKEN
from tests.worker.task_queue import reported

pytestmark = pytest.mark.timeout(120)

TIMEOUT_S, PAUSE_S = 1.5, 2.5
TRANSPORTS = ("nats", "bridge")


async def test_a_pause_does_not_run_down_the_timeout_of_its_step_also_across_a_takeover(
    start_service: StartService,
) -> None:
    service = start_service(shards=1, http_workers=1, bridge_token=TOKEN)
    with service.client() as client:
        for task in TRANSPORTS:
            client.register(
                orjson.dumps({"name": task, "steps": [{"id": "s", "task": task, "timeout": f"{TIMEOUT_S}s"}]})
            )
        run_ids = {task: client.start(task).run_id for task in TRANSPORTS}
    over_bridge = Worker(transport="bridge", url=service.url, bridge_token=TOKEN, grace_s=1)
    workers = [_pausing(Worker(broker_url=service.broker_url, grace_s=1), "nats"), _pausing(over_bridge, "bridge")]
    async with (
        open_store(BrokerSettings(url=service.broker_url), "test") as store,
        workers[0].running(),
        workers[1].running(),
    ):
        await asyncio.gather(
            *(reported(store, run_id, lambda event: isinstance(event, StepPaused)) for run_id in run_ids.values())
        )
        former = service.kill("shard-0")
        await asyncio.to_thread(service.await_restart, "shard-0", former)
        told = [await reported(store, run_id, _is_end) for run_id in run_ids.values()]
        hanging = await _hangs_after_its_pause(store, service)
    order = ["workflow.started", "step.started", "step.paused", "step.started", "step.completed", "workflow.completed"]
    assert [order, order] == [list(_types(events)) for events in told]
    assert "step timeout exceeded (1s)" in hanging


def _pausing(worker: Worker, task: str) -> Worker:
    @worker.task(task)
    async def rest(value: Any, ctx: Context) -> str:
        if await ctx.load_checkpoint() is None:
            raise Pause(PAUSE_S, checkpoint="rested", name="a while")
        return "done"

    return worker


def _types(events: Sequence[Event]) -> Iterator[object]:
    """An answer may tell its start: what was put aside is answered at once then."""
    for event in events:
        if getattr(event, "started_at", None) is not None:
            yield "step.started"
        yield event.__struct_config__.tag


async def _hangs_after_its_pause(store: Store, service: Any) -> str:
    """What a run says whose step has a second of work in all: half of it before a short pause, the rest never ends."""
    worker = Worker(broker_url=service.broker_url, grace_s=0)

    @worker.task("hanging")
    async def hang(value: Any, ctx: Context) -> None:
        if await ctx.load_checkpoint() is None:
            raise Pause(0.1, checkpoint="rested")
        await asyncio.Event().wait()

    with service.client() as client:
        client.register(orjson.dumps({"name": "hanging", "steps": [{"id": "s", "task": "hanging", "timeout": "1s"}]}))
        run_id = client.start("hanging").run_id
    async with worker.running():
        last = (await reported(store, run_id, _is_end))[-1]
    assert isinstance(last, WorkflowFailed)
    return last.payload.error


def _is_end(event: Event) -> bool:
    return isinstance(event, WorkflowCompleted | WorkflowFailed)
