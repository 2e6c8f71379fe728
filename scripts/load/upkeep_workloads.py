"""Workloads of what goes on beside runs: old ones are removed, traces are exported. Sizes are in environment.py,
targets in targets.py."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median

import msgspec

from penstock.engine.errors import Unavailable

from .chain import NAME, definition
from .environment import EVENTS_PER_RUN, STEPS, Environment, Setup, environment
from .log import StalledError
from .processes import cpu_s
from .samples import Sample, Workload

BESIDE = "loadtest-beside"  # its runs are not removed
REQUEST_RUNS = 1_000
LOOK_S, STALLED_S = 0.02, 60.0
TURNS = 4
SINK = Path(__file__).with_name("otlp_sink.py")


class _Pruned(msgspec.Struct):
    pruned: list[str]
    total: int
    remaining: int = 0
    next: str | None = None


async def prune(setup: Setup) -> Sample:
    """Runs that have completed are removed, 1,000 a request; then as many while a bulk goes on, which is compared with
    one beside which nothing happens."""
    count = setup.sizes.pruned
    async with environment(setup, alone=True) as on:
        await on.client.register(definition(STEPS, BESIDE))
        await _ended(on, count)
        with on.measured("prune", count) as costs:
            begin = time.perf_counter()
            removed = await _remove(on)
            took_s = time.perf_counter() - begin
        await _ended(on, count)
        alone_s, _ = await _bulk(on, count, removes=False)
        beside_s, more = await _bulk(on, count, removes=True)
    if min(removed, more) < count:
        raise RuntimeError(f"of {count} runs {removed} were removed, and then {more}")
    return Sample({"prune": removed / took_s, "prune-bulk": alone_s / beside_s}, costs)


async def otel(setup: Setup) -> Sample:
    """Bulks of two services in turns, one of which exports traces, metrics and log to a receiver: the median of how the
    CPU of their processes compares in a turn."""
    per_turn = max(1, setup.sizes.exported // TURNS)
    with _sink() as url:
        async with environment(setup, alone=True) as without, environment(setup, otlp_endpoint=url) as exporting:
            ratios = list[float]()
            for turn in range(TURNS):
                order = (without, exporting) if turn % 2 else (exporting, without)
                used = {one: await _used_s(one, per_turn) for one in order}
                ratios.append(used[exporting] / used[without])
    return Sample({"otel": median(ratios)})


UPKEEP_WORKLOADS: Mapping[str, Workload] = {"prune": Workload(prune), "otel": Workload(otel)}


async def _ended(on: Environment, count: int) -> None:
    """Return once the run index has so many runs that have completed."""
    before = await on.store.history.last_seq()
    await on.start_all(count)
    await _until(on, before + count * EVENTS_PER_RUN)
    begin = time.monotonic()
    while (found := await _asked(on, dry_run=True)).total + found.remaining < count:
        if time.monotonic() - begin > STALLED_S:
            raise StalledError(f"the index has {found.total + found.remaining} ended runs and not {count}")
        await asyncio.sleep(LOOK_S)


async def _remove(on: Environment) -> int:
    """Remove all that have completed; returns how many."""
    found = await _asked(on)
    removed = len(found.pruned)
    while found.next is not None:
        found = await _asked(on, cursor=found.next)
        removed += len(found.pruned)
    return removed


async def _asked(on: Environment, **more: object) -> _Pruned:
    wish = {"workflow_id": NAME, "status": "completed", "limit": REQUEST_RUNS, **more}
    return msgspec.json.decode(await on.client.prune(msgspec.json.encode(wish)), type=_Pruned)


async def _bulk(on: Environment, count: int, *, removes: bool) -> tuple[float, int]:
    """How long a bulk takes, in s, and how many other runs are removed meanwhile, each with one event."""
    before, begin = await on.store.history.last_seq(), time.time()
    removing = asyncio.create_task(_remove(on)) if removes else None
    run_ids, _ = await on.start_all(count, BESIDE)
    removed = 0 if removing is None else await removing
    await _until(on, before + count * EVENTS_PER_RUN + removed)
    return await on.log.all_completed_at(run_ids) - begin, removed


async def _until(on: Environment, seq: int) -> None:
    """Return when the log has had so many messages: what was removed counts, too."""
    begin, found = time.monotonic(), 0
    while found < seq:
        if time.monotonic() - begin > STALLED_S:
            raise StalledError(f"the log has had {found} messages and not {seq}")
        await asyncio.sleep(LOOK_S)
        with suppress(Unavailable):  # removals may keep the broker busy for seconds
            found = await on.store.history.last_seq()


async def _used_s(on: Environment, count: int) -> float:
    """The CPU of the service's processes for a bulk."""
    before = sum(map(cpu_s, on.service.roles.values()))
    await on.drain(count)
    return sum(map(cpu_s, on.service.roles.values())) - before


@contextmanager
def _sink() -> Iterator[str]:
    """The address of a receiver, a process of its own for the time of the block."""
    with subprocess.Popen([sys.executable, str(SINK)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()
