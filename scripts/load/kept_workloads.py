"""What is asked of a service that keeps very many runs which have ended. Sizes are in environment.py, targets in
targets.py."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random

from .chain import definition
from .environment import STEPS, Environment, Setup, environment
from .figures import percentile
from .samples import Sample, Workload, each

WORKFLOWS = 100
SAMPLED = 10  # runs of each workflow that are read
LOOK_S, STALLED_S = 0.1, 120.0


async def kept(setup: Setup) -> Sample:
    """Three-step runs of a hundred workflows are loaded, one workflow after the other. Then the metrics are read, lists
    of runs with and without filters, and single runs, one after the other."""
    sizes, random = setup.sizes, Random(1)
    per_workflow, chosen = max(1, sizes.kept // WORKFLOWS), list[str]()
    async with environment(setup) as on:
        for name in _names():
            await on.client.register(definition(STEPS, name))
        with on.measured("kept", per_workflow * WORKFLOWS) as costs:
            for name in _names():
                run_ids, _ = await on.drain(per_workflow, name)
                chosen += random.sample(run_ids, min(SAMPLED, len(run_ids)))
        at_end = sum(on.memory_mb().values())
        await _until_indexed(on, _names()[-1], per_workflow)
        times = {
            "kept-metrics": await each(on.client.metrics, iter(range(sizes.scrapes)), 1),
            "kept-list": await each(on.client.runs, iter(_queries(sizes.listings, random)), 1),
            "kept-run": await each(on.client.status, iter(random.sample(chosen, len(chosen))), 1),
        }
        memory_mb = on.memory_mb()
    rows = {
        f"{name}-p{share}": percentile(sorted(took), share / 100) * 1000
        for name, took in times.items()
        for share in (50, 99)
    }
    return Sample({**rows, "kept-memory": at_end}, costs, memory_mb)


KEPT_WORKLOADS: Mapping[str, Workload] = {"kept": Workload(kept, once=True)}


def _names() -> list[str]:
    return [f"loadtest-kept-{number}" for number in range(WORKFLOWS)]


def _queries(count: int, random: Random) -> list[str]:
    """Lists with each filter in turn, of different workflows and times."""
    filters = ("", "status=completed", "status=failed", "workflow={}", "workflow={}&status=completed", "q=kept-{}")
    return [f"{filters[at % len(filters)].format(random.choice(_names()))}&limit=100" for at in range(count)]


async def _until_indexed(on: Environment, workflow: str, count: int) -> None:
    """Return once the run index has the ends of a workflow's runs."""
    async with asyncio.timeout(STALLED_S):
        while await on.client.completed(workflow) < count:  # noqa: ASYNC110 - the service is asked
            await asyncio.sleep(LOOK_S)
