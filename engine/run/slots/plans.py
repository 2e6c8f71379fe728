"""The limits of a step or of a workflow, compiled."""

from __future__ import annotations

from msgspec import Struct

from penstock.engine.definition.definitions import Step, WorkflowDef
from penstock.engine.definition.durations import parse
from penstock.engine.expressions.expression import Expression, compile_expression
from penstock.engine.expressions.scope import Scope
from penstock.engine.limits.names import LimitKind, OnLimit
from penstock.engine.limits.records import Allowed


class LimitPlan(Struct, frozen=True):
    """One limit: `key` and `fair_by` are evaluated when a slot is asked for."""

    kind: LimitKind
    scope: str
    allowed: Allowed
    key: Expression | None = None
    fair_by: Expression | None = None
    on_limit: OnLimit = OnLimit.QUEUE


class SlotsPlan(Struct, frozen=True):
    """All limits in the order in which slots are taken: those that are held by scope, then rates by scope. A larger
    `priority` is served first."""

    limits: tuple[LimitPlan, ...]
    priority: int | Expression = 0


def compile_slots(owner: WorkflowDef | Step, default: str, kind: LimitKind, scope: Scope) -> SlotsPlan | None:
    """The slots that a run of a valid workflow, or an execution of a valid step, takes; None: it has a priority and no
    limits. `default` is the scope of limits without one."""
    held = [
        LimitPlan(
            kind,
            one.scope or default,
            Allowed(one.limit),
            None if one.key is None else compile_expression(one.key, scope),
            None if one.fair_by is None else compile_expression(one.fair_by, scope),
            OnLimit(one.on_limit),
        )
        for one in owner.concurrency
    ]
    rates = [
        LimitPlan(
            LimitKind.RATE,
            one.scope or default,
            Allowed(one.limit, parse(one.per), one.burst),
            None if one.key is None else compile_expression(one.key, scope),
        )
        for one in owner.rate_limit
    ]
    if not held and not rates:
        return None
    priority = owner.priority or 0
    given = priority if isinstance(priority, int) else compile_expression(priority, scope)
    in_order = [*sorted(held, key=_by_scope), *sorted(rates, key=_by_scope)]
    return SlotsPlan(tuple(in_order), given)


def _by_scope(limit: LimitPlan) -> str:
    return limit.scope
