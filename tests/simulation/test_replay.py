"""A seed is all there is: it replays exactly, in any process, and a failing one becomes a short story."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from weakref import ref

import pytest

from tests.simulation.clock import simulated
from tests.simulation.mutants import mutated
from tests.simulation.plan import CHAOS_S, Move, Plan, plan_of
from tests.simulation.playing import play
from tests.simulation.shrink import report, shortest
from tests.simulation.world import World

SEEDS = (3, 7, 42)


def _digests(hash_seed: str) -> bytes:
    command = [sys.executable, "-m", "tests.simulation", "--digest", *map(str, SEEDS)]
    return subprocess.run(
        command, env={**os.environ, "PYTHONHASHSEED": hash_seed}, capture_output=True, check=True
    ).stdout


def test_a_seed_replays_exactly_in_another_process() -> None:
    first = _digests("1")
    assert len(set(first.split())) == 2 * len(SEEDS)
    assert _digests("2") == first


def test_a_seed_replays_exactly_after_others_in_the_same_process() -> None:
    with simulated():
        first = play(plan_of(11), trace=True)
        play(plan_of(12))
        again = play(plan_of(11), trace=True)
    assert again.trace == first.trace
    assert first.trace != []


def test_seeds_differ() -> None:
    with simulated():
        assert play(plan_of(1), trace=True).digest != play(plan_of(2), trace=True).digest


def test_a_failing_seed_becomes_a_shorter_plan_that_breaks_the_same_law() -> None:
    with simulated(), mutated("fires_too_early"):
        plan = next(plan for seed in range(100) if play(plan := plan_of(seed)).law is not None and len(plan.moves) > 2)
        short, outcome = shortest(plan)
        told = report(short, outcome)
        assert set(short.moves) < set(plan.moves)
        assert play(short).law == outcome.law
    assert outcome.law is not None
    assert "too early" in outcome.law
    assert f"python -m tests.simulation {plan.seed}" in told
    assert "TimerFired" in told


def test_a_sound_plan_cannot_be_made_shorter() -> None:
    with simulated(), pytest.raises(AssertionError, match="nothing is broken"):
        shortest(plan_of(1))


def test_a_world_passes_its_time_at_once() -> None:
    with simulated():
        outcome = play(plan_of(5))
    assert outcome.law is None
    assert 0 < outcome.virtual_s < 10 * CHAOS_S


def test_a_world_that_has_ended_is_held_by_nobody() -> None:
    """Thousands are played in one process. The clock may keep the last one."""
    worlds: list[ref[World]] = []
    with simulated():
        for seed in range(5):
            play(plan_of(seed), prepare=lambda world: worlds.append(ref(world)))
    gc.collect()
    assert [world() for world in worlds[:-1]] == [None] * 4


@pytest.mark.parametrize("act", ["stall", "stall_answer"])
def test_peace_begins_when_nothing_is_held_up_any_more(act: str) -> None:
    """How long a timer is astray counts from peace on; a reader whose answers are held up cannot take over."""
    held_s = 12.0
    with simulated():
        plan = Plan(1, (1,), 0.004, 0.5, 1.0, (Move(0.2, "start"), Move(CHAOS_S, act, 1, held_s, "read")))
        outcome = play(plan, trace=True)
    assert outcome.law is None
    held_at, peace_at = _moment(outcome.trace, f" {act} $JS"), _moment(outcome.trace, "--- peace")
    assert held_at + held_s <= peace_at < held_at + held_s + 1.0


def _moment(trace: list[str], text: str) -> float:
    """When the first such line was written, in seconds since the beginning."""
    return float(next(line for line in trace if text in line).split()[0])
