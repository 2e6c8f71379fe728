"""What the Python client costs: runs that `AsyncClient` starts and awaits, beside those of the client of the load,
which does nothing but HTTP. Sizes are in environment.py, targets in targets.py."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import islice
from statistics import median

from penstock import AsyncClient

from .chain import NAME, inputs
from .environment import Cost, Environment, Setup, environment
from .samples import Sample, Workload, each

USERS = 64
TURNS = 5
RESULT_S_MAX = 60.0

Run = Callable[[bytes], Awaitable[None]]


async def client(setup: Setup) -> Sample:
    """Runs of three steps, each started and awaited in one request, 64 at a time: in turns by the one client and by the
    other, and the median of how the two compare in a turn. Both have the same event loop and one thread."""
    runs = setup.sizes.clients
    values = iter(inputs((TURNS + 1) * 2 * runs))
    ratios, rates, costs = list[float](), list[float](), dict[str, Cost]()
    async with environment(setup) as on, AsyncClient(on.service.url) as ours:

        async def bare(value: bytes) -> None:
            await on.client.call(NAME, value)

        async def through(value: bytes) -> None:
            await ours.run(NAME, value).result(timeout=RESULT_S_MAX)

        for turn in range(TURNS + 1):
            plain = await _per_s(on, "bare-64", bare, islice(values, runs), runs, costs)
            rate = await _per_s(on, "client-64", through, islice(values, runs), runs, costs)
            if turn:  # the first one warms up
                ratios.append(rate / plain)
                rates.append(rate)
    return Sample({"client-64": median(ratios), "client-64-runs": median(rates)}, costs)


CLIENT_WORKLOADS: Mapping[str, Workload] = {"client": Workload(client)}


async def _per_s(
    on: Environment, row: str, do: Run, values: Iterator[bytes], runs: int, costs: dict[str, Cost]
) -> float:
    """Runs per second; what one of them cost is then in `costs`."""
    with on.measured(row, runs) as cost:
        begin = time.perf_counter()
        await each(do, values, USERS)
        spent_s = time.perf_counter() - begin
    costs |= cost
    return runs / spent_s
