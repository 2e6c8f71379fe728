"""What is asked of a service that keeps very many runs which have ended. Sizes are in environment.py, targets in
targets.py."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from random import Random
from statistics import median

from penstock.broker.names import ARCHIVE

from .chain import definition
from .environment import STEPS, Cost, Environment, Setup, environment, environment_in
from .figures import percentile
from .samples import Sample, Workload, each
from .service import service

SAMPLED = 10  # runs of each workflow that are read
LOOK_S, STALLED_S, ARCHIVED_S_MAX = 0.1, 120.0, 3600.0
LOADED_PER_S_MIN = 600  # runs, on a slow machine
CALM_S = 5.0  # before each bulk
REST_S = 150.0  # after which the broker has let go of what it has read: trees of subjects after two minutes
BLOCK_BYTES = 512  # of a stat(2)


async def kept(setup: Setup) -> Sample:
    """Three-step runs of many workflows are loaded, one workflow after the other. Then the metrics are read, lists
    of runs with and without filters, and single runs, one after the other, and the same when the memory of the load has
    had time to go; then bulks beside those of an empty store; and in the end the service is started on that store once
    more."""
    with tempfile.TemporaryDirectory(dir=setup.directory) as name:
        directory = Path(name)
        async with environment_in(directory, setup) as on:
            chosen, costs, at_end = await _loaded(on, setup, setup.sizes.kept)
            loaded_at = time.monotonic()
            at_once = await _asked(on, setup, chosen)
            await asyncio.sleep(max(0.0, loaded_at + setup.sizes.kept_wait_s - time.monotonic()))
            memory_mb = on.memory_mb()
            disk_kb = disk_bytes(directory / "data") / _runs(setup, setup.sizes.kept) / 1000
            times = await _asked(on, setup, chosen)
            await asyncio.sleep(min(REST_S, setup.sizes.kept_wait_s))
            ratio, more = await _to_empty(on, setup)
        async with service(directory, setup.shards) as again:
            ready_s = again.ready_s
    rows = {
        **_percentiles(times),
        **_percentiles({f"kept-at-once-{name}": at_once[f"kept-{name}"] for name in ("list", "run")}),
        "kept-memory": at_end,
        "kept-memory-later": sum(memory_mb.values()),
        "kept-disk": disk_kb,
        "kept-bulk": ratio,
        "kept-start": ready_s,
    }
    return Sample(rows, {**costs, **more}, memory_mb)


async def kept_archived(setup: Setup) -> Sample:
    """As `kept`, with an `archive_after` that is as short as their load allows, whose messages are counted: from when
    the last run is due until all are archived; then lists and single runs, and in the end memory and disk."""
    after_s = max(setup.sizes.archive_after_s, setup.sizes.archived // LOADED_PER_S_MIN)
    with tempfile.TemporaryDirectory(dir=setup.directory) as name:
        directory = Path(name)
        async with environment_in(directory, setup, archive_after=f"{after_s}s") as on:
            runs, begun = _runs(setup, setup.sizes.archived), time.monotonic()
            chosen, _, _ = await _loaded(on, setup, setup.sizes.archived)
            due_at = time.monotonic() + after_s
            await asyncio.sleep(max(0.0, begun + after_s - time.monotonic()))
            with on.measured("kept-archived", runs) as costs:
                await _until_archived(on, runs)
            late_s = time.monotonic() - due_at
            archived_at = time.monotonic()
            times = {
                "kept-archived-list": await each(on.client.runs, iter(_queries(setup, Random(1))), 1),
                "kept-archived-run": await each(on.client.status, iter(chosen), 1),
            }
            await asyncio.sleep(max(0.0, archived_at + setup.sizes.kept_wait_s - time.monotonic()))
            memory_mb = on.memory_mb()
            disk_kb = disk_bytes(directory / "data") / runs / 1000
    rows = {
        **_percentiles(times),
        "kept-archived-late": late_s,
        "kept-archived-memory": sum(memory_mb.values()),
        "kept-archived-disk": disk_kb,
    }
    return Sample(rows, costs, memory_mb)


KEPT_WORKLOADS: Mapping[str, Workload] = {
    "kept": Workload(kept, once=True),
    "kept-archived": Workload(kept_archived, once=True),
}


def disk_bytes(directory: Path) -> int:
    """What the files under a directory take of the disk. A file that goes meanwhile counts nothing."""
    return sum(map(_disk_bytes, directory.rglob("*")))


def _disk_bytes(path: Path) -> int:
    try:
        return path.lstat().st_blocks * BLOCK_BYTES
    except FileNotFoundError:
        return 0


async def _loaded(on: Environment, setup: Setup, wanted: int) -> tuple[list[str], Mapping[str, Cost], float]:
    """Load the runs. Some of their ids, what they cost, and the memory of the service when the last has ended, in
    MB."""
    random, chosen, runs, names = Random(1), list[str](), _runs(setup, wanted), _names(setup)
    per_workflow = runs // len(names)
    for name in names:
        await on.client.register(definition(STEPS, name))
    with on.measured("kept", runs) as costs:
        for name in names:
            run_ids, _ = await on.drain(per_workflow, name)
            chosen += random.sample(run_ids, min(SAMPLED, len(run_ids)))
    at_end = sum(on.memory_mb().values())
    await _until_indexed(on, names[-1], per_workflow)
    random.shuffle(chosen)
    return chosen, costs, at_end


async def _asked(on: Environment, setup: Setup, chosen: list[str]) -> Mapping[str, list[float]]:
    """Seconds of each request, by what is asked."""
    return {
        "kept-metrics": await each(on.client.metrics, iter(range(setup.sizes.scrapes)), 1),
        "kept-list": await each(on.client.runs, iter(_queries(setup, Random(1))), 1),
        "kept-run": await each(on.client.status, iter(chosen), 1),
    }


async def _to_empty(on: Environment, setup: Setup) -> tuple[float, Mapping[str, Cost]]:
    """The rate of a bulk on the kept runs to one on an empty store, and what they cost: a new store for each of some
    pairs, of which the median counts. They begin in turn with the one and the other, as a machine may become slower
    while it is busy."""
    ratios, costs = list[float](), dict[str, Cost]()
    for number in range(setup.sizes.kept_pairs):
        full = partial(_bulk_per_s, on, setup, "kept-bulk", costs)
        if number % 2:
            ratios.append(await full() / await _empty_bulk_per_s(setup, costs))
        else:
            plain = await _empty_bulk_per_s(setup, costs)
            ratios.append(await full() / plain)
    return median(ratios), costs


async def _empty_bulk_per_s(setup: Setup, costs: dict[str, Cost]) -> float:
    async with environment(setup, alone=True) as empty:
        return await _bulk_per_s(empty, setup, "beside an empty store", costs)


async def _bulk_per_s(on: Environment, setup: Setup, row: str, costs: dict[str, Cost]) -> float:
    await asyncio.sleep(min(CALM_S, setup.sizes.kept_wait_s))
    with on.measured(row, setup.sizes.bulk) as cost:
        run_ids, begin = await on.drain(setup.sizes.bulk)
    costs |= cost
    return len(run_ids) / (await on.log.completed_at(run_ids) - begin)


async def _until_archived(on: Environment, runs: int) -> None:
    """Return once the archive has so many runs, and the history none."""
    async with asyncio.timeout(ARCHIVED_S_MAX):
        while await on.log.messages(ARCHIVE) < runs or await on.log.messages():  # noqa: ASYNC110 - the broker
            await asyncio.sleep(LOOK_S)


def _percentiles(times: Mapping[str, list[float]]) -> dict[str, float]:
    return {
        f"{name}-p{share}": percentile(took, share / 100) * 1000 for name, took in times.items() for share in (50, 99)
    }


def _runs(setup: Setup, wanted: int) -> int:
    """As many of each workflow, and at least one."""
    return max(1, wanted // setup.sizes.kept_workflows) * setup.sizes.kept_workflows


def _names(setup: Setup) -> list[str]:
    return [f"loadtest-kept-{number}" for number in range(setup.sizes.kept_workflows)]


def _queries(setup: Setup, random: Random) -> list[str]:
    """Lists with each filter in turn, of different workflows and times."""
    names = _names(setup)
    filters = ("", "status=completed", "status=failed", "workflow={}", "workflow={}&status=completed", "q=kept-{}")
    count = setup.sizes.listings
    return [f"{filters[at % len(filters)].format(random.choice(names))}&limit=100" for at in range(count)]


async def _until_indexed(on: Environment, workflow: str, count: int) -> None:
    """Return once the run index has the ends of a workflow's runs."""
    async with asyncio.timeout(STALLED_S):
        while await on.client.completed(workflow) < count:  # noqa: ASYNC110 - the service is asked
            await asyncio.sleep(LOOK_S)
