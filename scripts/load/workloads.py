"""The workloads: each function runs one once, in an environment of its own, and returns its rows. Sizes are in
environment.py, targets in targets.py; those of maps and children are in map_workloads.py.

Ratios are of two runs that directly follow each other, so that a machine that gets slower hits both.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

from penstock.broker import names, record_keys

from .burst import EVENTS as BURST_EVENTS
from .burst import NAME as BURST
from .burst import OK, looks, looks_until, register
from .chain import NAME, inputs
from .client_workloads import CLIENT_WORKLOADS
from .console_workloads import CONSOLE_WORKLOADS
from .control_workloads import CONTROL_WORKLOADS
from .counts import Counts
from .dev_workloads import DEV_WORKLOADS
from .environment import EVENTS_PER_RUN, Environment, Setup, environment, environment_in
from .figures import percentile
from .index_workloads import INDEX_WORKLOADS
from .kept_workloads import KEPT_WORKLOADS
from .key_workloads import KEY_WORKLOADS
from .limit_workloads import LIMIT_WORKLOADS
from .live_workloads import LIVE_WORKLOADS
from .log import STARTED, Live, Seen, seconds_of
from .map_workloads import MAP_WORKLOADS
from .modes import Plan, closed_loop
from .publishes import publishes
from .recovery_workloads import RECOVERY_WORKLOADS
from .samples import Sample, Workload, idle, merged
from .scale_workloads import SCALE_WORKLOADS
from .service import service
from .shape_workloads import SHAPE_WORKLOADS
from .upkeep_workloads import UPKEEP_WORKLOADS
from .wait_workloads import WAIT_WORKLOADS
from .watching import Watch, watch

WARM_CLOSED = 10  # one in so many runs, before it counts
CLOSED_S_MAX = 300.0
CLOSED_WATCH = "wait"
USERS = (16, 64)
SENDERS = 64
LAG_S_MIN = 0.001  # the resolution of the header
SCHEDULED_PER_S = 500  # what any machine accepts


async def bulk(setup: Setup) -> Sample:
    """Meanwhile a list is asked for now and then: it says how far its index is behind."""
    async with environment(setup) as on, asyncio.TaskGroup() as group:
        running = group.create_task(_bulk(on, "bulk", setup.sizes.bulk))
        lags = [look.lag_s async for look in looks_until(on.client, running.done) if look.lag_s is not None]
        found = await running
    return found._replace(rows={**found.rows, "bulk-lag": max([*lags, LAG_S_MIN])})


async def queued(setup: Setup) -> Sample:
    """More runs wait than the engine has in memory as they are."""
    async with environment(setup) as on:
        few = await _bulk(on, "few", setup.sizes.bulk)
    async with environment(setup) as on:
        many = await _bulk(on, "bulk-queue", setup.sizes.queued)
    return Sample({"bulk-queue": many.rows["bulk-queue"] / few.rows["few"]}, many.costs)


async def fsync_always(setup: Setup) -> Sample:
    async with environment(setup, fsync="always") as on:
        return await _bulk(on, "fsync-always", setup.sizes.fsync)


async def two_shards(setup: Setup) -> Sample:
    async with environment(setup, shards=1) as on:
        one = await _bulk(on, "one shard", setup.sizes.bulk)
    async with environment(setup, shards=2) as on:
        two = await _bulk(on, "two shards", setup.sizes.bulk)
    return Sample({"two-shards": two.rows["two shards"] / one.rows["one shard"]}, {**one.costs, **two.costs})


async def bulk_on_full(setup: Setup) -> Sample:
    """The full store is made once; every repeat gets a copy of it."""
    full = await _full_store(setup)
    async with environment(setup) as on:
        empty = await _bulk(on, "empty", setup.sizes.bulk)
    async with environment(setup, data=full) as on:
        found = await _bulk(on, "bulk-on-50k", setup.sizes.bulk)
    return Sample({"bulk-on-50k": found.rows["bulk-on-50k"] / empty.rows["empty"]}, found.costs)


async def accept(setup: Setup) -> Sample:
    """From the first request to the last answer; afterwards every start must be in the log."""
    runs = setup.sizes.accept
    async with environment(setup, worker_count=0) as on:
        with on.measured("bulk-accept", runs) as costs:
            _, counts = await on.start_all(runs)
        await on.log.until(runs)
    return Sample({"bulk-accept": runs / (counts.accepted_at - counts.begin)}, costs)


async def latency(setup: Setup) -> Sample:
    """One run at a time; its end is seen by following the log, its steps are timed by the broker's own clock. Bare
    publishes come before and after."""
    runs = setup.sizes.latency
    async with environment(setup) as on, on.log.followed() as live, publishes(on.service.broker_url) as bare:
        await _one_by_one(on, live, runs // WARM_CLOSED)
        live.events.clear()
        await bare.measure(runs)
        with on.measured("latency", runs) as costs:
            posts, ends = await _one_by_one(on, live, runs)
        await bare.measure(runs)
        publish_s = percentile(sorted(bare.times), 0.5)
        gaps = sorted(gap for events in live.events.values() for gap in _gaps(events))
    rows = {
        "latency-p50": percentile(ends, 0.5) * 1000,
        "latency-p99": percentile(ends, 0.99) * 1000,
        "latency-post": percentile(posts, 0.5) * 1000,
        "latency-publishes": percentile(ends, 0.5) / publish_s,
        "publish": publish_s * 1000,
        "step-to-step": percentile(gaps, 0.5) * 1000,
    }
    return Sample(rows, costs)


async def closed(setup: Setup) -> Sample:
    """All over HTTP; and once more with ends seen in the log, which shows what the wait over HTTP costs."""
    async with environment(setup) as on:
        samples = [
            await _loop(on, f"closed-{users}", setup.sizes.closed, users, watch(CLOSED_WATCH, on.client))
            for users in USERS
        ]
        async with on.log.followed() as live:
            samples += [
                await _loop(on, f"closed-{users}-log", setup.sizes.closed, users, live.watch) for users in USERS
            ]
    return Sample(merged(sample.rows for sample in samples), merged(sample.costs for sample in samples))


async def bridge(setup: Setup) -> Sample:
    """Latency and a closed loop, with a worker that polls and resolves over HTTP; the loop also with ends seen in the
    log."""
    runs = setup.sizes.bridge
    async with environment(setup, bridge=True) as on:
        async with on.log.followed() as live:
            await _one_by_one(on, live, runs // WARM_CLOSED)
            with on.measured("bridge-p50", runs // 2) as costs:
                _, ends = await _one_by_one(on, live, runs // 2)
            logged = await _loop(on, "bridge-16-log", runs, USERS[0], live.watch)
        loop = await _loop(on, "bridge-16", runs, USERS[0], watch(CLOSED_WATCH, on.client))
    rows = {"bridge-p50": percentile(ends, 0.5) * 1000, **loop.rows, **logged.rows}
    return Sample(rows, {**costs, **loop.costs, **logged.costs})


async def parked(setup: Setup) -> Sample:
    return await _parked(setup, "100k", setup.sizes.parked)


async def parked_twice_as_many(setup: Setup) -> Sample:
    return await _parked(setup, "200k", 2 * setup.sizes.parked)


async def parked_and_bound(setup: Setup) -> Sample:
    """Each run has what a worker leaves behind that took a step of it and has not come back."""
    runs = setup.sizes.parked // 5
    async with environment(setup, worker_count=0) as on:
        run_ids, _ = await on.start_all(runs)
        await on.log.until(runs, names.TASKS)
        for run_id in run_ids:
            await on.store.publisher.room()
            on.store.sticky_bindings.send(run_id, b"bench")
            on.store.checkpoints.send(record_keys.step_key(run_id, "s1"), b"{}")
        await asyncio.sleep(setup.sizes.idle_wait_s)
        return await idle(on, "idle-bound", setup.sizes.idle_s)


async def burst(setup: Setup) -> Sample:
    """A service that does not say how far its index is behind has no row of that."""
    runs = setup.sizes.burst
    async with environment(setup) as on:
        await register(on.client, "soft")
        with on.measured("burst", runs) as costs:
            begin = time.monotonic()
            async with asyncio.TaskGroup() as group:
                starting = group.create_task(on.start_all(runs, BURST))
                seen = [look async for look in looks(on.client, starting.done)]
            drained_s = time.monotonic() - begin
    rows = {
        "burst": runs / drained_s,
        "burst-answered": 100 * sum(look.status == OK for look in seen) / len(seen),
        "burst-slowest": 1000 * max(look.took_s for look in seen),
    }
    if lags := [look.lag_s for look in seen if look.lag_s is not None]:
        rows["burst-lag"] = max([*lags, LAG_S_MIN])
    return Sample(rows, costs)


async def sticky(setup: Setup) -> Sample:
    """The same burst twice, its steps for the worker that began their run, and for anybody: how much longer the first
    one takes."""
    runs, took_s, costs = setup.sizes.burst, {}, {}
    for name, kind in (("anybody", None), ("sticky", "soft")):
        async with environment(setup) as on:
            await register(on.client, kind)
            before = await on.log.messages()
            with on.measured(name, runs) as cost:
                begin = time.time()
                run_ids, _ = await on.start_all(runs, BURST)
                await on.log.until(before + runs * BURST_EVENTS)
                took_s[name] = await on.log.all_completed_at(run_ids) - begin
            costs |= cost
    return Sample({"sticky": took_s["sticky"] / took_s["anybody"]}, costs)


async def killed(setup: Setup) -> Sample:
    """The worker lives on. Nothing is lost: in the end all runs must have completed."""
    runs = setup.sizes.killed
    with tempfile.TemporaryDirectory(dir=setup.directory) as name:
        async with environment_in(Path(name), setup, worker_count=1) as on:
            before = await on.log.messages()
            run_ids, _ = await on.start_all(runs)
            killed_at = time.time()
            on.service.kill()
            async with service(Path(name), ports=on.service.ports):
                ready_s = time.time() - killed_at
                await on.log.until_quiet(before + runs * EVENTS_PER_RUN)
                await on.log.completed_at(run_ids)
                moved_at = await on.log.moved_on_at(run_ids, killed_at)
    return Sample({"killed-ready": ready_s, "killed-moving": moved_at[-1] - killed_at})


async def start(setup: Setup) -> Sample:
    async with environment(setup, worker_count=0) as on:
        return Sample({"start": on.service.ready_s}, memory_mb=on.memory_mb())


async def scheduled(setup: Setup) -> Sample:
    """Lateness is from the instant to the broker's time of storing the start; afterwards all must complete."""
    runs = setup.sizes.scheduled
    async with environment(setup) as on:
        before, instant = await on.log.messages(), datetime.now(UTC) + timedelta(seconds=3 + runs / SCHEDULED_PER_S)
        with on.measured("scheduled-p99", runs) as costs:
            begin = time.perf_counter()
            run_ids = await _schedule(on, runs, instant)
            accepted_s = time.perf_counter() - begin
            left_s = (instant - datetime.now(UTC)).total_seconds()
            if left_s <= 0:
                raise RuntimeError(f"scheduling {runs} runs took {-left_s:.1f} s too long")
            await asyncio.sleep(left_s)
            await on.log.until_quiet(before + runs * (1 + EVENTS_PER_RUN))
        await on.log.completed_at(run_ids)
        late = sorted(at - instant.timestamp() for at in (await on.log.first_at(run_ids, STARTED)).values())
    return Sample({"scheduled-p99": percentile(late, 0.99) * 1000, "scheduled-accept": runs / accepted_s}, costs)


