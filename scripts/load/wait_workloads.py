"""The workloads of what waits: calls, steps that wait for events, sleeps; and of expressions, which are evaluated when
a step begins. Sizes are in environment.py, targets in targets.py."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from statistics import median
from typing import Any, TypeVar

import msgspec

from penstock.broker import names
from penstock.config.limits import ACK_HELD_BACK_S, SNAPSHOT_AFTER_S
from penstock.worker import Worker

from .bulk import REQUEST_RUNS
from .chain import NAME, TASK, inputs
from .environment import STEPS, Cost, Environment, Setup, environment
from .figures import percentile
from .samples import Sample, Workload, each, idle

CALLED, WAITING, ASLEEP, EXPRESSIVE, BUSY = (
    f"loadtest-{name}" for name in ("called", "waiting", "asleep", "expressive", "busy")
)
EVENT = "loadtest-event"
USERS = 64
WARM = 10  # one in so many, before it counts
ALONE = 10  # one event in so many is sent alone
STEADY, STEADY_PER_S = 3, 1000  # one event in so many is sent at this rate
EVENTS_OF_WAKING = 2  # what ends the step, and the end of the run
ASLEEP_EVENTS = 3  # messages in the history of each run that sleeps: its start, the step's start, a schedule
FAR_S = 24 * 3600.0
DUE_WITHIN_MS = 1000
PAIRS = 6
MORE_US_MIN = 0.1  # less is noise

T = TypeVar("T")


async def call(setup: Setup) -> Sample:
    """Calls of a workflow of one step, one at a time and many at a time."""
    alone, many = setup.sizes.latency, setup.sizes.calls
    values = iter(inputs(2 * (alone + many)))
    async with environment(setup) as on:
        await on.client.register(_definition(CALLED, {"id": "s1", "task": TASK}))

        async def one(value: bytes) -> None:
            await on.client.call(CALLED, value)

        await each(one, islice(values, alone // WARM), 1)
        with on.measured("call-p50", alone) as costs:
            times = await each(one, islice(values, alone), 1)
        await each(one, islice(values, many // WARM), USERS)
        begin = time.perf_counter()
        with on.measured("call-64", many) as more:
            crowded = await each(one, islice(values, many), USERS)
        per_s = many / (time.perf_counter() - begin)
    rows = {**_percentiles("call", times), "call-64": per_s, "call-64-p50": percentile(crowded, 0.5) * 1000}
    return Sample(rows, {**costs, **more})


async def events(setup: Setup) -> Sample:
    """Runs that wait for events of one name, each with another value; then these events, some of them one at a time,
    some at a steady rate, the others many at a time. A run has moved when the broker has stored its next event."""
    runs = setup.sizes.waiting
    wait = {"event": EVENT, "correlate": {"field": "n", "value": "${{ input.n }}"}}
    sent: dict[str, float] = {}
    async with environment(setup, worker_count=0) as on:
        await on.client.register(_definition(WAITING, {"id": "w", "type": "wait_for_event", "config": wait}))
        with on.measured("waiting", runs) as costs:
            run_ids = await _start(on, WAITING, inputs(runs))
            await on.log.until(runs, names.bucket_stream(names.EVENT_WAITS))
        await asyncio.sleep(setup.sizes.left_s)

        async def send(pair: tuple[str, bytes]) -> None:
            sent[pair[0]] = time.time()
            await on.client.send_event(EVENT, pair[1])

        pairs = iter(zip(run_ids, inputs(runs), strict=True))
        alone, steady = runs // ALONE, runs // STEADY
        async with on.log.followed() as live:
            with on.measured("event-p50", alone) as slowly:
                for pair in islice(pairs, alone):
                    await send(pair)
                    await live.watch(pair[0])
        before = await on.log.messages()
        with on.measured("event-steady", steady) as steadily:
            await _at_rate(send, islice(pairs, steady), STEADY_PER_S)
            await on.log.until(before + EVENTS_OF_WAKING * steady)
        many = runs - alone - steady
        with on.measured("events-64", many) as quickly:
            begin = time.time()
            await each(send, pairs, USERS)
            await on.log.until(before + EVENTS_OF_WAKING * (steady + many))
        moved = await on.log.first_at(run_ids, "event.received")
    took = [moved[run_id] - sent[run_id] for run_id in run_ids]
    rows = {
        **_percentiles("event", sorted(took[:alone])),
        **_percentiles("event-steady", sorted(took[alone : alone + steady])),
        "events-64": many / (max(moved.values()) - begin),
    }
    return Sample(rows, {**costs, **slowly, **steadily, **quickly})


async def asleep(setup: Setup) -> Sample:
    """Memory and idle CPU with runs that sleep for long; then more of them, whose times come within one second. Late is
    from a run's time to the broker's time of storing its end."""
    runs, due = setup.sizes.parked, setup.sizes.due
    config = {"until": "${{ input.n }}"}
    async with environment(setup, worker_count=0) as on:
        await on.client.register(_definition(ASLEEP, {"id": "s", "type": "sleep", "config": config}))
        with on.measured("asleep-100k", runs) as costs:
            await _start(on, ASLEEP, _times(runs, time.time() + FAR_S))
            await on.log.until(ASLEEP_EVENTS * runs)
        await asyncio.sleep(setup.sizes.idle_wait_s)
        memory_mb = on.memory_mb()
        quiet = await idle(on, "idle-asleep", setup.sizes.idle_s)
        times = _times(due, time.time() + setup.sizes.left_s)
        before = await on.log.messages()
        run_ids = await _start(on, ASLEEP, times)
        await asyncio.sleep(_at(times[0]) - time.time())
        with on.measured("asleep-p99", due) as waking:
            await on.log.until(before + (ASLEEP_EVENTS - 1 + EVENTS_OF_WAKING) * due)  # the schedules are gone then
        ends = await on.log.first_at(run_ids, "workflow.completed")
        woken = await on.log.first_at(run_ids, "timer.fired")
    rows = {
        "asleep-100k": sum(memory_mb.values()),
        **quiet.rows,
        "asleep-p99": percentile(_late(run_ids, times, ends), 0.99) * 1000,
        "asleep-timer": percentile(_late(run_ids, times, woken), 0.99) * 1000,
    }
    return Sample(rows, {**costs, **quiet.costs, **waking}, memory_mb)


async def expressions(setup: Setup) -> Sample:
    """The same steps with and without a condition and an input of their own, in turns: how much more CPU they need."""
    runs = setup.sizes.expressions
    async with environment(setup) as on:
        await on.client.register(_definition(EXPRESSIVE, *map(_expressive, range(1, STEPS + 1))))
        await on.drain(runs, EXPRESSIVE)
        pairs = [(await _cost(on, NAME, runs), await _cost(on, EXPRESSIVE, runs)) for _ in range(PAIRS)]
    without, beside = (sorted(arm, key=_all) for arm in zip(*pairs, strict=True))
    more = median(_all(other) - _all(plain) for plain, other in pairs) / STEPS
    costs = {"plain": without[PAIRS // 2], "expressions": beside[PAIRS // 2]}
    return Sample({"expressions": max(MORE_US_MIN, more)}, costs)


async def explained(setup: Setup) -> Sample:
    """Why runs wait, asked of one after the other, while very many wait: for a worker that there is none of, or in a
    queue whose only worker is busy."""
    runs, asked = setup.sizes.parked, setup.sizes.explained
    async with environment(setup, worker_count=0) as on:
        await on.client.register(_definition(BUSY, {"id": "s", "task": BUSY}))
        async with _held_worker(on, BUSY) as begun:
            run_ids = await _start(on, NAME, [b'{"n":1}'] * (runs // 2))
            run_ids += await _start(on, BUSY, [b"1"] * (runs - runs // 2))
            await on.log.until(runs, names.TASKS)
            await begun.wait()
            await asyncio.sleep(
                SNAPSHOT_AFTER_S + ACK_HELD_BACK_S
            )  # else the snapshots of all of them are on their way
            chosen = run_ids[:: max(1, runs // asked)]
            with on.measured("explain", len(chosen)) as costs:
                times = await each(on.client.explain, iter(chosen), 1)
    return Sample(_percentiles("explain", times), costs)


@asynccontextmanager
async def _held_worker(on: Environment, task: str) -> AsyncIterator[asyncio.Event]:
    """A worker with one slot that begins a task and holds it, for the time of the block. Yields what is set then."""
    worker, begun = Worker(broker_url=on.service.broker_url, max_tasks=1, grace_s=0), asyncio.Event()

    @worker.task(task)
    async def hold(value: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with worker.running():
        yield begun


WAIT_WORKLOADS: Mapping[str, Workload] = {
    "call": Workload(call),
    "events": Workload(events),
    "asleep-100k": Workload(asleep, once=True),
    "explain": Workload(explained, once=True),
    "expressions": Workload(expressions),
}


def _definition(name: str, *steps: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode({"name": name, "steps": steps})


def _expressive(number: int) -> dict[str, Any]:
    """A step like that of the chain, which says what it would do anyway."""
    before = "input" if number == 1 else f"steps.s{number - 1}.output"
    step = {"id": f"s{number}", "task": TASK, "when": f"{before}.n >= 0", "with": {"n": f"${{{{ {before}.n }}}}"}}
    return step if number == 1 else {**step, "depends_on": [f"s{number - 1}"]}


async def _start(on: Environment, workflow: str, values: Sequence[bytes]) -> list[str]:
    """Start a run with each of these inputs; ids in their order."""
    requests = range(0, len(values), REQUEST_RUNS)
    answers = [await on.client.start_all(workflow, values[at : at + REQUEST_RUNS]) for at in requests]
    return [run_id for answer in answers for run_id in answer]


async def _at_rate(do: Callable[[T], Awaitable[None]], items: Iterator[T], per_s: int) -> None:
    """Begin it with so many of the items a second, however long each takes."""
    begin = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number, item in enumerate(items):
            await asyncio.sleep(begin + number / per_s - time.perf_counter())
            group.create_task(do(item))


def _percentiles(row: str, times: Sequence[float]) -> dict[str, float]:
    return {f"{row}-p50": percentile(times, 0.5) * 1000, f"{row}-p99": percentile(times, 0.99) * 1000}


def _times(count: int, first: float) -> list[bytes]:
    """Inputs of runs that sleep until times within DUE_WITHIN_MS from the first one (s since the epoch) on."""
    return [b'{"n":%d}' % (first * 1000 + number * DUE_WITHIN_MS / count) for number in range(count)]


def _at(value: bytes) -> float:
    return float(msgspec.json.decode(value)["n"] / 1000)


def _late(run_ids: Sequence[str], values: Sequence[bytes], seen: Mapping[str, float]) -> list[float]:
    """By how many seconds the time of each run was over, in ascending order."""
    return sorted(seen[run_id] - _at(value) for run_id, value in zip(run_ids, values, strict=True))


async def _cost(on: Environment, workflow: str, runs: int) -> Cost:
    with on.measured(workflow, runs) as costs:
        await on.drain(runs, workflow)
    return costs[workflow]


def _all(cost: Cost) -> float:
    return sum(cost.cpu_us.values())
