"""The limits that something waits for, as far as the checks of the service look at them."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.actors.runs.loading import load_many
from penstock.broker.limits.questions import LimitSeen
from penstock.broker.store import Store
from penstock.engine.limits.configs import Configs, LimitConfig, allowed_now
from penstock.http.diagnosis.checks.facts import WaitedLimit

LIMITS_MAX = 100
HOLDERS_MAX = 10  # of each limit, the oldest ones
RUNS_MAX = 200  # of all limits


async def waited_limits(store: Store) -> tuple[WaitedLimit, ...]:
    """Those for which most wait, first, of the partitions that have an owner. Raises Unavailable."""
    busiest = await store.limit_questions.busiest(LIMITS_MAX, HOLDERS_MAX, wait_s=0.0, of_owned=True)
    waited = [one for one in busiest if one.waiting_total]
    configs = await store.limit_configs.get_many({(one.name.kind, one.name.scope) for one in waited})
    paused = await _paused(store, waited)
    return tuple(_waited(one, configs, paused) for one in waited)


async def _paused(store: Store, waited: Sequence[LimitSeen]) -> frozenset[str]:
    run_ids = list(dict.fromkeys(held.run_id for one in waited for held in one.holders))[:RUNS_MAX]
    found = await load_many(store, run_ids) if run_ids else []
    return frozenset(run.run_id for run in found if run.pause is not None)


def _waited(one: LimitSeen, configs: Configs, paused: frozenset[str]) -> WaitedLimit:
    place = one.name.kind, one.name.scope
    override = configs.get(place, LimitConfig(*place)).override_of(one.name.key)
    allowed = allowed_now(configs, one.name, one.allowed)
    holding = dict.fromkeys(held.run_id for held in one.holders if held.run_id in paused)
    return WaitedLimit(one.name, allowed.limit, one.waiting_total, override is not None, tuple(holding))
