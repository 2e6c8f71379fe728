"""What the beginning of an execution reads: the payloads that its expressions name, the element of a map that it is
for, and the results of expressions that may take long."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import cast

from msgspec import Raw

from penstock.actors.evaluation.evaluator import Evaluator
from penstock.actors.runs.commands.item_cache import ItemCache
from penstock.actors.runs.outputs import Outputs, is_light
from penstock.actors.runs.shared.lease import ShardLease
from penstock.config.limits import MIB
from penstock.config.process.crash_points import reached
from penstock.engine.errors import ExpressionFailed, NotFound, TooLarge
from penstock.engine.expressions.scope import References
from penstock.engine.run.event_payloads import NULL
from penstock.engine.run.execution.beginning import (
    DEFAULT,
    ITEM,
    about_completion,
    about_failure,
    first_given,
    heavy,
    needed,
    needed_by,
    received,
)
from penstock.engine.run.execution.elements import ended_seq
from penstock.engine.run.execution.inputs import output_of
from penstock.engine.run.kinds.map import items_of, map_of
from penstock.engine.run.payloads import Value
from penstock.engine.run.state import Run
from penstock.engine.run.workflow import COMPENSATE, StepPlan, Workflow

VALUE_BYTES_MAX = 64 * MIB  # of what an expression reads: an array of a map's outputs may be larger than a message


class StepValues:
    """Owned by a shard. `heavy` is held while large payloads are read and joined."""

    def __init__(self, lease: ShardLease, heavy: AbstractAsyncContextManager[object]) -> None:
        self._lease, self._heavy = lease, heavy
        self.evaluator = Evaluator()
        self._item_cache = ItemCache()

    async def given(self, workflow: Workflow, run: Run, plan: StepPlan, outputs: Outputs) -> dict[str, Raw]:
        """What beginning the execution reads: also the element that it is for, or what became of the step that it
        handles."""
        payloads = await self._payloads(run, plan, outputs)
        if plan.item is not None:
            items = await self._items(workflow, run, map_of(workflow, plan), outputs)
            payloads[ITEM] = items[plan.item]
        if plan.handles is not None:
            payloads[DEFAULT] = await self._about(workflow, run, plan, plan.handles, outputs)
        return payloads

    async def named(
        self, workflow: Workflow, run: Run, plan: StepPlan | None, reads: References, outputs: Outputs
    ) -> dict[str, Raw]:
        """What expressions beside the step's own read; `plan` is None for those of the workflow."""
        payloads = await self._whole(plan, needed_by(run, plan, reads), outputs)
        if plan is not None and plan.item is not None:
            items = await self._items(workflow, run, map_of(workflow, plan), outputs)
            payloads[ITEM] = items[plan.item]
        return payloads

    async def ready(self, run: Run, plan: StepPlan, payloads: Mapping[str, Raw]) -> dict[str, Raw | ExpressionFailed]:
        """Results of those of the step's expressions that may take long: they are evaluated outside this event loop."""
        results: dict[str, Raw | ExpressionFailed] = {}
        for path, (what, values) in heavy(plan, run, payloads).items():
            try:
                results[path] = Raw(await self.evaluator.json(what, values))
            except ExpressionFailed as error:
                results[path] = error
        if results:
            self._lease.check()
        return results

    async def _about(self, workflow: Workflow, run: Run, handler: StepPlan, step_id: str, outputs: Outputs) -> Raw:
        """The default input of what handles that step."""
        plan, undoes = workflow.plan_of(step_id), handler.kind.name == COMPENSATE
        assert plan is not None, "the step is there"
        run = first_given(run, plan) if undoes else run
        value = received(workflow, run, plan, await self.given(workflow, run, plan, outputs))
        output = await self._output(run, step_id, outputs) if undoes else NULL
        if not (is_light(value) and is_light(output)):
            async with self._heavy:
                value = await outputs.whole(value, VALUE_BYTES_MAX)
                output = await outputs.whole(output, VALUE_BYTES_MAX)
                self._lease.check()
        if undoes:
            reached("compensation.read")
        given, returned = cast(Raw, value), cast(Raw, output)
        return about_completion(given, returned) if undoes else about_failure(run, step_id, given)

    async def _output(self, run: Run, step_id: str, outputs: Outputs) -> Value:
        """The output of a step, or of an element of a map, which only the history has."""
        place = run.element(step_id)
        return await outputs.of_event(ended_seq(run, *place)) if place else output_of(run, step_id)

    async def _payloads(self, run: Run, plan: StepPlan, outputs: Outputs) -> dict[str, Raw]:
        """What beginning the step reads, as JSON."""
        return await self._whole(plan, needed(run, plan), outputs)

    async def _whole(self, plan: StepPlan | None, wanted: Mapping[str, Value], outputs: Outputs) -> dict[str, Raw]:
        if all(map(is_light, wanted.values())):
            return cast(dict[str, Raw], dict(wanted))
        async with self._heavy:
            try:
                payloads = {name: await outputs.whole(value, VALUE_BYTES_MAX) for name, value in wanted.items()}
            except (NotFound, TooLarge) as error:
                whose = "the limits of the run" if plan is None else f'step "{plan.id}"'
                raise type(error)(f"{whose} cannot be given its input: {error}") from error
            self._lease.check()
            return payloads

    async def _items(self, workflow: Workflow, run: Run, whole: StepPlan, outputs: Outputs) -> list[Raw]:
        """The elements of a map, which are worked out once for many."""
        key = (run.run_id, whole.id, run.step(whole.id).attempts)
        found = self._item_cache.get(key)
        if found is None:
            payloads = await self._payloads(run, whole, outputs)
            found = items_of(run, whole, payloads, await self.ready(run, whole, payloads))
            self._item_cache.put(key, found)
        return found
