"""Workloads of maps: many elements of one run, few elements of many runs, elements that are runs of their own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

import msgspec

from .bulk import REQUEST_RUNS
from .chain import HOLD, TASK, definition
from .environment import REQUEST_S_MAX, Environment, Setup, environment
from .samples import Sample, Workload

MAPS, HOLDING, PARENTS, CHILD = "loadtest-map", "loadtest-holding-map", "loadtest-parent", "loadtest-child"
FEW = 10  # elements of each of many runs
SMALL = 100  # elements of a map that a large one is compared with
WARM_RUNS = 20
RUN_EVENTS, ELEMENT_EVENTS = 3, 1  # start and end of the run and the start of its map; of each element, at least
HELD_S, NOT_HELD_S = 8.0, 0.0
REQUESTS_AT_ONCE = 4
SNAPSHOT_LOOK_S = 0.25


async def large_map(setup: Setup) -> Sample:
    """One map of many elements, and as many elements in small maps, to compare what one of them costs."""
    total = setup.sizes.elements
    async with environment(setup) as on:
        await _prepare(on, MAPS, task=TASK)
        with on.measured("map-100", total) as costs:
            await _maps(on, total // SMALL, SMALL)
        with on.measured("map", total) as more:
            (run_id,) = await _maps(on, 1, total)
        took_s = await _took_s(on, run_id, "step.started")
    costs |= more
    ratio = on.service_us(costs["map"]) / on.service_us(costs["map-100"])
    return Sample({"map": took_s, "map-ratio": ratio}, costs)


async def snapshot(setup: Setup) -> Sample:
    """The largest snapshot of a map of which all elements but one have ended."""
    async with environment(setup) as on:
        await on.client.register(_map(HOLDING, task=HOLD))
        seconds = [NOT_HELD_S] * (setup.sizes.elements - 1) + [HELD_S]
        (run_id,) = await on.client.start_all(HOLDING, [msgspec.json.encode(seconds)])
        ending = asyncio.create_task(on.client.status_at_end(run_id))
        largest = 0
        while not ending.done():
            entry = await on.store.runs.get(run_id)
            largest = max(largest, 0 if entry is None else len(entry.value))
            await asyncio.wait([ending], timeout=SNAPSHOT_LOOK_S)
        if ending.result() != "completed":
            raise RuntimeError(f"the run is {ending.result()}")
    return Sample({"map-snapshot": largest / 1000})


async def small_maps(setup: Setup) -> Sample:
    """Many runs at once, each with a map of few elements."""
    runs = setup.sizes.mapped
    async with environment(setup) as on:
        await _prepare(on, MAPS, task=TASK)
        with on.measured("map-bulk", runs * FEW) as costs:
            begin = time.time()
            run_ids = await _maps(on, runs, FEW)
        took_s = await on.log.completed_at(run_ids) - begin
    return Sample({"map-bulk": runs * FEW / took_s}, costs)


async def children(setup: Setup) -> Sample:
    """One map whose elements are runs of another workflow."""
    total = setup.sizes.children
    async with environment(setup) as on:
        await on.client.register(definition(1, CHILD))
        await _prepare(on, PARENTS, config={"workflow": CHILD})
        with on.measured("children", total) as costs:
            (run_id,) = await _ended(on, PARENTS, 1, total)
        took_s = await _took_s(on, run_id, "workflow.started")
    return Sample({"children": took_s}, costs)


MAP_WORKLOADS: Mapping[str, Workload] = {
    "map": Workload(large_map),
    "map-snapshot": Workload(snapshot),
    "map-bulk": Workload(small_maps),
    "children": Workload(children),
}


def _map(name: str, **given: object) -> bytes:
    """A workflow of one map over its input."""
    config = {"max_items": 10_000, **(given.pop("config", None) or {})}  # type: ignore[dict-item]
    return msgspec.json.encode({"name": name, "steps": [{"id": "m", "type": "map", **given, "config": config}]})


async def _prepare(on: Environment, name: str, **given: object) -> None:
    """Register the workflow, and run it a few times."""
    await on.client.register(_map(name, **given))
    await _ended(on, name, WARM_RUNS, FEW)


async def _maps(on: Environment, runs: int, elements: int) -> list[str]:
    """Start runs of a map of so many elements, and wait until the log says that all have ended."""
    before = await on.log.messages()
    run_ids = await _start_all(on, MAPS, runs, elements)
    await on.log.until_quiet(before + runs * (RUN_EVENTS + elements * ELEMENT_EVENTS))
    return run_ids


async def _ended(on: Environment, name: str, runs: int, elements: int) -> list[str]:
    """Start runs, and wait for the end of each. Raises RuntimeError for one that has not completed."""
    run_ids = await _start_all(on, name, runs, elements)
    async with asyncio.timeout(REQUEST_S_MAX):
        for run_id in run_ids:
            if (status := await on.client.status_at_end(run_id)) != "completed":
                raise RuntimeError(f"run {run_id} is {status}")
    return run_ids


async def _start_all(on: Environment, name: str, runs: int, elements: int) -> list[str]:
    value = msgspec.json.encode(list(range(elements)))
    sizes = iter([min(REQUEST_RUNS, runs - begin) for begin in range(0, runs, REQUEST_RUNS)])
    run_ids: list[str] = []

    async def sender() -> None:
        for size in sizes:
            run_ids.extend(await on.client.start_all(name, [value] * size))

    async with asyncio.TaskGroup() as group:
        for _ in range(REQUESTS_AT_ONCE):
            group.create_task(sender())
    return run_ids


async def _took_s(on: Environment, run_id: str, since: str) -> float:
    """From the first event of this type to the end of the run, by the broker's clock."""
    events = await on.log.events(run_id)
    if events[-1][0] != "workflow.completed":
        raise RuntimeError(f"the last event of the run is {events[-1][0]}")
    return events[-1][1] - next(at for kind, at in events if kind == since)
