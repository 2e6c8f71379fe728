"""Workloads of limits: many runs through one limit and through many keys of one, very many that wait, how soon the next
one begins, an even rate, and turns between two who want the same. Sizes are in environment.py."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from penstock.broker import names

from .bulk import REQUEST_RUNS
from .chain import TASK, inputs
from .environment import Environment, Setup, environment
from .figures import percentile
from .samples import Sample, Workload

LIMITED, KEYED, WAITING, HELD, PLAIN, ALTERNATE, RATED, SHARED = (
    f"loadtest-{name}" for name in ("limited", "keyed", "waiting", "held", "plain", "alternate", "rated", "shared")
)
LIMIT, KEYS, TOGETHER = 100, 1000, 10
RATE, WINDOW_S, LOOK_EVERY_S = 500, 1.0, 0.02
TURNS = 10  # runs of the second tenant
WARM = 100
ONE_STEP = 4  # events of a run, at least: started, granted, step completed, completed
GRANTED, STARTED, COMPLETED = "limit.granted", "step.started", "step.completed"
SETTLED_S_MAX = 60.0


async def limited(setup: Setup) -> Sample:
    """Runs of one step, so many of which go on at a time; then as many, of each key one at a time."""
    runs = setup.sizes.limited
    async with environment(setup, alone=True) as on:
        await on.client.register(_definition(LIMITED, concurrency=[{"limit": LIMIT}]))
        await on.client.register(_definition(KEYED, concurrency=[{"limit": 1, "key": f"string(input.n % {KEYS})"}]))
        await _drained(on, LIMITED, WARM)
        with on.measured("limit-100", runs) as costs:
            one = await _drained(on, LIMITED, runs)
        with on.measured("limit-keys", runs) as more:
            many = await _drained(on, KEYED, runs)
    return Sample({"limit-100": runs / one, "limit-keys": runs / many}, {**costs, **more})


async def waiting(setup: Setup) -> Sample:
    """Memory with very many runs that wait for one limit, beyond as many that wait for a worker; then holders are
    cancelled one after the other, until the next run has its slot."""
    runs, admitted = setup.sizes.parked, setup.sizes.admitted
    async with environment(setup, worker_count=0) as on:
        await on.client.register(_definition(PLAIN))
        await _start(on, PLAIN, runs)
        await on.log.until(runs, names.TASKS)
        await asyncio.sleep(setup.sizes.idle_wait_s)
        plain = sum(on.memory_mb().values())
    async with environment(setup, worker_count=0) as on:
        await on.client.register(_definition(WAITING, concurrency=[{"limit": 1}]))
        with on.measured("limit-waiting", runs) as costs:
            await _start(on, WAITING, runs)
            await on.log.until(runs + 1)
            await _until_waiting(on, WAITING, runs - 1)
        await asyncio.sleep(setup.sizes.idle_wait_s)
        memory_mb = on.memory_mb()
        took = [await _admitted_s(on) for _ in range(admitted)]
    rows = {
        "limit-waiting": sum(memory_mb.values()) - plain,
        "limit-admit": percentile(sorted(took), 0.5) * 1000,
    }
    return Sample(rows, costs, memory_mb)


async def next_one(setup: Setup) -> Sample:
    """Steps of which one is carried out at a time: from the end of one to the start of the next, by the broker's
    clock."""
    runs = setup.sizes.latency
    step = {"id": "s", "task": TASK, "concurrency": [{"limit": 1}]}
    async with environment(setup, alone=True) as on:
        await on.client.register(msgspec.json.encode({"name": ALTERNATE, "steps": [step]}))
        before, scope = await on.log.messages(), f"{ALTERNATE}.s"
        await on.client.hold_back(scope)
        run_ids = await _start(on, ALTERNATE, runs)
        await _until_waiting(on, scope, runs)
        with on.measured("limit-next", runs) as costs:
            await on.client.let_go(scope)
            await on.log.until_quiet(before + runs * ONE_STEP)
        begun = sorted((await on.log.first_at(run_ids, STARTED)).values())
        ended = sorted((await on.log.first_at(run_ids, COMPLETED)).values())
    gaps = sorted(start - end for start, end in zip(begun[1:], ended, strict=False))
    if gaps[0] < 0:
        raise RuntimeError(f"two executions were out at a time for {-gaps[0] * 1000:.1f} ms")
    return Sample({"limit-next": percentile(gaps, 0.5) * 1000, "limit-next-p99": percentile(gaps, 0.99) * 1000}, costs)


async def rate(setup: Setup) -> Sample:
    """Steps that begin at a rate: how far the number of those that began in any second is from it, at most, while
    enough wait. Nothing begins before all of them wait, so that starting the runs is no part of it."""
    runs = int(RATE * setup.sizes.rated_s)
    step = {"id": "s", "task": TASK, "rate_limit": [{"limit": RATE, "per": "1s"}]}
    async with environment(setup, alone=True) as on:
        await on.client.register(msgspec.json.encode({"name": RATED, "steps": [step]}))
        await _drained(on, RATED, WARM)
        before, scope = await on.log.messages(), f"{RATED}.s"
        await on.client.hold_back(scope, "1s")
        run_ids = await _start(on, RATED, runs)
        await _until_waiting(on, scope, runs)
        with on.measured("rate-500", runs) as costs:
            await on.client.let_go(scope)
            await on.log.until_quiet(before + runs * ONE_STEP)
        begun = sorted((await on.log.first_at(run_ids, STARTED)).values())
    counts = _in_windows(begun)
    return Sample(
        {
            "rate-500": 100 * max(abs(count - RATE) for count in counts) / RATE,
            "rate-500-most": float(max(counts)),
        },
        costs,
    )


async def fair(setup: Setup) -> Sample:
    """One tenant has very many runs that wait for a limit, another one starts a few: how many runs begin until the last
    of these has."""
    runs = setup.sizes.waiting
    concurrency = [{"limit": TOGETHER, "fair_by": "input.tenant"}]
    async with environment(setup, alone=True) as on:
        await on.client.register(_definition(SHARED, concurrency=concurrency))
        before = await on.log.messages()
        await on.client.hold_back(SHARED)
        first = await _start(on, SHARED, runs, b'{"tenant":"a"}')
        await _until_waiting(on, SHARED, runs)
        await on.client.let_go(SHARED)
        second = await _start(on, SHARED, TURNS, b'{"tenant":"b"}')
        since = max((await on.log.first_at(second, "workflow.started")).values())
        await on.log.until_quiet(before + (runs + TURNS) * ONE_STEP)
        granted = await on.log.first_at([*first, *second], GRANTED)
    last = max(granted[run_id] for run_id in second)
    return Sample({"limit-fair": float(sum(since < at <= last for at in granted.values()))})


LIMIT_WORKLOADS: Mapping[str, Workload] = {
    "limit": Workload(limited),
    "limit-waiting": Workload(waiting, once=True),
    "limit-next": Workload(next_one),
    "rate-500": Workload(rate),
    "limit-fair": Workload(fair),
}


def _definition(name: str, **more: Any) -> bytes:
    return msgspec.json.encode({"name": name, "steps": [{"id": "s", "task": TASK}], **more})


async def _start(on: Environment, workflow: str, runs: int, value: bytes | None = None) -> list[str]:
    """Start so many runs, each with another number, or all with this input."""
    values = inputs(runs) if value is None else [value] * runs
    answers = [
        await on.client.start_all(workflow, values[at : at + REQUEST_RUNS]) for at in range(0, runs, REQUEST_RUNS)
    ]
    return [run_id for answer in answers for run_id in answer]


async def _drained(on: Environment, workflow: str, runs: int) -> float:
    """Seconds from the first request to the end of the last run."""
    before, begin = await on.log.messages(), time.time()
    run_ids, _ = await on.start_all(runs, workflow)
    await on.log.until_quiet(before + runs * ONE_STEP)
    return await on.log.completed_at(run_ids) - begin


async def _until_waiting(on: Environment, scope: str, runs: int) -> None:
    """Return when so many wait, by the limit's own word."""
    async with asyncio.timeout(SETTLED_S_MAX):
        while (await on.client.limit(scope)).waiting_total < runs:  # noqa: ASYNC110 - the service is asked
            await asyncio.sleep(LOOK_EVERY_S)


