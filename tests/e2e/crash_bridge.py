"""What workers over HTTP do while a process dies: scenarios as in crash_scenarios.py."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from signal import SIGKILL
from typing import Any

import httpx2

from tests.e2e.crash_scenarios import ENDED_S_MAX, UNANSWERED_S, begun, step
from tests.support.crashing import World
from tests.support.waiting import until
from tests.support.world import ended
from tests.worker.task_queue import durable

POLL_MS = 300


async def bridge(world: World, name: str) -> None:
    await bridged(world, name, lambda task: {"action": "complete", "output": task["input"]})


async def bridge_pause(world: World, name: str) -> None:
    def answer(task: dict[str, Any]) -> dict[str, Any]:
        if "checkpoint" in task:
            return {"action": "complete", "output": task["checkpoint"]}
        return {"action": "pause", "duration_ms": 20, "checkpoint": {"seen": task["input"]}, "name": "a while"}

    await bridged(world, name, answer, timeout="1m")


async def bridge_loop(world: World, name: str) -> None:
    def answer(task: dict[str, Any]) -> dict[str, Any]:
        return {"action": "continue" if task["iteration"] < 2 else "complete", "output": task["iteration"]}

    await bridged(world, name, answer, type="agent_loop", config={"max_iterations": 5})


async def bridge_later(world: World, name: str) -> None:
    """The answer comes when the start of the step was told."""

    async def told(task: dict[str, Any]) -> None:
        await start_told(world, task)

    await bridged(world, name, lambda task: {"action": "complete", "output": task["input"]}, told)


async def bridge_successor(world: World, name: str) -> None:
    """The process that handed the task out is gone when its answer comes."""

    async def killed(task: dict[str, Any]) -> None:
        await start_told(world, task)
        (pid,) = world.place.service.http_worker_pids()
        os.kill(pid, SIGKILL)
        await world.ask("GET", "/health")  # by its successor

    await bridged(world, name, lambda task: {"action": "complete", "output": task["input"]}, killed)


async def bridged(
    world: World,
    name: str,
    answer: Callable[[dict[str, Any]], dict[str, Any]],
    meanwhile: Callable[[dict[str, Any]], Awaitable[None]] | None = None,
    **more: Any,
) -> None:
    """One step by a worker over HTTP, which polls again whenever something broke, until the run has ended."""
    task_type = f"{name}.task"
    await durable(world.store, task_type, UNANSWERED_S)
    run_id = await begun(world, name, step(task_type, **more))
    ending = asyncio.create_task(ended(world.store, run_id, ENDED_S_MAX))
    while not ending.done():
        request = {"task_types": [task_type], "max_tasks": 1, "timeout_ms": POLL_MS, "worker_id": "w-1"}
        found = await world.ask_once("POST", "/v1/tasks/poll", json=request)
        for task in found.json() if found is not None else ():
            if meanwhile is not None:
                await meanwhile(task)
                meanwhile = None
            await world.ask_once("POST", f"/v1/tasks/{task['task_id']}/resolve", json=answer(task))
    await ending


async def start_told(world: World, task: dict[str, Any]) -> None:
    """Return when the lease of a polled task is stored, or its process has died."""
    former = world.place.service.http_worker_pids()

    async def stored() -> bool:
        kept = await world.store.leases.get(task["task_id"])
        return kept is not None or world.place.service.http_worker_pids() != former

    await until(stored)


async def bridge_worker(world: World, name: str) -> object:
    """A worker connects, again if need be, and is told of as long as it stays."""
    body = {"worker_id": name, "task_types": ["crash.echo"]}

    async def connected() -> list[Any] | None:
        with suppress(httpx2.TransportError):
            async with world.http.stream("POST", "/v1/workers/connect", json=body) as answer:
                async for _ in answer.aiter_raw():
                    workers = (await world.ask("GET", "/workers")).json()
                    return [worker["task_types"] for worker in workers if worker["worker_id"] == name]
        return None

    return await until(connected)