WORKLOADS: Mapping[str, Workload] = {
    "start": Workload(start),
    "bulk": Workload(bulk),
    "bulk-accept": Workload(accept),
    "latency": Workload(latency),
    "closed": Workload(closed),
    "bridge": Workload(bridge),
    "bulk-on-50k": Workload(bulk_on_full),
    "bulk-queue": Workload(queued, once=True),
    "two-shards": Workload(two_shards),
    "fsync-always": Workload(fsync_always),
    "parked-100k": Workload(parked, once=True),
    "parked-200k": Workload(parked_twice_as_many, once=True),
    "parked-bound": Workload(parked_and_bound, once=True),
    "killed": Workload(killed),
    "scheduled": Workload(scheduled),
    "burst": Workload(burst),
    "sticky": Workload(sticky),
    **MAP_WORKLOADS,
    **WAIT_WORKLOADS,
    **CLIENT_WORKLOADS,
    **DEV_WORKLOADS,
    **INDEX_WORKLOADS,
    **RECOVERY_WORKLOADS,
    **KEPT_WORKLOADS,
    **SHAPE_WORKLOADS,
    **SCALE_WORKLOADS,
    **CONTROL_WORKLOADS,
    **LIVE_WORKLOADS,
    **CONSOLE_WORKLOADS,
    **KEY_WORKLOADS,
    **LIMIT_WORKLOADS,
    **UPKEEP_WORKLOADS,
}


