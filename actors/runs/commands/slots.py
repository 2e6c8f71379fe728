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
from penstock.engine.limits.records import Released
from penstock.engine.run.commands import ReleaseSlot, RequestSlot
from penstock.engine.run.events import LimitGranted
from penstock.engine.run.execution.beginning import applies, skipped
from penstock.engine.run.slots.asking import Asking, asking, asking_expressions, names_for, read_by
from penstock.engine.run.slots.plans import SlotsPlan
from penstock.engine.run.slots.requesting import beginning, failed_to_ask, limits_of, released_limit, request
from penstock.engine.run.state import Run
from penstock.engine.run.workflow import StepPlan, Workflow


class Slots:
    """Owned by the effects of a shard."""

    def __init__(self, store: Store, lease: ShardLease, values: StepValues) -> None:
        self._store, self._lease, self._values = store, lease, values

    async def request(
        self, workflow: Workflow, run: Run, command: RequestSlot, outputs: Outputs
    ) -> asyncio.Future[bytes]:
        """Ask for the slot. The future ends when that is stored, or what becomes of the execution instead: it is
        skipped, it fails, or it runs under the slot of an ancestor. Raises TooLarge, NotFound, Unavailable."""
        wanted, plan = limits_of(workflow, command)
        try:
            if plan is not None and not command.number and not await self._applies(workflow, run, plan, outputs):
                return self._store.history.send(skipped(run, beginning(command)))
            asked = await self._asking(workflow, run, plan, wanted, command.number, outputs)
        except ExpressionFailed as error:
            return self._store.history.send(failed_to_ask(run, plan, command, str(error)))
        found = request(run, wanted, command, asked)
        if isinstance(found, LimitGranted):
            return self._store.history.send(found)
        answer = await self._store.limit_log.request(found)
        reached("limit.asked")
        return answer

    async def release(
        self, workflow: Workflow, run: Run, command: ReleaseSlot, outputs: Outputs
    ) -> asyncio.Future[bytes] | None:
        """Give the slot back, or what was asked for. None: it cannot have been asked for."""
        limit_id = command.limit_id
        if limit_id is None:
            wanted, plan = limits_of(workflow, command)
            try:
                asked = await self._asking(workflow, run, plan, wanted, command.number, outputs)
            except ExpressionFailed:
                return None
            limit_id = released_limit(wanted, command, asked)
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
