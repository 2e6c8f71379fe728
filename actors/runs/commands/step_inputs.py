"""What a step of a run was given, or would be given now: worked out again from the run, as when it began."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

from msgspec import Raw

from penstock.actors.runs.commands.step_values import VALUE_BYTES_MAX, StepValues
from penstock.actors.runs.outputs import Outputs, events_of, is_light
from penstock.actors.runs.shared.lease import ShardLease
from penstock.broker.store import Store
from penstock.config.process.byte_gate import Share
from penstock.engine.errors import Invalid, NotFound
from penstock.engine.run.execution.beginning import heavy, received
from penstock.engine.run.expansion import expanded
from penstock.engine.run.state import Run, StepStatus
from penstock.engine.run.workflow import StepPlan, Workflow

WAITING = frozenset({StepStatus.PENDING})


Take: TypeAlias = Callable[[], Awaitable[Share]]
"""Waits until large payloads may be read. Raises Unavailable."""


class _HeldShare(AbstractAsyncContextManager[None]):
    """Of one request: taken when the first large payload is about to be read, and not given back when it has been: it
    is still there."""

    def __init__(self, take: Take) -> None:
        self._take = take
        self.share: Share | None = None

    async def __aenter__(self) -> None:
        self.share = self.share or await self._take()

    async def __aexit__(self, *error: object) -> None:
        pass


class StepInputs:
    """Belongs to a process that reads runs, and to no shard: nothing that it does changes a run."""

    def __init__(self, store: Store, take: Take) -> None:
        self._store, self._take = store, take
        self._lease = ShardLease()
        self._lease.renewed(math.inf)  # nobody else reads in its place

    async def of(self, run: Run, workflow: Workflow, step_id: str) -> tuple[Raw, Share | None]:
        """The input of the step, an element of a map, a handler or a compensation, of its last execution; of a step
        without a task what its expressions read by default. With it, if large payloads were read, what was taken for
        them: the caller gives it back.

        Raises NotFound when the run has no such step, or it waits for others; Invalid for an expression that would
        have to be evaluated too long for a reader, TooLarge, Unavailable.
        """
        workflow = expanded(workflow, run)
        plan, step = workflow.plan_of(step_id), run.find(step_id)
        if plan is None or step is None:
            raise NotFound(f'run {run.run_id} has no step "{step_id}"')
        if step.status in WAITING:
            raise NotFound(f'step "{step_id}" of run {run.run_id} has no input yet: it waits for other steps')
        admission = _HeldShare(self._take)
        try:
            return await self._of(run, workflow, plan, admission), admission.share
        except BaseException:
            if admission.share is not None:
                admission.share.give_back()
            raise

    async def _of(self, run: Run, workflow: Workflow, plan: StepPlan, admission: _HeldShare) -> Raw:
        outputs, values = Outputs(await events_of(self._store, run), run.run_id), StepValues(self._lease, admission)
        async with values.evaluator:
            payloads = await values.given(workflow, run, plan, outputs)
        if heavy(plan, run, payloads):
            raise Invalid(f'step "{plan.id}": its expressions take too long to be evaluated for a reader')
        value = received(workflow, run, plan, payloads)
        if not is_light(value):
            async with admission:
                return await outputs.whole(value, VALUE_BYTES_MAX)
        return await outputs.whole(value, VALUE_BYTES_MAX)