async def _bulk(on: Environment, row: str, runs: int) -> Sample:
    with on.measured(row, runs) as costs:
        run_ids, begin = await on.drain(runs)
    return Sample({row: runs / (await on.log.completed_at(run_ids) - begin)}, costs)


async def _parked(setup: Setup, size: str, runs: int) -> Sample:
    """Memory and idle CPU after every task is queued and the actors have had the time to leave."""
    row = f"parked-{size}"
    async with environment(setup, worker_count=0) as on:
        with on.measured(row, runs) as costs:
            await on.start_all(runs)
            await on.log.until(runs, names.TASKS)
        await asyncio.sleep(setup.sizes.idle_wait_s)
        memory_mb = on.memory_mb()
        quiet = await idle(on, f"idle-{size}", setup.sizes.idle_s)
    return Sample({row: sum(memory_mb.values()), **quiet.rows}, {**costs, **quiet.costs}, memory_mb)


async def _schedule(on: Environment, runs: int, instant: datetime) -> list[str]:
    """Schedule the runs by one request each."""
    values, run_ids = iter(inputs(runs)), list[str]()

    async def sender() -> None:
        for value in values:
            run_ids.append(await on.client.start(NAME, value, instant.isoformat()))

    await asyncio.gather(*(sender() for _ in range(SENDERS)))
    return run_ids


