"""Whether an event meets the condition of the step that waits for it."""

from __future__ import annotations

from collections import OrderedDict
from types import TracebackType
from typing import Self

from msgspec import Raw

from penstock.actors.evaluation.evaluator import Evaluator
from penstock.actors.runs.loading import load
from penstock.actors.runs.outputs import Outputs
from penstock.broker.records.event_waits import WaitRecord
from penstock.broker.store import Store
from penstock.config.limits import MIB
from penstock.engine.errors import ExpressionFailed, NotFound, TooLarge
from penstock.engine.expressions.expression import Expression
from penstock.engine.run.execution.beginning import names_of, needed_by
from penstock.engine.run.kinds.wait_for_event import MATCH
from penstock.engine.run.state import Run
from penstock.engine.run.workflow import StepPlan

READ_BYTES_MAX = 64 * MIB
CACHE_BYTES_MAX = 16 * MIB
ENTRY_BYTES = 2_000  # of a cached condition beside its values


class _Condition:
    """A compiled condition, with the run and the values that it reads beside the event."""

    def __init__(self, run: Run, plan: StepPlan, payloads: dict[str, Raw]) -> None:
        self.run, self.plan, self.payloads = run, plan, payloads
        self.size = ENTRY_BYTES + sum(memoryview(payload).nbytes for payload in payloads.values())


class EventMatching:
    """Owned by the waits of a shard. What conditions read is kept for those that were evaluated last: it never
    changes."""

    def __init__(self, store: Store) -> None:
        self._store, self._evaluator = store, Evaluator()
        self._conditions: OrderedDict[str, _Condition] = OrderedDict()
        self._bytes = 0

    async def __aenter__(self) -> Self:
        await self._evaluator.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._evaluator.__aexit__(kind, error, trace)

    async def holds(self, record: WaitRecord, body: bytes) -> bool:
        """Whether the condition is true; not if it fails, nor if the run is gone. Raises Unavailable."""
        found = await self._condition(record)
        if found is None:
            return False
        condition = found.plan.later[MATCH]
        assert isinstance(condition, Expression)
        payloads = {**found.payloads, "event": Raw(body)}
        try:
            values = names_of(found.run, found.plan, condition.references, payloads)
            return await self._evaluator.holds(condition, values)
        except ExpressionFailed:
            return False

    def forget(self, record: WaitRecord) -> None:
        """The wait is over."""
        found = self._conditions.pop(record.key, None)
        self._bytes -= 0 if found is None else found.size

    async def _condition(self, record: WaitRecord) -> _Condition | None:
        found = self._conditions.get(record.key) or await self._read(record)
        if found is not None:
            self.forget(record)
            self._conditions[record.key] = found
            self._bytes += found.size
            while self._bytes > CACHE_BYTES_MAX and len(self._conditions) > 1:
                self._bytes -= self._conditions.popitem(last=False)[1].size
        return found

    async def _read(self, record: WaitRecord) -> _Condition | None:
        loaded = await load(self._store, record.run_id)
        plan = None if loaded.workflow is None else loaded.workflow.plan_of(record.step_id)
        if loaded.run is None or plan is None or MATCH not in plan.later:
            return None
        outputs = Outputs(self._store.history, record.run_id)
        wanted = needed_by(loaded.run, plan, plan.later[MATCH].references)
        try:
            payloads = {name: await outputs.whole(value, READ_BYTES_MAX) for name, value in wanted.items()}
        except (NotFound, TooLarge):
            return None
        return _Condition(loaded.run, plan, payloads)
