"""The clocks of the service's hosts are set by minutes, now and then; the broker's is not. Every run ends, and no timer is lost.

A shard compares the broker's times with its own clock: one that is ahead fires the timers that it holds so much too early, and one
that is behind gives them to the broker, which fires them in time.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.simulation.clock import simulated
from tests.simulation.plan import CHAOS_S, Move, Plan, plan_of
from tests.simulation.shrink import report
from tests.simulation.world import World, play

SEEDS = 400
CHUNKS = 4
JUMP_S_MAX = 600.0


def _with_jumps(plan: Plan) -> Plan:
    chance = Random(plan.seed)
    jumps = []
    for _ in range(chance.choice((1, 2, 4))):
        seconds = chance.choice((-1, 1)) * chance.uniform(0.5, JUMP_S_MAX)
        front = chance.random() < 0.3  # whose clock says when a scheduled run starts
        jumps.append(Move(chance.uniform(0, CHAOS_S), "clock", 0 if front else 1, seconds / 5 if front else seconds))
    return plan._replace(moves=tuple(sorted([*plan.moves, *jumps])))


def _lenient(world: World) -> None:
    world.watch.early_s = max(0.0, *(move.more for move in world.plan.moves if move.act == "clock"))


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.timeout(600)
def test_runs_end_whatever_the_clocks_say(chunk: int) -> None:
    with simulated():
        for seed in range(chunk, SEEDS, CHUNKS):
            plan = _with_jumps(plan_of(seed))
            if play(plan, prepare=_lenient).law is not None:
                pytest.fail(report(plan, play(plan, trace=True, prepare=_lenient)), pytrace=False)