async def _full_store(setup: Setup) -> Path:
    """A data directory with finished runs, as a service left it that was stopped in peace."""
    kept = setup.directory / "full"
    if not kept.exists():
        kept.mkdir()
        async with environment_in(kept, setup) as on:
            run_ids, _ = await on.drain(setup.sizes.full)
            await on.log.completed_at(run_ids)
    return kept / "data"


async def _loop(on: Environment, row: str, runs: int, concurrency: int, seen: Watch) -> Sample:
    await _users(on, runs // WARM_CLOSED, concurrency, seen)
    with on.measured(row, runs) as costs:
        counts = await _users(on, runs, concurrency, seen)
    return Sample({row: runs / (counts.last - counts.begin)}, costs)


async def _users(on: Environment, runs: int, concurrency: int, seen: Watch) -> Counts:
    plan = Plan(mode="closed", runs=runs, rate=0, concurrency=concurrency, duration_s=CLOSED_S_MAX)
    counts = Counts(runs)
    await closed_loop(on.client, plan, counts, seen)
    if counts.ended != {"completed": runs}:
        raise RuntimeError(f"of {runs} runs {dict(counts.ended)}, errors {dict(counts.errors)}")
    return counts


async def _one_by_one(on: Environment, live: Live, runs: int) -> tuple[list[float], list[float]]:
    """Seconds to the answers and to the ends, each in ascending order."""
    posts, ends = [], []
    for number in range(runs):
        begin = time.perf_counter()
        run_id = await on.client.start(NAME, b'{"n":%d}' % number)
        posts.append(time.perf_counter() - begin)
        await live.watch(run_id)
        ends.append(time.perf_counter() - begin)
    return sorted(posts), sorted(ends)


def _gaps(events: Sequence[Seen]) -> list[float]:
    """Seconds from each step.completed to the start of the next step, which its answer tells."""
    answers = [seen for seen in events if seen.type == "step.completed"]
    begun = [(seen.at, after.started_at) for seen, after in pairwise(answers)]
    return [seconds_of(started_at) - completed for completed, started_at in begun if started_at is not None]
