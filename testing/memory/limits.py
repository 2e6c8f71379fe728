"""Limits in memory: what runs ask of them is folded, and decided by the same functions as in the service."""

from __future__ import annotations

from msgspec import Raw

from penstock.actors.runs.limits.news import news
from penstock.engine.errors import ExpressionFailed
from penstock.engine.expressions.places import WHEN
from penstock.engine.limits.allot import allot, next_at
from penstock.engine.limits.fold import fold, mark_told
from penstock.engine.limits.names import LimitName
from penstock.engine.limits.records import LimitRecord, Released, Requested
from penstock.engine.limits.state import LimitState
from penstock.engine.run.commands import BeginStep, ReleaseSlot, RequestSlot
from penstock.engine.run.event_payloads import RunFailure, SlotGrant
from penstock.engine.run.events import LimitGranted, WorkflowFailed
from penstock.engine.run.execution.beginning import applies, failed_to_begin, needed_by, skipped
from penstock.engine.run.slots.asking import Asking, asking, asking_expressions, names_for, read_by
from penstock.engine.run.slots.holders import RUN, slots_of
from penstock.engine.run.slots.plans import SlotsPlan
from penstock.engine.run.workflow import StepPlan
from penstock.engine.times import rfc3339
from penstock.testing.memory.engine import EngineInMemory, RunInMemory
from penstock.testing.memory.payloads import payloads, whole
from penstock.testing.memory.timeline import DueAction

FORMAT = 3  # of `limit.granted`


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
        wanted, plan = _wanted(of, command)
        try:
            if plan is not None and not command.number and WHEN.path in plan.expressions:
                values = payloads(workflow, run, plan, of.event_at)
                if not applies(plan, run, values, {}):
                    self._engine.append(skipped(run, _beginning(command)))
                    return
            asked = _asking(of, plan, wanted, command.number)
        except ExpressionFailed as error:
            if plan is not None:
                self._engine.append(failed_to_begin(run, plan, _beginning(command), str(error)))
            else:
                failure = RunFailure(error=str(error), resumes=run.resumes)
                event = WorkflowFailed(run_id=run.run_id, timestamp=rfc3339(command.at), payload=failure)
                self._engine.append(event)
            return
        limit = wanted.limits[command.number]
        name = LimitName(limit.kind, limit.scope, asked.key)
        more = len(wanted.limits) - command.number - 1 if command.step_id is None else 0
        if name.id in run.under:
            self._engine.append(_inherited(run.run_id, command, name, more))
            return
        record = Requested(
            name=name,
            holder=command.holder,
            run_id=run.run_id,
            allowed=limit.allowed,
            step_id=command.step_id,
            priority=asked.priority,
            fair=asked.fair,
            on_limit=limit.on_limit,
            more=more,
        )
        self._take(name.id, record)

    def release(self, of: RunInMemory, command: ReleaseSlot) -> None:
        """Give the slot back, or what was asked for."""
        limit_id = command.limit_id
        if limit_id is None:
            wanted, plan = _wanted(of, command)
            try:
                asked = _asking(of, plan, wanted, command.number)
            except ExpressionFailed:  # it cannot have been asked for
                return
            limit = wanted.limits[command.number]
            limit_id = LimitName(limit.kind, limit.scope, asked.key).id
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


def _wanted(of: RunInMemory, command: RequestSlot | ReleaseSlot) -> tuple[SlotsPlan, StepPlan | None]:
    wanted = slots_of(of.whole, command.step_id or RUN)
    assert wanted is not None, "the engine asks for what is there"
    return wanted, None if command.step_id is None else of.whole.plan_of(command.step_id)


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


def _beginning(command: RequestSlot) -> BeginStep:
    assert command.step_id is not None
    return BeginStep(command.step_id, command.attempt, command.iteration, command.at)


def _inherited(run_id: str, command: RequestSlot, name: LimitName, more: int) -> LimitGranted:
    slot = SlotGrant(
        command.holder, name.id, name.kind.value, name.scope, name.key, command.step_id, inherited=True, more=more
    )
    return LimitGranted(run_id=run_id, timestamp=rfc3339(command.at), payload=slot, v=FORMAT)
