"""Limits in memory: what runs ask of them is folded, and decided by the same functions as in the service."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Raw

from penstock.actors.runs.limits.news import news
from penstock.engine.definition.identifiers import quoted
from penstock.engine.errors import ExpressionFailed, Invalid, NotFound
from penstock.engine.expressions.places import WHEN
from penstock.engine.limits.allot import allot, next_at
from penstock.engine.limits.configs import LimitConfig, LimitOverride, allowed_now
from penstock.engine.limits.fold import fold, mark_told
from penstock.engine.limits.names import LimitKind
from penstock.engine.limits.records import Allowed, LimitRecord, Released
from penstock.engine.limits.state import LimitState
from penstock.engine.run.commands import ReleaseSlot, RequestSlot
from penstock.engine.run.events import LimitGranted
from penstock.engine.run.execution.beginning import applies, needed_by, skipped
from penstock.engine.run.slots.asking import Asking, asking, asking_expressions, names_for, read_by
from penstock.engine.run.slots.named import named_limits
from penstock.engine.run.slots.plans import SlotsPlan
from penstock.engine.run.slots.requesting import beginning, failed_to_ask, limits_of, released_limit, request
from penstock.engine.run.workflow import StepPlan
from penstock.testing.memory.engine import EngineInMemory, RunInMemory
from penstock.testing.memory.payloads import payloads, whole
from penstock.testing.memory.timeline import DueAction

Place: TypeAlias = tuple[LimitKind, str]
"""Kind and scope."""


class LimitsInMemory:
    """Owned by a service in memory."""

    def __init__(self, engine: EngineInMemory) -> None:
        self._engine = engine
        self._states: dict[str, LimitState] = {}
        self._turns: dict[str, DueAction] = {}
        self._overrides: dict[Place, LimitConfig] = {}
        self._seq = 0

    def request(self, of: RunInMemory, command: RequestSlot) -> None:
        """Ask for the slot, unless the execution is skipped, fails, or runs under the slot of an ancestor."""
        run, workflow = of.known, of.whole
        wanted, plan = limits_of(workflow, command)
        try:
            if plan is not None and not command.number and WHEN.path in plan.expressions:
                values = payloads(workflow, run, plan, of.event_at)
                if not applies(plan, run, values, {}):
                    self._engine.append(skipped(run, beginning(command)))
                    return
            asked = _asking(of, plan, wanted, command.number)
        except ExpressionFailed as error:
            self._engine.append(failed_to_ask(run, plan, command, str(error)))
            return
        found = request(run, wanted, command, asked)
        if isinstance(found, LimitGranted):
            self._engine.append(found)
        else:
            self._take(found.name.id, found)

    def release(self, of: RunInMemory, command: ReleaseSlot) -> None:
        """Give the slot back, or what was asked for."""
        limit_id = command.limit_id
        if limit_id is None:
            wanted, plan = limits_of(of.whole, command)
            try:
                asked = _asking(of, plan, wanted, command.number)
            except ExpressionFailed:  # it cannot have been asked for
                return
            limit_id = released_limit(wanted, command, asked)
        self._take(limit_id, Released(holder=command.holder, why=command.why))

    def override(self, scope: str, key: str | None, allowed: Allowed, kind: str | None) -> None:
        """Let this count instead of what definitions say. Raises NotFound for a scope without such a limit, Invalid."""
        place = self._place(scope, kind, is_rate=allowed.per_s is not None)
        config = self._overrides.get(place) or LimitConfig(*place)
        self._overrides[place] = config.with_override(key, LimitOverride(allowed, self._engine.timeline.stamp))
        self._turn_all(place)

    def take_back(self, scope: str, key: str | None, kind: str | None) -> None:
        """Let count again what definitions say. Raises NotFound where nothing was set, Invalid."""
        place = self._place(scope, kind, is_rate=None)
        config = self._overrides.get(place) or LimitConfig(*place)
        if (without := config.without_override(key)) is config:
            raise NotFound(f"nothing was set for the limit {quoted(scope)}")
        self._overrides[place] = without
        self._turn_all(place)

    def _place(self, scope: str, kind: str | None, *, is_rate: bool | None) -> Place:
        """The one limit that is meant. Its rate is another limit than the number at a time."""
        named = {one.place for found in self._engine.catalog.newest() for one in named_limits(found.definition)}
        fitting = sorted(
            place
            for place in named
            if place[1] == scope and kind in (None, place[0]) and is_rate in (None, place[0] is LimitKind.RATE)
        )
        if not fitting:
            raise NotFound(f"no limit of this kind has the scope {quoted(scope)}")
        if len(fitting) > 1:
            kinds = " ".join(place[0] for place in fitting)
            raise Invalid(f"the scope {quoted(scope)} has limits of several kinds: say kind, one of {kinds}")
        return fitting[0]

    def _turn_all(self, place: Place) -> None:
        for limit_id, state in self._states.items():
            if state.name is not None and (state.name.kind, state.name.scope) == place:
                self._plan_turn(limit_id, self._engine.timeline.now)

    def _take(self, limit_id: str, record: LimitRecord) -> None:
        self._fold(limit_id, record)
        self._plan_turn(limit_id, self._engine.timeline.now)

    def _plan_turn(self, limit_id: str, when: float) -> None:
        if (planned := self._turns.get(limit_id)) is not None:
            planned.drop()
        self._turns[limit_id] = self._engine.timeline.at(when, lambda: self._turn(limit_id))

    def _turn(self, limit_id: str) -> None:
        state, now = self._states[limit_id], self._engine.timeline.now
        if state.name is None or state.allowed is None:
            return
        allowed = allowed_now(self._overrides, state.name, state.allowed)
        if (decided := allot(state, allowed, now)) is not None:
            seq = self._fold(limit_id, decided)
            for event, message_id in news(decided, limit_id, seq):
                self._engine.append(event, message_id)
            mark_told(state, seq)
        if (at := next_at(state, allowed)) is not None:
            self._plan_turn(limit_id, at)

    def _fold(self, limit_id: str, record: LimitRecord) -> int:
        self._seq += 1
        fold(self._states.setdefault(limit_id, LimitState()), record, self._seq)
        return self._seq


def _asking(of: RunInMemory, plan: StepPlan | None, wanted: SlotsPlan, number: int) -> Asking:
    """What the expressions of the limit with this number come to. Raises ExpressionFailed."""
    expressions = asking_expressions(wanted, number)
    if not expressions:
        return asking(wanted, number, {})
    values = _named(of, plan, wanted, number)
    results = {what: one.json(names_for(of.known, plan, one.references, values)) for what, one in expressions.items()}
    return asking(wanted, number, results)


def _named(of: RunInMemory, plan: StepPlan | None, wanted: SlotsPlan, number: int) -> dict[str, Raw]:
    reads = read_by(asking_expressions(wanted, number))
    values = {name: whole(value, of.event_at) for name, value in needed_by(of.known, plan, reads).items()}
    if plan is not None and plan.item is not None:
        values["item"] = payloads(of.whole, of.known, plan, of.event_at)["item"]
    return values
