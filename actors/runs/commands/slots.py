"""Slots of limits are asked for and given back: messages to the limits' owners."""

from __future__ import annotations

import asyncio

from penstock.actors.runs.commands.step_values import StepValues
from penstock.actors.runs.outputs import Outputs
from penstock.actors.runs.shared.lease import ShardLease
from penstock.broker.store import Store
from penstock.config.process.crash_points import reached
from penstock.engine.errors import ExpressionFailed
from penstock.engine.expressions.places import WHEN
from penstock.engine.limits.names import LimitName
from penstock.engine.limits.records import Released, Requested
from penstock.engine.run.commands import BeginStep, ReleaseSlot, RequestSlot
from penstock.engine.run.event_payloads import RunFailure, SlotGrant
from penstock.engine.run.events import Event, LimitGranted, WorkflowFailed
from penstock.engine.run.execution.beginning import applies, failed_to_begin, skipped
from penstock.engine.run.slots.asking import Asking, asking, asking_expressions, names_for, read_by
from penstock.engine.run.slots.holders import RUN, slots_of
from penstock.engine.run.slots.plans import SlotsPlan
from penstock.engine.run.state import Run
from penstock.engine.run.workflow import StepPlan, Workflow
from penstock.engine.times import rfc3339

FORMAT = 3  # of a grant: older versions do not know it


class Slots:
    """Owned by the effects of a shard."""

    def __init__(self, store: Store, lease: ShardLease, values: StepValues) -> None:
        self._store, self._lease, self._values = store, lease, values

    async def request(
        self, workflow: Workflow, run: Run, command: RequestSlot, outputs: Outputs
    ) -> asyncio.Future[bytes]:
        """Ask for the slot. The future ends when that is stored, or what becomes of the execution instead: it is
        skipped, it fails, or it runs under the slot of an ancestor. Raises TooLarge, NotFound, Unavailable."""
        wanted = slots_of(workflow, command.step_id or RUN)
        assert wanted is not None, "the engine asks for what is there"
        plan = None if command.step_id is None else workflow.plan_of(command.step_id)
        try:
            if plan is not None and not command.number and not await self._applies(workflow, run, plan, outputs):
                return self._store.history.send(skipped(run, _beginning(command)))
            asked = await self._asking(workflow, run, plan, wanted, command.number, outputs)
        except ExpressionFailed as error:
            return self._store.history.send(_failed(run, plan, command, str(error)))
        limit = wanted.limits[command.number]
        name = LimitName(limit.kind, limit.scope, asked.key)
        if name.id in run.under:
            return self._store.history.send(_inherited(run, command, name, _more(wanted, command)))
        record = Requested(
            name=name,
            holder=command.holder,
            run_id=run.run_id,
            allowed=limit.allowed,
            step_id=command.step_id,
            priority=asked.priority,
            fair=asked.fair,
            on_limit=limit.on_limit,
            more=_more(wanted, command),
        )
        answer = await self._store.limit_log.request(record)
        reached("limit.asked")
        return answer

    async def release(
        self, workflow: Workflow, run: Run, command: ReleaseSlot, outputs: Outputs
    ) -> asyncio.Future[bytes] | None:
        """Give the slot back, or what was asked for. None: it cannot have been asked for."""
        limit_id = command.limit_id
        if limit_id is None:
            wanted = slots_of(workflow, command.step_id or RUN)
            assert wanted is not None, "the engine asks for what is there"
            plan = None if command.step_id is None else workflow.plan_of(command.step_id)
            try:
                asked = await self._asking(workflow, run, plan, wanted, command.number, outputs)
            except ExpressionFailed:
                return None
            limit = wanted.limits[command.number]
            limit_id = LimitName(limit.kind, limit.scope, asked.key).id
        return await self._store.limit_log.release(limit_id, Released(holder=command.holder, why=command.why))

    async def _applies(self, workflow: Workflow, run: Run, plan: StepPlan, outputs: Outputs) -> bool:
        """Whether the condition of the step holds, if it has one."""
        if WHEN.path not in plan.expressions:
            return True
        payloads = await self._values.given(workflow, run, plan, outputs)
        return applies(plan, run, payloads, await self._values.ready(run, plan, payloads))

    async def _asking(
        self, workflow: Workflow, run: Run, plan: StepPlan | None, wanted: SlotsPlan, number: int, outputs: Outputs
    ) -> Asking:
        """What the expressions of the limit with this number come to. Raises ExpressionFailed."""
        expressions = asking_expressions(wanted, number)
        results: dict[str, bytes] = {}
        if expressions:
            payloads = await self._values.named(workflow, run, plan, read_by(expressions), outputs)
            for what, expression in expressions.items():
                names = names_for(run, plan, expression.references, payloads)
                results[what] = await self._values.evaluator.json(expression, names)
            self._lease.check()
        return asking(wanted, number, results)


def _failed(run: Run, plan: StepPlan | None, command: RequestSlot, error: str) -> Event:
    """What becomes of an execution, or a run, that cannot ask for its slot."""
    if plan is not None:
        return failed_to_begin(run, plan, _beginning(command), error)
    failure = RunFailure(error=error, resumes=run.resumes)
    return WorkflowFailed(run_id=run.run_id, timestamp=rfc3339(command.at), payload=failure)


def _beginning(command: RequestSlot) -> BeginStep:
    assert command.step_id is not None
    return BeginStep(command.step_id, command.attempt, command.iteration, command.at)


def _more(wanted: SlotsPlan, command: RequestSlot) -> int:
    """How many limits a run asks after this one. Nobody asks that of an execution: its run goes on meanwhile."""
    return len(wanted.limits) - command.number - 1 if command.step_id is None else 0


def _inherited(run: Run, command: RequestSlot, name: LimitName, more: int) -> LimitGranted:
    """The grant of a slot that an ancestor of the run holds."""
    slot = SlotGrant(
        command.holder,
        name.id,
        name.kind.value,
        name.scope,
        name.key,
        command.step_id,
        inherited=True,
        more=more,
    )
    return LimitGranted(run_id=run.run_id, timestamp=rfc3339(command.at), payload=slot, v=FORMAT)
