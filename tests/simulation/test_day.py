"""A day of steady load in a few seconds: runs trickle in, many wait for hours, and now and then an engine crashes.
Nothing is lost, and when the day is over nothing is left in memory."""

from __future__ import annotations

from functools import lru_cache
from random import Random

import pytest

from penstock.actors.runs.actor_state import EVENTS_MIN
from penstock.broker.nats import publisher, pull
from penstock.config import limits
from penstock.engine.definition.definitions import digest, from_json, to_json
from penstock.engine.run.compiling import compile_workflow
from penstock.engine.run.state import RunStatus
from penstock.engine.validation import parse
from tests.simulation import consumers
from tests.simulation import world as worlds
from tests.simulation.clock import simulated
from tests.simulation.plan import Known, Move, Plan
from tests.simulation.playing import play
from tests.simulation.shrink import report
from tests.simulation.world import World

DAY_S = 24 * 3600.0
RUNS = 500
CRASHES = 30
NAMES = ("waiting", "steady", "asking")
SLOW = 60.0  # leases are renewed twice a minute: they are what a day would cost

STEADY = {"id": "s0", "task": "t", "timeout": "30s"}
WAITING = {
    "id": "s0",
    "task": "u",
    "retry": {"max_attempts": 3, "strategy": "fixed", "initial_delay": "3h"},
    "timeout": "1h",
}
ASKING = {"id": "s0", "type": "approval", "config": {"timeout": "4h"}}
LOOP = {
    "id": "s1",
    "depends_on": ["s0"],
    "task": "t",
    "type": "agent_loop",
    "config": {"max_iterations": 5, "loop_delay": "45m"},
}


@lru_cache
def _known(number: int) -> Known:
    steps = {
        "waiting": [WAITING, LOOP],
        "steady": [STEADY],
        "asking": [ASKING, {**STEADY, "id": "s2", "depends_on": ["s0"]}],
    }
    name = NAMES[number]
    body = to_json(definition := parse({"name": name, "version": "1", "steps": steps[name], "timeout": "20h"}))
    return Known(definition, body, digest(body), compile_workflow(from_json(body), digest(body)))


def _day(seed: int) -> Plan:
    chance = Random(seed)
    starts = [Move(round(chance.uniform(0, DAY_S), 3), "start", chance.randrange(99)) for _ in range(RUNS)]
    crashes = [
        Move(round(chance.uniform(0, DAY_S), 3), chance.choice(("crash", "restart", "disconnect")), 1, 4.0)
        for _ in range(CRASHES)
    ]
    return Plan(seed, (0, 1, 2), 0.02, 5.0, SLOW, tuple(sorted([*starts, *crashes])), EVENTS_MIN)


@pytest.mark.timeout(600)
def test_a_day_of_load_loses_nothing_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "known", _known)
    for module, name, seconds in (
        (pull, "HEARTBEAT_S", 60),
        (pull, "QUIET_S", 120),
        (consumers, "HEARTBEAT_S", 60),
        (publisher, "RESEND_S", 60),
    ):
        monkeypatch.setattr(
            module, name, seconds
        )  # nothing is lost on its way here, and what looks for that costs most
    monkeypatch.setattr(worlds, "FAIR_S_MAX", DAY_S)
    monkeypatch.setattr(worlds, "LOOK_S", 300.0)
    monkeypatch.setattr(worlds, "LATE_S", 900.0)
    found: list[World] = []
    with simulated():
        outcome = play(_day(1), prepare=found.append)
    assert outcome.law is None, report(_day(1), outcome)
    (world,) = found
    assert outcome.virtual_s > DAY_S
    assert len(world.watch.runs) == RUNS
    statuses = {run.status for run in world.watch.runs.values()}
    assert statuses <= {RunStatus.COMPLETED, RunStatus.FAILED}
    assert RunStatus.COMPLETED in statuses
    assert len(world.processes) > CRASHES / 2
    shard = world.engine.shard
    assert shard is not None
    assert (len(shard.actors), len(shard.snapshots), shard.timers.in_memory, shard.backlog.events) == (0, 0, 0, 0)
    assert not [subject for subject in world.server.history.subjects if subject.startswith("schedule.")]
    assert limits.PARTITIONS > len(shard.partitions) > 0
