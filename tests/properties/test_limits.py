"""The laws of limits, in a world of trouble. PROPERTY_EXAMPLES=5000 looks longer, and each time elsewhere."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.engine.limits.names import LimitKind
from penstock.engine.limits.records import Allowed
from tests.properties.limit_world import ACTIONS, MIXES, Action, LimitWorld

EXAMPLES = int(os.environ.get("PROPERTY_EXAMPLES", "100"))
LONG = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="PROPERTY_EXAMPLES" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)

ACTION: st.SearchStrategy[Action] = st.tuples(st.sampled_from(ACTIONS), st.integers(0, 999), st.integers(0, 999))
COURSES = st.lists(ACTION, max_size=80)
RATES = st.sampled_from([Allowed(1, 1.0), Allowed(3, 1.0), Allowed(2, 10.0), Allowed(3, 1.0, 1), Allowed(2, 1.0, 5)])


@pytest.mark.parametrize("mix", MIXES)
@LONG
@given(limit=st.integers(0, 3), actions=COURSES)
def test_slots_are_never_more_than_the_limit_and_nobody_is_forgotten(
    mix: str, limit: int, actions: list[Action]
) -> None:
    world = LimitWorld(LimitKind.RUNS, Allowed(limit), mix)

    world.perform(actions)

    world.catch_up()
    world.check_rules()
    world.check_replay()
    world.check_nobody_is_forgotten()
    world.check_replay()


@LONG
@given(allowed=RATES, actions=COURSES)
def test_no_span_of_a_rate_sees_more_than_the_limit_and_nobody_is_forgotten(
    allowed: Allowed, actions: list[Action]
) -> None:
    world = LimitWorld(LimitKind.RATE, allowed)

    world.perform(actions)

    world.catch_up()
    world.check_rules()
    world.check_replay()
    world.check_nobody_is_forgotten()
    world.check_window()
