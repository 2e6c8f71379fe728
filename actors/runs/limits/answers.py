"""Answers to whoever wants to see a limit: who holds, who waits, at which place."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nlargest, nsmallest

from penstock.actors.runs.limits.limit_actor import LimitActor, LimitDeps
from penstock.actors.runs.limits.partition_limits import PartitionLimits
from penstock.broker.limits.questions import LimitQuestion, LimitSeen, LimitWaiter
from penstock.engine.limits.allot import next_at
from penstock.engine.limits.compaction import is_idle
from penstock.engine.limits.listing import first_waiting, place
from penstock.engine.limits.rates import tokens
from penstock.engine.limits.state import LimitState


def answers(deps: LimitDeps, limits: PartitionLimits, question: LimitQuestion) -> list[LimitSeen]:
    """The limits that are asked for, as they are now."""
    states = (actor.state for actor in _asked_for(deps, limits, question))
    return [_seen(deps, state, question) for state in states]


def _asked_for(deps: LimitDeps, limits: PartitionLimits, question: LimitQuestion) -> list[LimitActor]:
    if question.limit_id is not None:
        found = limits.limits.get(question.limit_id)
        return [] if found is None or found.state.name is None else [found]
    used = _in_use(deps, limits, question.scope)
    if question.holder is not None:
        used = (actor for actor in used if question.holder in actor.state.waiting.entries)
    return nlargest(question.most, used, key=_busy)


def _in_use(deps: LimitDeps, limits: PartitionLimits, scope: str | None) -> Iterator[LimitActor]:
    now = deps.clock.now()
    for actor in limits.limits.values():
        name = actor.state.name
        if name is not None and scope in (None, name.scope) and not is_idle(actor.state, now):
            yield actor


def _busy(actor: LimitActor) -> tuple[int, int]:
    return actor.state.waiting_total, len(actor.state.holders)


def _seen(deps: LimitDeps, state: LimitState, question: LimitQuestion) -> LimitSeen:
    assert state.name is not None
    allowed, now = deps.allowed(state), deps.clock.now()
    waiting = first_waiting(state, question.named) if question.named else []
    return LimitSeen(
        name=state.name,
        allowed=allowed,
        holders_total=len(state.holders),
        holders=tuple(nsmallest(question.named, state.holders.values(), key=lambda one: (one.at, one.order))),
        waiting_total=state.waiting_total,
        waiting=tuple(LimitWaiter(one.place, one.holder, one.run_id, one.step_id, one.priority) for one in waiting),
        tokens=float(tokens(state, allowed, now)) if state.is_rate else None,
        next_at=next_at(state, allowed),
        place=None if question.holder is None else place(state, question.holder),
    )
