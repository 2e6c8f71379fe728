"""`python -m tests.simulation SEED` replays a seed: what happened, and if a law was broken, the shortest plan that
breaks it too."""

from __future__ import annotations

import argparse

from tests.simulation.clock import simulated
from tests.simulation.plan import plan_of
from tests.simulation.playing import play
from tests.simulation.shrink import report, shortest


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seeds", type=int, nargs="+", metavar="SEED")
    parser.add_argument("--trace", action="store_true", help="print every message that reached the broker")
    parser.add_argument("--whole", action="store_true", help="do not look for a shorter plan")
    parser.add_argument("--digest", action="store_true", help="print only a hash of what happened")
    asked = parser.parse_args()
    with simulated():
        for seed in asked.seeds:
            print(_played(seed, asked))


def _played(seed: int, asked: argparse.Namespace) -> str:
    plan = plan_of(seed)
    outcome = play(plan, trace=True)
    if asked.digest:
        return f"{seed} {outcome.digest}"
    if outcome.law is not None and not asked.whole:
        plan, outcome = shortest(plan)
    return report(plan, outcome, trace=asked.trace)


if __name__ == "__main__":
    main()
