"""The clocks of the service's hosts are set by minutes, now and then; the broker's is not. Every run ends, no timer is
lost, and none is early: only the broker's clock says when one is due.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.simulation.clock import simulated
from tests.simulation.plan import CHAOS_S, Move, Plan, plan_of
from tests.simulation.playing import play
from tests.simulation.shrink import report, shortest

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


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.timeout(600)
def test_runs_end_whatever_the_clocks_say(chunk: int) -> None:
    with simulated():
        for seed in range(chunk, SEEDS, CHUNKS):
            plan = _with_jumps(plan_of(seed))
            if play(plan).law is not None:
                pytest.fail(report(*shortest(plan)), pytrace=False)
