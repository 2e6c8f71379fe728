"""Thousands of worlds in which everything goes wrong, and the laws hold in each. SIMULATION_SEEDS=100000 looks
longer."""

from __future__ import annotations

import os

import pytest

from tests.simulation.clock import simulated
from tests.simulation.plan import plan_of
from tests.simulation.playing import play
from tests.simulation.shrink import report, shortest

SEEDS = int(os.environ.get("SIMULATION_SEEDS", "4000"))
CHUNKS = 20


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.timeout(900)
def test_no_seed_breaks_a_law(chunk: int) -> None:
    with simulated():
        for seed in range(chunk, SEEDS, CHUNKS):
            plan = plan_of(seed)
            if play(plan).law is not None:
                pytest.fail(report(*shortest(plan)), pytrace=False)
