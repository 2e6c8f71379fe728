"""The simulation finds bugs: those that are put in on purpose, and those that it has found before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simulation.clock import simulated
from tests.simulation.mutants import MUTANTS, mutated
from tests.simulation.plan import (
    AGAIN,
    ASLEEP,
    BRIEF,
    BUSY,
    DOOMED,
    MOTHER,
    MOTHERS,
    RECOVERING,
    THREE,
    WAITING,
    Move,
    Plan,
    plan_of,
)
from tests.simulation.playing import play
from tests.simulation.shown_by import SHOWN_BY
from tests.simulation.shrink import shortest

SEEDS_MAX = 300
VARIANTS, SHIFT_S = 25, 0.02

# Bugs that show only where several things come together: the plan that shows each. The last five were real.
STORIES = {
    "sets_timers_over_those_of_a_later_owner": Plan(
        2128, (189,), 0.004, 0.2, 1.0, (Move(0.2, "start"), Move(1.967, "last words", 1, 13.153, "schedule"))
    ),
    "writes_old_states_over_newer_ones": Plan(
        9070, (224,), 0.004, 0.2, 1.0, (Move(0.2, "start"), Move(2.951, "last words", 1, 9.521, "snapshot"))
    ),
    "forgets_the_timers_of_a_former_owner": Plan(
        818,
        (119,),
        0.004,
        1.0,
        1.0,
        (
            Move(4.036, "start many", 796, 2.654, "event"),
            Move(4.534, "crash between", 342, 0.337, "schedule"),
            Move(10.559, "takeover", 962, 10.369, "bucket"),
        ),
    ),
    "has_pauses_run_down_timeouts": Plan(305, (200,), 0.004, 0.2, 6.0, (Move(1.99, "start"),)),
    "goes_by_the_clock_of_its_host": Plan(1, (1,), 0.004, 0.5, 6.0, (Move(0.1, "clock", 1, 300.0), Move(0.5, "start"))),
    "tries_only_once_to_hand_a_timer_over": Plan(
        4953,
        (191,),
        0.004,
        0.2,
        6.0,
        (
            Move(2.947, "start", 1),
            Move(3.363, "lose", 545, 2.211, "bucket"),
            Move(4.89, "disconnect", 21, 7.0, "schedule"),
            Move(14.44, "lose", 970, 9.812, "read"),
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
    "hands_partitions_over_with_the_consumer_of_all": Plan(
        7744,
        (243, 146),
        0.6,
        0.5,
        1.0,
        (
            Move(1.914, "start", 858),
            Move(1.134, "start", 2, 5.488),
            Move(3.172, "join", 684, 5.602, "read"),
            Move(3.425, "join", 401, 9.088),
            Move(4.638, "start", 705, 2.75),
            Move(12.338, "crash between", 819, 0.908, "schedule"),
        ),
    ),
    "keeps_slots_that_archived_runs_are_granted": Plan(
        9116,
        (10324,),
        0.004,
        0.5,
        1.0,
        (
            Move(1.534, "start", 309),
            Move(1.649, "start"),
            Move(2.302, "freeze between", 693, 7.627, "task"),
            Move(3.183, "freeze between", 148, 13.953, "schedule"),
            Move(3.896, "replay many", 272),
            Move(9.368, "archive", 456),
        ),
    ),
    "withdraws_what_it_has_handed_over": Plan(
        1,
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
        275,
        (249, 154),
        0.1,
        0.5,
        1.0,
        (
            Move(3.472, "start", 9),
            Move(3.73, "join", 456, 5.501),
            Move(6.388, "start", 7),
            Move(9.331, "join", 963, 5.654, "schedule"),
            Move(9.826, "disconnect", 842, 5.039, "schedule"),
        ),
    ),
    "forgets_sleeps_at_a_takeover": Plan(1, (ASLEEP,), 0.004, 0.2, 1.0, (Move(0.2, "start"), Move(3.8, "crash"))),
    "counts_an_element_twice": Plan(24, (THREE,), 0.004, 0.2, 6.0, (Move(0.1, "start"), Move(14.0, "schedule"))),
    "says_of_busy_waits_that_they_have_seen_everything": Plan(
        2556,
        (BUSY,),
        0.004,
        0.2,
        6.0,
        (
            Move(0.077, "start", 878, 0.509, "api"),
            Move(0.2, "lose", 661, 8.094, "event"),
            Move(2.268, "crash", 388, 6.412, "bucket"),
        ),
    ),
    "takes_new_waits_for_such_that_have_seen_everything": Plan(
        2556,
        (BUSY,),
        0.004,
        0.2,
        6.0,
        (
            Move(0.077, "start", 878, 0.509, "api"),
            Move(0.2, "lose", 661, 8.094, "event"),
            Move(0.806, "start keyed", 277, 15.282, "read"),
            Move(2.268, "crash", 388, 6.412, "bucket"),
        ),
    ),
    "forgets_waits_at_a_takeover": Plan(1, (WAITING,), 0.004, 0.2, 1.0, (Move(0.2, "start"), Move(12.0, "crash"))),
    "ends_a_wait_before_it_has_read_everything": Plan(
        4,
        (BRIEF,),
        0.004,
        0.2,
        6.0,
        (Move(0.2, "start"), Move(0.25, "disconnect", 1, 5.0), Move(6.0, "signal")),
    ),
    "takes_an_event_that_an_ancestor_has_taken": Plan(1, (AGAIN,), 0.004, 0.2, 6.0, (Move(0.2, "start"),)),
    "takes_the_end_of_any_run_for_that_of_the_child": Plan(
        1, (MOTHER,), 0.004, 0.2, 6.0, (Move(0.2, "start"), Move(0.23, "child ended"))
    ),
    "does_not_cancel_the_children_of_a_map": Plan(
        1, (MOTHERS,), 0.004, 0.2, 6.0, (Move(0.2, "start"), Move(0.23, "cancel"))
    ),
    "does_not_pause_children": Plan(
        764,
        (339, 293),
        0.004,
        1.0,
        6.0,
        (
            Move(0.231, "schedule", 663, 2.3, "snapshot"),
            Move(0.702, "start", 101, 2.812, "snapshot"),
            Move(1.315, "start", 975, 10.185, "read"),
            Move(1.912, "start"),
            Move(1.967, "start", 229, 7.908, "snapshot"),
            Move(3.047, "skip step", 320),
            Move(3.618, "rerun from", 545),
            Move(3.873, "pause run", 667),
            Move(6.583, "redeliver", 796, 2.916, "pull"),
        ),
    ),
    "leaves_the_child_of_a_step_that_was_completed_by_hand": Plan(
        1, (MOTHER,), 0.004, 0.2, 6.0, (Move(0.2, "start"), Move(0.26, "skip step", 8))
    ),
    "hands_timers_of_one_name_over_at_once": Plan(
        6201,
        (10298,),
        0.004,
        0.2,
        6.0,
        (
            Move(0.202, "start"),
            Move(0.935, "lose_answer", 78, 8.229, "schedule"),
            Move(1.905, "start", 607, 0.551, "api"),
            Move(4.324, "reset", 844, 8.896, "any"),
            Move(4.944, "lose_answer", 346, 8.794, "any"),
            Move(7.655, "reset", 206, 11.402, "event"),
        ),
    ),
    "starts_another_run_each_time_that_it_looks_at_a_failure": Plan(
        1, (DOOMED,), 0.004, 0.2, 1.0, (Move(0.1, "crash_before", 1, 0.0, "snapshot"), Move(0.2, "start"))
    ),
    "removes_whatever_has_happened_since": Plan(
        1, (DOOMED,), 0.1, 0.2, 6.0, (Move(0.2, "start"), Move(8.0, "prune"), Move(8.05, "replay", 1))
    ),
    "takes_an_end_for_the_last_event": Plan(
        6910,
        (246,),
        0.004,
        1.0,
        2.0,
        (
            Move(1.143, "stall_answer", 214, 7.14, "schedule"),
            Move(7.071, "start", 449, 0.622),
            Move(14.979, "cancel many", 927, 0.064, "event"),
        ),
    ),
    "leaves_no_mark_where_a_snapshot_was": Plan(
        431,
        (268,),
        0.004,
        1.0,
        6.0,
        (Move(2.359, "start"), Move(3.047, "last words", 911, 10.939, "snapshot"), Move(10.156, "prune", 265)),
    ),
    "undoes_steps_that_have_recovered": Plan(1, (RECOVERING,), 0.004, 0.2, 6.0, (Move(0.2, "start"),)),
}

# Fences that stand behind one another: without the first, the second one still holds; without both, something breaks.
PAIRS = {
    ("does_not_look_at_its_lease", "writes_old_states_over_newer_ones"): Plan(
        9654, (214,), 0.004, 0.2, 1.0, (Move(0.2, "start"), Move(1.128, "freeze between", 161, 10.773))
    ),
}


@pytest.mark.parametrize("name", sorted(MUTANTS.keys() - STORIES.keys() - {first for first, _ in PAIRS}))
def test_a_bug_in_the_shell_is_found(name: str) -> None:
    with simulated():
        with mutated(name):
            seeds = (SHOWN_BY.get(name, 0), *range(SEEDS_MAX))
            plan = next((plan for seed in seeds if play(plan := plan_of(seed)).law is not None), None)
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


@pytest.mark.parametrize("pair", PAIRS)
def test_of_two_fences_that_stand_behind_one_another_either_one_holds(pair: tuple[str, str]) -> None:
    with simulated():
        with mutated(*pair):
            plan = next((plan for plan in _variants(PAIRS[pair]) if play(plan).law is not None), None)
            assert plan is not None, "no variant of the story shows it"
        for one in pair:
            with mutated(one):
                assert play(plan).law is None
        assert play(plan).law is None


def _variants(plan: Plan) -> Iterator[Plan]:
    """The story, and how it might have gone with its last moves a moment earlier or later: what the shell does in
    between changes."""
    yield plan
    for count in (1, 2):
        for shift in range(1, VARIANTS + 1):
            late = [
                move._replace(at=move.at + shift * SHIFT_S * side) for side in (1, -1) for move in plan.moves[-count:]
            ]
            yield plan._replace(moves=(*plan.moves[:-count], *late[:count]))
            yield plan._replace(moves=(*plan.moves[:-count], *late[count:]))