async def _admitted_s(on: Environment) -> float:
    """Cancel who holds the slot: seconds from its end in the log to the start of the next one."""
    holder = (await on.client.limit(WAITING)).holders[0].run_id
    async with on.log.followed() as live:
        await on.client.cancel(holder)
        async with asyncio.timeout(SETTLED_S_MAX):
            while (found := _granted(live.events, holder)) is None:  # noqa: ASYNC110 - only looked at
                await asyncio.sleep(0.001)
    return found


def _granted(events: Mapping[str, Sequence[Any]], holder: str) -> float | None:
    ended = [seen.at for seen in events.get(holder, ()) if seen.type == "workflow.cancelled"]
    granted = [seen.at for run_id, all_seen in events.items() for seen in all_seen if seen.type == GRANTED]
    return granted[0] - ended[0] if ended and granted else None


def _in_windows(times: Sequence[float]) -> list[int]:
    """How many there are in each span of a second, every LOOK_EVERY_S, from the first second on to the last."""
    found, at = list[int](), times[0] + WINDOW_S
    while at + WINDOW_S < times[-1] - WINDOW_S:
        found.append(bisect_left(times, at + WINDOW_S) - bisect_left(times, at))
        at += LOOK_EVERY_S
    return found or [bisect_left(times, end) - bisect_left(times, begin) for begin, end in pairwise(times[:2])]
