"""What a step costs in runs of other shapes than the chain of three. Sizes are in environment.py, targets in
targets.py."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from .bulk import REQUEST_RUNS
from .chain import TASK, definition, inputs
from .environment import STEPS, Environment, Setup, environment
from .samples import Sample, Workload

SHORT, LONG, WIDE = "loadtest-short", "loadtest-long", "loadtest-wide"
CHAINED, PARALLEL = 64, 200
DIAMOND = PARALLEL + 2  # its steps
INPUT_BYTES = 64 * 1024
LARGE_AT_ONCE = 16  # inputs in a request
RUN_EVENTS, STEP_EVENTS = 2, 1  # at least
WARM = 20  # one run in so many, before it counts


async def shapes(setup: Setup) -> Sample:
    """About as many steps each time: in chains of three, in longer ones, in diamonds, and in chains of three whose
    input, and every output, is large."""
    steps = setup.sizes.shaped
    async with environment(setup) as on:
        await on.client.register(definition(STEPS, SHORT))
        await on.client.register(definition(CHAINED, LONG))
        await on.client.register(_diamond())
        small, large = inputs(1)[0], msgspec.json.encode("x" * INPUT_BYTES)
        costs = {}
        for row, name, size, value in (
            ("shape-3", SHORT, STEPS, small),
            ("shape-64", LONG, CHAINED, small),
            ("shape-200", WIDE, DIAMOND, small),
            ("shape-64k", SHORT, STEPS, large),
        ):
            runs = max(1, steps // size)
            await _ended(on, name, max(1, runs // WARM), size, value)
            with on.measured(row, runs * size) as more:
                await _ended(on, name, runs, size, value)
            costs |= more
    each = {row: on.service_us(cost) for row, cost in costs.items()}
    return Sample({row: cost / each["shape-3"] for row, cost in each.items() if row != "shape-3"}, costs)


SHAPE_WORKLOADS: Mapping[str, Workload] = {"shapes": Workload(shapes)}


def _diamond() -> bytes:
    """One step, many that depend on it, and one that depends on all of them."""
    middle = [{"id": f"p{at}", "task": TASK, "depends_on": ["first"]} for at in range(PARALLEL)]
    last = {"id": "last", "task": TASK, "depends_on": [one["id"] for one in middle]}
    return msgspec.json.encode({"name": WIDE, "steps": [{"id": "first", "task": TASK}, *middle, last]})


async def _ended(on: Environment, name: str, runs: int, steps: int, value: bytes) -> None:
    """Start runs with this input, and return when the log says that all have ended."""
    before = await on.log.messages()
    at_once = REQUEST_RUNS if len(value) < INPUT_BYTES else LARGE_AT_ONCE
    for begin in range(0, runs, at_once):
        await on.client.start_all(name, [value] * min(at_once, runs - begin))
    await on.log.until_quiet(before + runs * (RUN_EVENTS + steps * STEP_EVENTS))
