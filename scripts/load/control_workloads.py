"""Workloads of who looks after runs: many are paused and go on, a run is cancelled whose step runs, a long one is shown
as it was. Sizes are in environment.py, targets in targets.py."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from statistics import median
from typing import Any, Literal

import msgspec

from penstock.broker import names
from penstock.worker import Context, Worker

from .chain import NAME, TASK
from .environment import BRIDGE_TOKEN, Environment, Setup, environment
from .figures import percentile
from .log import StalledError
from .samples import Sample, Workload

CANCELLED, TRAVELLED = "loadtest-cancelled", "loadtest-travelled"
TRANSPORTS: Mapping[Literal["nats", "bridge"], str] = {"nats": "cancel", "bridge": "cancel-bridge"}
LOOK_S, QUEUED_S_MAX = 0.005, 60.0
KNOWN_S = 0.05  # after which the log has the start of a step: over the bridge it is written up to 20 ms late
WARM = 10  # one run in so many, before it counts
TIMES = 20  # that a run is asked for
EVENTS_PER_ELEMENT = 2

Ask = Mapping[str, object]


class _Done(msgspec.Struct):
    paused: list[str] = []
    resumed: list[str] = []


async def pauses(setup: Setup) -> Sample:
    """Runs whose task is queued are paused in one request, and then go on in another. Paused, none of them has a task
    in the queue any more; then each has one again."""
    count = setup.sizes.paused
    wish = msgspec.json.encode({"workflow_id": NAME, "status": "all", "limit": count})
    async with environment(setup, worker_count=0) as on:
        await on.start_all(count)
        await on.log.until(count, names.TASKS)
        with on.measured("pause", count) as costs:
            begin = time.perf_counter()
            paused = msgspec.json.decode(await on.client.pause(wish), type=_Done).paused
            pause_s = time.perf_counter() - begin
            withdrawn_s = await _queued(on, 0) - begin
        with on.measured("resume", count) as more:
            begin = time.perf_counter()
            resumed = msgspec.json.decode(await on.client.resume(wish), type=_Done).resumed
            resume_s = time.perf_counter() - begin
            queued_s = await _queued(on, count) - begin
    if (len(paused), len(resumed)) != (count, count):
        raise RuntimeError(f"of {count} runs {len(paused)} were paused and {len(resumed)} went on")
    rows = {"pause": pause_s, "pause-withdrawn": withdrawn_s, "resume": resume_s, "resume-queued": queued_s}
    return Sample(rows, {**costs, **more})


async def cancels(setup: Setup) -> Sample:
    """Runs are cancelled one after the other, a little after their function has begun, from the request until the
    function knows it; over the one transport and then over the other."""
    count, rows, costs = setup.sizes.cancelled, {}, {}
    async with environment(setup, worker_count=0, bridge=True) as on:
        for transport, row in TRANSPORTS.items():
            await on.client.register(_definition(f"{CANCELLED}-{transport}", {"id": "s", "task": f"wait.{transport}"}))
            worker, begun, noticed = _waiting_worker(on, transport)
            async with worker.running():
                await _cancelled(on, transport, count // WARM, begun, noticed)
                with on.measured(row, count) as cost:
                    times = await _cancelled(on, transport, count, begun, noticed)
            rows |= {f"{row}-p50": percentile(times, 0.5) * 1000, f"{row}-p99": percentile(times, 0.99) * 1000}
            costs |= cost
    return Sample(rows, costs)


async def travel(setup: Setup) -> Sample:
    """A run with many events, as it was at sequences all over it, and as it was just before its end, for the first
    time and again: the events up to there are folded, since its snapshot is a later one."""
    elements = setup.sizes.elements // EVENTS_PER_ELEMENT
    step = {"id": "m", "type": "map", "task": TASK, "config": {"max_items": elements}}
    async with environment(setup) as on:
        await on.client.register(_definition(TRAVELLED, step))
        run_id = await on.client.start(TRAVELLED, msgspec.json.encode(list(range(elements))))
        if (status := await on.client.status_at_end(run_id)) != "completed":
            raise RuntimeError(f"the run is {status}")
        stored = [one.seq for one in await on.store.history.read(run_id)]
        first = await _asked(on, run_id, stored[-2])
        with on.measured("travel", TIMES) as costs:
            last = [await _asked(on, run_id, stored[-2]) for _ in range(TIMES)]
        anywhere = [await _asked(on, run_id, seq) for seq in stored[:: max(1, len(stored) // TIMES)]]
    found = {"travel-first": first, "travel": median(last), "travel-anywhere": median(anywhere)}
    return Sample({row: spent_s * 1000 for row, spent_s in found.items()}, costs)


CONTROL_WORKLOADS: Mapping[str, Workload] = {
    "pause": Workload(pauses),
    "cancel": Workload(cancels),
    "travel": Workload(travel),
}


def _definition(name: str, *steps: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode({"name": name, "steps": steps})


async def _queued(on: Environment, count: int) -> float:
    """When so many tasks are in the queue. Raises StalledError if there never are."""
    begin = time.perf_counter()
    while (found := await on.log.messages(names.TASKS)) != count:
        if time.perf_counter() - begin > QUEUED_S_MAX:
            raise StalledError(f"{found} tasks are in the queue and not {count}")
        await asyncio.sleep(LOOK_S)
    return time.perf_counter()


def _waiting_worker(
    on: Environment, transport: Literal["nats", "bridge"]
) -> tuple[Worker, asyncio.Queue[str], asyncio.Queue[float]]:
    """A worker whose function waits until it is cancelled; the runs that it has begun, and when it was."""
    begun, noticed = asyncio.Queue[str](), asyncio.Queue[float]()
    places: dict[str, Any] = {"broker_url": on.service.broker_url}
    if transport == "bridge":
        places = {"url": on.service.url, "bridge_token": BRIDGE_TOKEN}
    worker = Worker(transport=transport, grace_s=0, **places)

    @worker.task(f"wait.{transport}")
    async def wait(value: object, ctx: Context) -> None:
        begun.put_nowait(ctx.run_id)
        try:
            await asyncio.Event().wait()
        finally:
            noticed.put_nowait(time.perf_counter())

    return worker, begun, noticed


async def _cancelled(
    on: Environment, transport: str, runs: int, begun: asyncio.Queue[str], noticed: asyncio.Queue[float]
) -> list[float]:
    """Seconds from each request to the function, in ascending order."""
    times = []
    for _ in range(runs):
        await on.client.start(f"{CANCELLED}-{transport}", b"null")
        run_id = await begun.get()
        await asyncio.sleep(KNOWN_S)
        begin = time.perf_counter()
        await on.client.cancel(run_id)
        times.append(await noticed.get() - begin)
    return sorted(times)


async def _asked(on: Environment, run_id: str, seq: int) -> float:
    begin = time.perf_counter()
    await on.client.run_at(run_id, seq)
    return time.perf_counter() - begin
