"""Carries a plan out: a world of its own for each, and what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from hashlib import sha256
from types import ModuleType

from msgspec import Struct

from penstock.actors.ownership import membership, ownership
from penstock.actors.runs import actor_state
from penstock.actors.runs import shard as shard_module
from penstock.actors.runs.limits import partition_limits
from penstock.actors.runs.shared import lease
from penstock.actors.runs.waits import checkpoints
from penstock.broker import far_events
from penstock.broker.records import run_data
from penstock.config import limits
from tests.simulation.broken import Broken
from tests.simulation.clock import TIME
from tests.simulation.loop import Loop, Standstill
from tests.simulation.plan import Plan
from tests.simulation.world import World

LIMIT_LOG_MIN = 15  # the logs of limits are short, and are shortened all the same
PACKING = 3  # in one of so many worlds, runs that wait are packed,
RESIDENT_FEW = 1  # as no more than this one may be in memory as they are
CHECKPOINT_S = 1.0  # waits for events are written down so often, as worlds are short


class Outcome(Struct, frozen=True):
    """`law` is what was broken, None: nothing. `trace` are all messages that reached the broker, `history` those of the
    run."""

    law: str | None
    run_id: str | None = None
    history: list[str] = []
    trace: list[str] = []
    events: int = 0
    virtual_s: float = 0.0

    @property
    def digest(self) -> str:
        return sha256("\n".join(self.trace).encode()).hexdigest()


def play(plan: Plan, *, trace: bool = False, prepare: Callable[[World], None] | None = None) -> Outcome:
    """Carry a plan out. Inside `simulated()` only."""
    loop = Loop()
    TIME.begin(loop, plan.seed)
    world = World(loop, plan)
    if trace:
        world.server.trace = []
    if prepare is not None:
        prepare(world)
    paces = _paces(plan)
    before = [(module, name, getattr(module, name)) for module, name, _ in paces]
    for module, name, value in paces:
        setattr(module, name, value)
    asyncio.set_event_loop(loop)
    try:
        broken = _played(loop, world)
        virtual_s = loop.now
        world.end(loop)
    finally:
        for module, name, value in before:
            setattr(module, name, value)
        asyncio.set_event_loop(None)
        loop.close()
    history = [] if broken is None or broken.run_id is None else world.history(broken.run_id)
    law, run_id = (None, None) if broken is None else (broken.law, broken.run_id)
    return Outcome(law, run_id, history, world.server.trace or [], world.watch.events, virtual_s)


def _paces(plan: Plan) -> list[tuple[ModuleType, str, float]]:
    renewed = [(module, "LEASE_RENEW_S", limits.LEASE_RENEW_S * plan.pace) for module in (membership, ownership)]
    slowed = max(1.0, plan.pace / 2)  # a lease that is renewed half as often as outside holds as long as there
    return [
        (shard_module, "TICK_S", plan.tick_s),
        *renewed,
        (lease, "LEASE_S", limits.LEASE_S * slowed),
        (membership, "SILENCE_S", limits.SILENCE_S * slowed),
        (checkpoints, "WAIT_CHECKPOINT_S", CHECKPOINT_S),
        (partition_limits, "LOG_MIN", LIMIT_LOG_MIN),
        (partition_limits, "LOG_PER_OPEN", 2),
        (actor_state, "EVENTS_MIN", plan.snapshot_events),
        (run_data, "APART", 0),  # only in larger streams than these is anything far away
        (far_events, "FAR", (far_events.FAR, 8, far_events.FAR, 0)[plan.seed % 4]),
        (far_events, "YOUNG_S", 0.0 if plan.seed % 2 else far_events.YOUNG_S),
        (shard_module, "ACTORS_RESIDENT_MAX", RESIDENT_FEW if plan.seed % PACKING == 0 else limits.ACTORS_RESIDENT_MAX),
    ]


def _played(loop: Loop, world: World) -> Broken | None:
    try:
        loop.run_until_complete(world.live())
    except Broken as broken:
        return broken
    except Standstill:
        return Broken("nothing is left to wait for")
    return None
