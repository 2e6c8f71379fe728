"""What a shard process more is worth, where the shards are what limits the service. Sizes are in environment.py,
targets in targets.py.

On a machine with few cores, broker and worker need the rest of it. So each shard process gets a small share of a core,
as many as there are, and everything else what it takes.
"""

from __future__ import annotations

from collections.abc import Mapping

from .environment import Cost, Environment, Setup, environment
from .quota import quota
from .samples import Sample, Workload

SHARDS = (1, 2, 4)
SHARE = 0.15  # of a core: with less, a shard with a backlog may not renew its lease in time on a slow machine
SHARD = "shard-"  # what their roles begin with


async def scaling(setup: Setup) -> Sample:
    """Bulks of as many runs for each shard process, with 1, 2 and 4 of them. How much of their shares they have used,
    at least, says whether they were what limited it."""
    per_s, costs = dict[int, float](), dict[str, Cost]()
    for shards in SHARDS:
        row, runs = f"scaling-{shards}", setup.sizes.scaled * shards
        async with environment(setup, shards=shards) as on:
            with quota(_pids(on), SHARE), on.measured(row, runs) as cost:
                run_ids, begin = await on.drain(runs)
            # A shard that has to wait looks as if nothing happened any more.
            per_s[shards] = runs / (await on.log.all_completed_at(run_ids) - begin) / shards
        costs |= cost
    one = per_s[SHARDS[0]]
    used = min(_used(costs[f"scaling-{shards}"], rate * shards) for shards, rate in per_s.items())
    rows = {f"scaling-{many}": per_s[many] / one for many in SHARDS[1:]}
    return Sample({"scaling-1": one, **rows, "scaling-used": used}, costs)


SCALE_WORKLOADS: Mapping[str, Workload] = {"scaling": Workload(scaling)}


def _pids(on: Environment) -> list[int]:
    return [pid for role, found in on.service.roles.items() if role.startswith(SHARD) for pid in found]


def _used(cost: Cost, runs_per_s: float) -> float:
    """What the shard processes used of their shares, in %."""
    used = [us for role, us in cost.cpu_us.items() if role.startswith(SHARD)]
    return sum(used) / 1e6 * runs_per_s / (SHARE * len(used)) * 100
