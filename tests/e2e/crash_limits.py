"""What runs with limits do while a process dies: see crash_scenarios.py."""

from __future__ import annotations

from penstock.broker import names
from penstock.engine.limits.fold import fold
from penstock.engine.limits.names import LimitKind, LimitName
from penstock.engine.limits.records import Released, decode
from penstock.engine.limits.state import LimitState
from tests.e2e.crash_scenarios import Meanwhile, Scenario, all_ended, registered, step
from tests.support.crashing import World

RUNS = 9
RELEASES = 1200  # so much that nobody needs makes the log too long


def limited(meanwhile: Meanwhile | None = None) -> Scenario:
    """Runs take a slot of two limits, one of runs and one of executions; `meanwhile` something happens."""

    async def scenario(world: World, name: str) -> object:
        await registered(world, name, step("crash.echo", concurrency=[{"limit": 2}]), concurrency=[{"limit": 3}])
        answer = await world.ask("POST", "/runs/bulk", json={"workflow_id": name, "inputs": list(range(RUNS))})
        if meanwhile is not None:
            await meanwhile(world, answer.json()["run_ids"][0])
        await all_ended(world, name, RUNS)
        limits = (LimitName(LimitKind.EXECUTIONS, f"{name}.s0"), LimitName(LimitKind.RUNS, name))
        return [await _most_held(world, limit) for limit in limits]

    return scenario


async def shortened(world: World, name: str) -> None:
    """The log of a limit becomes too long while runs wait for it."""
    limit = LimitName(LimitKind.EXECUTIONS, f"{name}.s0")
    await registered(world, name, step("crash.echo", concurrency=[{"limit": 1}]))
    for number in range(RELEASES):
        answer = await world.store.limit_log.release(limit.id, Released(holder=f"nobody.{number}"))
    await answer
    await world.ask("POST", "/runs/bulk", json={"workflow_id": name, "inputs": list(range(RUNS))})
    await all_ended(world, name, RUNS)


async def _most_held(world: World, limit: LimitName) -> int:
    """How many held a slot at once by the log."""
    state, most = LimitState(), 0
    async for page in world.store.limit_log.stored(names.partition(limit.id), 0):
        for one in page:
            if names.limit_of(one.subject)[0] == limit.id:
                fold(state, decode(one.data), one.seq)
                most = max(most, len(state.holders))
    return most
