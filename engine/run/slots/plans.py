"""The limits of a step or of a workflow, compiled."""

from __future__ import annotations

from msgspec import Struct

from penstock.engine.expressions.expression import Expression
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
