"""Limits in memory: what runs ask of them is folded, and decided by the same functions as in the service."""

from __future__ import annotations

from msgspec import Raw

from penstock.actors.runs.limits.news import news
from penstock.engine.errors import ExpressionFailed
from penstock.engine.expressions.places import WHEN
from penstock.engine.limits.allot import allot, next_at
from penstock.engine.limits.fold import fold, mark_told
from penstock.engine.limits.records import LimitRecord, Released
from penstock.engine.limits.state import LimitState
from penstock.engine.run.commands import ReleaseSlot, RequestSlot
from penstock.engine.run.events import LimitGranted
from penstock.engine.run.execution.beginning import applies, needed_by, skipped
from penstock.engine.run.slots.asking import Asking, asking, asking_expressions, names_for, read_by
from penstock.engine.run.slots.plans import SlotsPlan
from penstock.engine.run.slots.requesting import beginning, failed_to_ask, limits_of, released_limit, request
from penstock.engine.run.workflow import StepPlan
from penstock.testing.memory.engine import EngineInMemory, RunInMemory
from penstock.testing.memory.payloads import payloads, whole
from penstock.testing.memory.timeline import DueAction


class LimitsInMemory:
    """Owned by a service in memory."""

    def __init__(self, engine: EngineInMemory) -> None:
        self._engine = engine
        self._states: dict[str, LimitState] = {}
        self._turns: dict[str, DueAction] = {}
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

    def _take(self, limit_id: str, record: LimitRecord) -> None:
        self._fold(limit_id, record)
        self._plan_turn(limit_id, self._engine.timeline.now)

    def _plan_turn(self, limit_id: str, when: float) -> None:
        if (planned := self._turns.get(limit_id)) is not None:
            planned.drop()
        self._turns[limit_id] = self._engine.timeline.at(when, lambda: self._turn(limit_id))

    def _turn(self, limit_id: str) -> None:
        state, now = self._states[limit_id], self._engine.timeline.now
        allowed = state.allowed
        if state.name is None or allowed is None:
            return
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
