"""The simulation finds bugs: those that are put in on purpose, and those that it has found before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simulation.clock import simulated
from tests.simulation.mutants import MUTANTS, mutated
from tests.simulation.plan import Move, Plan, plan_of
from tests.simulation.shrink import shortest
from tests.simulation.world import play

SEEDS_MAX = 300
VARIANTS, SHIFT_S = 25, 0.02

# Bugs that show only where several things come together: the plan that shows each. All but those of the first two were real.
STORIES = {
    "forgets_the_timers_of_a_former_owner": Plan(
        682,
        (119,),
        0.004,
        1.0,
        1.0,
        (
            Move(3.755, "start many", 796, 3.295, "event"),
            Move(4.38, "crash between", 342, 0.391, "schedule"),
            Move(10.507, "takeover", 962, 7.063, "bucket"),
        ),
    ),
    "lets_go_of_timers_too_early": Plan(
        36,
        (29,),
        0.004,
        0.5,
        1.0,
        (
            Move(0.2, "start", 1),
            *(Move(1.65, "lose", pick, 7.0, "schedule") for pick in (1, 2, 3)),
            Move(9.583, "crash"),
        ),
    ),
    "hands_over_one_event_too_many": Plan(
        961,
        (31,),
        0.6,
        1.0,
        1.0,
        (
            Move(2.002, "join", 573, 13.966, "snapshot"),
            Move(2.695, "start"),
            Move(3.717, "join", 460, 0.736, "snapshot"),
            Move(3.726, "join", 981, 6.865, "snapshot"),
            Move(7.936, "join", 594, 17.648, "event"),
        ),
    ),
    "withdraws_what_it_has_handed_over": Plan(
        64,
        (63,),
        0.004,
        0.2,
        1.0,
        (
            Move(0.1, "start", 0),
            Move(0.2, "start", 1),
            Move(2.16655391780271, "refuse", 1, 7.0, "schedule"),
            Move(4.131167269895588, "join", 0, 6.0),
        ),
    ),
    "pulls_on_after_its_end": Plan(
        302,
        (208, 243),
        0.004,
        0.2,
        2.0,
        (
            Move(0.862, "schedule", 373, 6.911, "bucket"),
            Move(7.514, "disconnect", 253, 0.318, "event"),
            Move(7.656, "takeover", 736, 0.051, "read"),
            Move(10.044, "start keyed", 90, 3.074, "event"),
        ),
    ),
}


@pytest.mark.parametrize("name", sorted(MUTANTS.keys() - STORIES.keys()))
def test_a_bug_in_the_shell_is_found(name: str) -> None:
    with simulated():
        with mutated(name):
            plan = next((plan for seed in range(SEEDS_MAX) if play(plan := plan_of(seed)).law is not None), None)
            assert plan is not None, f"{SEEDS_MAX} seeds do not show it"
            short, outcome = shortest(plan)
            assert outcome.law is not None
            assert len(short.moves) <= len(plan.moves)
        assert play(short).law is None, "without the bug the very same plan holds"


@pytest.mark.parametrize("name", STORIES)
def test_a_bug_that_needs_several_troubles_is_shown_by_its_story(name: str) -> None:
    with simulated():
        with mutated(name):
            plan = next((plan for plan in _variants(STORIES[name]) if play(plan).law is not None), None)
            assert plan is not None, "no variant of the story shows it"
        assert play(plan).law is None


def _variants(plan: Plan) -> Iterator[Plan]:
    """The story, and how it might have gone with its last moves a moment earlier or later: what the shell does in between changes."""
    yield plan
    for count in (1, 2):
        for shift in range(1, VARIANTS + 1):
            late = [move._replace(at=move.at + shift * SHIFT_S * side) for side in (1, -1) for move in plan.moves[-count:]]
            yield plan._replace(moves=(*plan.moves[:-count], *late[:count]))
            yield plan._replace(moves=(*plan.moves[:-count], *late[count:]))
