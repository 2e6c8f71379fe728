"""A process dies at one point, exactly: it is started again, and everything ends as if nothing had happened.

Each scenario is run once in peace, and once for each point on its way, where a process is killed by its own hand. In
the end, when all that was repeated after the crashes has been dealt with, nothing may have changed.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.config.process.crash_points import POINTS, Point
from tests.e2e import crash_bridge, crash_limits, crash_recovery, crash_triggers
from tests.e2e import crash_scenarios as scenarios
from tests.e2e.crash_limits import limited
from tests.e2e.crash_scenarios import UNANSWERED_S, Scenario, approval, awaited, timeout
from tests.e2e.test_archive import ARCHIVE_POINTS
from tests.e2e.test_common_consumer import COMMON_POINTS
from tests.support.crashing import Outcome, Place, World, place, world
from tests.support.waiting import until
from tests.worker.task_queue import durable

pytestmark = pytest.mark.timeout(180)

ROOT = Path(__file__).parents[2]
CALL = re.compile(r'\breached\("([^"]+)"\)')
WORKED = ("crash.echo", "crash.flaky", "crash.fatal", "crash.draft", "crash.pausing")


class Case(NamedTuple):
    """A scenario in which some process passes the point at least `passage` times."""

    point: Point
    scenario: Scenario
    passage: int = 1
    peaceful: Scenario | None = None  # the same without the trouble that leads to the point


BATCH_POINTS: tuple[Point, ...] = (
    "batch.event_stored",
    "batch.scheduled",
    "batch.closed",
    "batch.started",
    "batch.marked",
    "batch.removed",
    "batch.ticked",
)

CASES = (
    Case("shard.received", scenarios.chain, 5),
    Case("shard.advanced", scenarios.chain, 4),
    Case("planner.checked", scenarios.planner),
    Case("shard.command_sent", scenarios.chain, 3),
    Case("shard.command_stored", scenarios.chain, 2),
    Case("shard.published", scenarios.chain, 4),
    Case("shard.snapshot_written", scenarios.failure),
    Case(
        "shard.snapshot_written",
        approval(scenarios.shard_stops_in_peace, timeout="1h"),
        peaceful=approval(timeout="1h"),
    ),
    Case("shard.left", scenarios.chain),
    Case("shard.acknowledging", approval(scenarios.shard_stops_in_peace), peaceful=approval()),
    Case("shard.acknowledged", approval(scenarios.shard_stops_in_peace), peaceful=approval()),
    Case("shard.drained", approval(scenarios.shard_stops_in_peace), peaceful=approval()),
    Case("shard.drained", timeout(scenarios.shard_stops_in_peace), peaceful=timeout()),
    Case("shard.loaded", approval(scenarios.shards_are_killed), peaceful=approval()),
    Case("shard.resumed", approval(scenarios.shards_are_killed), peaceful=approval()),
    Case("shard.dead_lettering", scenarios.malformed),
    Case("event_wait.found", awaited()),
    Case("event_wait.received", awaited()),
    Case("event_wait.checkpointed", awaited(scenarios.wait_is_checkpointed), peaceful=awaited()),
    Case("limits.made", limited(scenarios.shards_are_killed), peaceful=limited()),
    Case("limit.asked", limited(), 4),
    Case("limit.deciding", limited(), 4),
    Case("limit.decided", limited(), 4),
    Case("limit.told", limited(), 4),
    Case("limit.compacting", crash_limits.shortened),
    Case("limit.compacted", crash_limits.shortened),
    Case("shard.command_stored", limited(), 6),
    Case("shard.published", limited(), 8),
    Case("handover.owned", limited(scenarios.shards_are_killed), 2, limited()),
    Case("shard.drained", limited(scenarios.shard_stops_in_peace), peaceful=limited()),
    Case("shard.command_stored", awaited(), 2),
    Case("shard.loaded", awaited(scenarios.shards_are_killed), peaceful=awaited()),
    Case("handover.owned", awaited(scenarios.shards_are_killed), 2, awaited()),
    Case("child.started", scenarios.child),
    Case("child.started", scenarios.children, 2),
    Case("failure_run.started", scenarios.failure_run),
    Case("compensation.read", scenarios.saga),
    Case("compensation.read", scenarios.saga, 2),
    Case("compensation.read", scenarios.called_off),
    Case("shard.published", scenarios.saga, 6),
    Case("shard.command_sent", scenarios.saga, 5),
    Case("shard.command_stored", scenarios.saga, 8),
    Case("dead_letter.stored", scenarios.saga, 2),
    Case("run.cancelled", scenarios.called_off),
    Case("shard.command_sent", scenarios.recovery),
    Case("shard.published", scenarios.recovery, 3),
    Case("shard.published", scenarios.child, 5),
    Case("dead_letter.stored", scenarios.failure),
    Case("timer.due", timeout()),
    Case("timer.fired", timeout()),
    Case("timer.stored", approval(scenarios.timer_is_stored), peaceful=approval()),
    Case("timer.withdrawn", approval(scenarios.timer_is_stored), peaceful=approval()),
    Case("approval.token_stored", approval()),
    Case("member.joined", approval(scenarios.shards_are_killed), peaceful=approval()),
    Case("handover.claimed", approval(scenarios.shards_are_killed), 3, approval()),
    Case("handover.consumer_made", approval(scenarios.shards_are_killed), 2, approval()),
    Case("handover.owned", approval(scenarios.shards_are_killed), 2, approval()),
    Case("handover.withdrawn", approval(scenarios.shard_stops_in_peace), peaceful=approval()),
    Case("handover.released", approval(scenarios.shard_stops_in_peace), 2, approval()),
    Case("member.left", approval(scenarios.shard_stops_in_peace), peaceful=approval()),
    Case("run.started", scenarios.chain),
    Case("run.scheduled", scenarios.scheduled),
    Case("run.unscheduled", scenarios.unscheduled),
    Case("run.cancelled", scenarios.cancel),
    Case("task.cancelled", scenarios.cancel_held),
    Case("run.resumed", scenarios.replay),
    Case("run.resumed", scenarios.bulk_replay),
    Case("runs.started", scenarios.bulk),
    Case("runs.started", scenarios.keyed_bulk),
    Case("runs.cancelled", scenarios.bulk_cancel),
    Case("rerun.planned", scenarios.keyed_rerun),
    Case("runs.rerun", scenarios.rerun),
    Case("runs.rerun", scenarios.keyed_rerun),
    Case("run.rerun", crash_recovery.rerun_from),
    Case("import.stored", crash_recovery.imported),
    Case("import.marked", crash_recovery.imported),
    Case("rerun.parts_taken", crash_recovery.rerun_from),
    Case("rerun.step_taken", crash_recovery.rerun_from, 2),
    Case("rerun.step_taken", crash_recovery.rerun_from, 4),
    Case("shard.published", crash_recovery.rerun_from, 9),
    Case("run.paused", crash_recovery.paused),
    Case("pause.withdrawn", crash_recovery.paused),
    Case("run.unpaused", crash_recovery.paused),
    Case("runs.paused", crash_recovery.paused_in_bulk),
    Case("runs.paused", crash_recovery.paused_in_bulk, 2),
    Case("runs.removed", crash_recovery.pruned),
    Case("run.data_removed", crash_recovery.pruned),
    Case("shard.run_removed", crash_recovery.pruned),
    Case("step.retried", crash_recovery.retried_now),
    Case("step.overridden", crash_recovery.by_hand),
    Case("run.resumed", crash_recovery.by_hand_after_failure),
    Case("signal.stored", scenarios.signal),
    Case("signal.reported", scenarios.signal),
    Case("approval.decided", approval()),
    Case("definition.stored", scenarios.chain),
    Case("definition.listed", scenarios.chain),
    Case("definition.unlisted", scenarios.deleted),
    Case("webhook.stored", crash_triggers.webhook),
    Case("event.claimed", crash_triggers.sent_event),
    Case("event.stored", crash_triggers.sent_event),
    Case("trigger.written", crash_triggers.event),
    Case("trigger.source_chosen", crash_triggers.subject),
    Case("trigger.deleted", crash_triggers.deleted_trigger),
    Case("trigger_event.started", crash_triggers.webhook),
    Case("trigger_event.dead_letter_stored", crash_triggers.refused_event),
    *(Case(point, crash_triggers.batched) for point in BATCH_POINTS if point != "batch.ticked"),
    Case("batch.event_stored", crash_triggers.batched, 2),
    Case("batch.event_stored", crash_triggers.batched, 3),
    *(Case(point, crash_triggers.debounced) for point in BATCH_POINTS),
    Case("cron.progressed", crash_triggers.cron),
    Case("cron.scheduled", crash_triggers.cron),
    Case("index.folded", scenarios.chain),
    Case("index.written", scenarios.chain),
    Case("bridge.registered", crash_bridge.bridge_worker),
    Case("bridge.assigned", crash_bridge.bridge),
    Case("bridge.leased", crash_bridge.bridge_later, peaceful=crash_bridge.bridge),
    Case("bridge.begun", crash_bridge.bridge_later, peaceful=crash_bridge.bridge),
    Case("bridge.begun_in_place", crash_bridge.bridge_successor, peaceful=crash_bridge.bridge),
    Case("bridge.answered", crash_bridge.bridge_loop, 2),
    Case("bridge.acknowledged", crash_bridge.bridge),
    Case("bridge.held_answered", crash_bridge.bridge_later, peaceful=crash_bridge.bridge),
    Case("bridge.held_acknowledged", crash_bridge.bridge_later, peaceful=crash_bridge.bridge),
    Case("bridge.claimed", crash_bridge.bridge_successor, peaceful=crash_bridge.bridge),
    Case("bridge.claimed_answered", crash_bridge.bridge_successor, peaceful=crash_bridge.bridge),
    Case("bridge.checkpointed", crash_bridge.bridge_pause),
    Case("bridge.paused", crash_bridge.bridge_pause),
    Case("bridge.pause_reported", crash_bridge.bridge_pause),
    Case("bridge.given_back", crash_bridge.bridge_pause),
    Case("worker.begun", scenarios.chain, 2),
    Case("worker.start_reported", scenarios.pause),
    Case("worker.answered", scenarios.loop, 2),
    Case("worker.acknowledged", scenarios.chain, 2),
    Case("worker.checkpointed", scenarios.pause),
    Case("worker.paused", scenarios.pause),
    Case("worker.pause_reported", scenarios.pause),
    Case("worker.given_back", scenarios.pause),
)


class Known(NamedTuple):
    """What has come out so far, by the names of the workflows, and of the scenarios in peace."""

    place: Place
    outcomes: dict[str, Outcome]
    peaceful: dict[str, Outcome]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Known]:
    """The service of this module. At its end, what its runs came to is looked at once more."""
    with place(tmp_path_factory.mktemp("crashes")) as found:
        asyncio.run(_prepare(found))
        found.start_worker()
        known = Known(found, {}, {})
        yield known
        asyncio.run(_look_again(known))


async def _prepare(found: Place) -> None:
    async with world(found) as at_hand:
        for task in WORKED:
            await durable(at_hand.store, task, UNANSWERED_S)


async def _look_again(known: Known) -> None:
    """A shard that stops in peace has dealt with all that came again."""
    service = known.place.service
    async with world(known.place) as at_hand:
        for name in scenarios.SHARDS:
            await until(lambda: _is_in_charge(at_hand, name))  # noqa: B023 - awaited in this round
            await asyncio.to_thread(service.await_restart, name, service.kill(name, scenarios.IN_PEACE))
        for name, outcome in known.outcomes.items():
            assert outcome == await at_hand.outcome(name, outcome.facts), name


async def _is_in_charge(at_hand: World, name: str) -> bool:
    return name in await scenarios.in_charge(at_hand)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.point)
async def test_a_death_at_the_point_changes_nothing(known: Known, case: Case) -> None:
    async with world(known.place) as at_hand:
        expected = await _in_peace(known, at_hand, case.peaceful or case.scenario)
        known.place.arm(case.point, case.passage)
        try:
            found = await _outcome(known, at_hand, case.scenario, case.point)
            await known.place.died(case.point)
        finally:
            known.place.forget(case.point)
    assert expected == found


async def _in_peace(known: Known, at_hand: World, scenario: Scenario) -> Outcome:
    name = scenario.__qualname__.partition(".")[0]
    if name not in known.peaceful:
        known.peaceful[name] = await _outcome(known, at_hand, scenario, f"peaceful.{name}")
    return known.peaceful[name]


async def _outcome(known: Known, at_hand: World, scenario: Scenario, name: str) -> Outcome:
    name = f"{name}-{len(known.outcomes)}"
    facts = await scenario(at_hand, name)
    outcome = known.outcomes[name] = await at_hand.outcome(name, facts)
    return outcome


def test_every_point_is_passed_in_one_place_and_has_a_case() -> None:
    files = [file for folder in ("actors", "broker", "http", "worker") for file in (ROOT / folder).rglob("*.py")]
    calls = Counter(point for file in files for point in CALL.findall(file.read_text()))
    assert dict.fromkeys(POINTS, 1) == dict(calls)
    assert POINTS == {*(case.point for case in CASES), *ARCHIVE_POINTS, *COMMON_POINTS}
