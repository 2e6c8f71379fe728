"""Moments of runs with limits that the state machine meets seldom: what it demands then holds."""

from __future__ import annotations

import pytest

from penstock.engine.run.event_payloads import Cancellation
from penstock.engine.run.events import WorkflowCancelled
from penstock.engine.run.state import RunStatus
from tests.properties.test_advance_machine import World, WorldOfLimits
from tests.properties.world import OUTPUTS, RUN_ID

SKIPPED: dict[str, object] = {
    "name": "w",
    "steps": [{"id": "a", "task": "t"}],
    "concurrency": [{"limit": 1, "on_limit": "skip"}],
}
REFUSED = 0  # a pick with which who waits is refused


def test_a_refused_run_is_cancelled_soon_and_asks_for_nothing() -> None:
    world = WorldOfLimits()
    world.begin_with(SKIPPED, later=False, lands=False, endless=False)
    world.grant(REFUSED)
    assert (RunStatus.PENDING, "limit") == (world.known().status, world.known().error)
    world.nothing_is_lost()
    world.crash(events_lost=True, timers_lost=False)
    world.nothing_is_lost()
    world.teardown()
    assert RunStatus.CANCELLED is world.known().status


def test_a_lost_cancellation_of_a_refused_run_is_missed() -> None:
    world = WorldOfLimits()
    world.begin_with(SKIPPED, later=False, lands=False, endless=False)
    world.grant(REFUSED)
    world.broker.in_flight.clear()
    with pytest.raises(AssertionError):
        world.nothing_is_lost()


def test_a_resumed_run_is_refused_shortly_after_a_cancellation_that_came_too_late() -> None:
    world = WorldOfLimits()
    world.begin_with(SKIPPED, later=False, lands=True, endless=False)
    world.let_in(next(iter(world.requests)))
    world.work(world.broker.tasks[0], "non_retriable", numbered=True, pick=1)
    assert RunStatus.FAILED is world.known().status
    world.say(WorkflowCancelled(run_id=RUN_ID, timestamp=world.stamp()))
    world.resume()
    world.grant(REFUSED)
    assert RunStatus.CANCELLED is world.known().status
    world.teardown()  # the dead letter of its step was removed as it was resumed


def test_the_end_of_a_cancelled_run_that_has_undone_its_steps_is_on_its_way() -> None:
    undone = {"id": "a", "task": "t", "timeout": "5s", "compensate": {"task": "u"}}
    definition: dict[str, object] = {"name": "w", "steps": [undone, {"id": "b", "task": "t", "depends_on": ["a"]}]}
    world = World()
    world.begin_with(definition, later=False, lands=True, endless=False)
    world.work(world.broker.tasks[0], OUTPUTS[0], numbered=True, pick=1)
    cancelled = WorkflowCancelled(run_id=RUN_ID, timestamp=world.stamp(), payload=Cancellation(compensate=True))
    world.say(cancelled)
    world.lands = False
    world.work(world.broker.tasks[0], OUTPUTS[0], numbered=True, pick=1)
    compensation = world.known().compensation
    assert compensation is not None
    assert (RunStatus.COMPENSATING, "completed") == (world.known().status, compensation.outcome)
    world.nothing_is_lost()
    world.teardown()
    assert RunStatus.CANCELLED is world.known().status
