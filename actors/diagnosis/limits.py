"""The limits that a run, and its executions, wait for, as their owners see them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from penstock.actors.runs.loading import load_many
from penstock.broker.limits.questions import LimitSeen
from penstock.broker.store import Store
from penstock.config.process.background import all_of
from penstock.engine.access.scopes import Caller
from penstock.engine.errors import Unavailable
from penstock.engine.limits.configs import LimitConfig, allowed_now
from penstock.engine.limits.names import LimitName
from penstock.engine.run.slots.holders import awaits_slots, holder_of, slots_of
from penstock.engine.run.slots.plans import LimitPlan
from penstock.engine.run.state import Run
from penstock.engine.run.workflow import Workflow
from penstock.engine.waiting.facts import SlotWait

WAITS_MAX = 20  # of one run that are asked for


async def slot_waits(store: Store, workflow: Workflow | None, run: Run, caller: Caller) -> Mapping[str, SlotWait]:
    """By the id of the execution, and "" for the run as a whole. No run of a workflow that the caller may not deal with
    is named."""
    if workflow is None or not run.slots:
        return {}
    owners = islice((owner for owner in run.slots if awaits_slots(workflow, run, owner)), WAITS_MAX)
    wanted = {owner: _limit(workflow, run, owner) for owner in owners}
    configs = await store.limit_configs.get_many({(limit.kind, limit.scope) for limit in wanted.values()})

    async def one(owner: str, limit: LimitPlan) -> tuple[str, SlotWait]:
        seen = await _seen(store, limit, holder_of(run, owner, run.slots[owner]))
        name = LimitName(limit.kind, limit.scope, None) if seen is None else seen.name
        config = configs.get((limit.kind, limit.scope), LimitConfig(limit.kind, limit.scope))
        allowed = allowed_now(configs, name, limit.allowed if seen is None else seen.allowed)
        overridden = config.override_of(name.key) is not None
        if seen is None:
            return owner, SlotWait(limit.kind, limit.scope, name.key, allowed, overridden)
        oldest = await _named(store, seen.holders[0].run_id, caller) if seen.holders else None
        return owner, SlotWait(
            limit.kind,
            limit.scope,
            name.key,
            allowed,
            overridden,
            seen.holders_total,
            oldest,
            seen.place,
            seen.waiting_total,
            seen.next_at,
        )

    return dict(await all_of(one(owner, limit) for owner, limit in wanted.items()))


def _limit(workflow: Workflow, run: Run, owner: str) -> LimitPlan:
    wanted = slots_of(workflow, owner)
    assert wanted is not None, "it awaits one of them"
    return wanted.limits[run.slots[owner].number]


async def _named(store: Store, run_id: str, caller: Caller) -> str | None:
    """The id of a run; None where the caller may not deal with its workflow, or nothing is known of it."""
    if caller.workflows is None:
        return run_id
    return next((run.run_id for run in await load_many(store, [run_id]) if caller.sees(run.workflow_id)), None)


async def _seen(store: Store, limit: LimitPlan, holder: str) -> LimitSeen | None:
    """None where its owner does not answer, or has not seen the request yet."""
    try:
        if limit.key is None:
            return await store.limit_questions.one(LimitName(limit.kind, limit.scope), 1, holder, wait_s=0.0)
        return await store.limit_questions.waited_for(limit.scope, holder, 1)
    except Unavailable:
        return None
