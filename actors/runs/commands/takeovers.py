"""Takes over steps for a rerun: copies them out of the history of the run that it repeats, outputs whole.

What the run has taken over already is not sent again. So it may be carried out any number of times.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple

from msgspec import UNSET, Raw, UnsetType

from penstock.actors.runs.loading import load, records
from penstock.actors.runs.outputs import Outputs
from penstock.actors.runs.shared.lease import ShardLease
from penstock.broker.store import Store
from penstock.config.limits import KIB, MIB
from penstock.config.process.crash_points import reached
from penstock.engine.errors import NotFound
from penstock.engine.run.event_payloads import Fragment, TakenStep
from penstock.engine.run.events import (
    ChildEnded,
    Event,
    PlannerExpanded,
    Record,
    StepFailed,
    StepTakenOver,
)
from penstock.engine.run.execution.deliveries import began_at
from penstock.engine.run.execution.inputs import output_of
from penstock.engine.run.items import Items, ItemStatus
from penstock.engine.run.payloads import child_problem, payload_of, size_of, too_large
from penstock.engine.run.state import ITEM_STEP, Run, StepState, StepStatus
from penstock.engine.texts import shortened
from penstock.engine.times import rfc3339

RUNS_AT_ONCE = 16
LIGHT_BYTES_MAX = 64 * KIB
OUTPUT_BYTES_MAX = 64 * MIB  # the broker refuses what does not fit one message
FORMAT = 2  # of the events: versions that read format 1 only would take them for malformed
DONE_ELEMENTS = frozenset({ItemStatus.COMPLETED, ItemStatus.FAILED})


class Ended(NamedTuple):
    """An element of a map that has ended: the events that began it, if there is one, and that ended it."""

    number: int
    begun: Event | None
    record: Record


class Takeovers:
    """Owned by a shard. `heavy` is held for each step with a large output, from reading it until it is stored."""

    def __init__(self, store: Store, lease: ShardLease, heavy: asyncio.Semaphore) -> None:
        self._store, self._lease, self._heavy = store, lease, heavy
        self._gate = asyncio.Semaphore(RUNS_AT_ONCE)

    async def carry_out(self, run: Run) -> None:
        """Append every step that is still to be taken over. Raises NotFound when one is gone, Unavailable."""
        assert run.taking is not None, "the run is to take over steps"
        async with self._gate:
            first = (await load(self._store, run.rerun_of or "")).run
            if first is None:
                raise NotFound(f"run {run.rerun_of}, whose steps it takes over, is not there any more")
            await self._plans(run, first)
            for step_id in run.taking.parts:
                await self._part(run, first, step_id, _step(first, step_id))
            reached("rerun.parts_taken")
            await self._done(run, first, run.taking.done)

    async def _plans(self, run: Run, first: Run) -> None:
        """The plans of planners, an outer one before those in it."""
        assert run.taking is not None
        wanted = {*run.taking.done, *run.taking.parts} - run.fragments.keys()
        for step_id in first.fragments:
            if step_id in wanted:
                await self._send(expanded_again(run.run_id, first, step_id))

    async def _part(self, run: Run, first: Run, step_id: str, step: StepState) -> None:
        """The elements of a map that have completed, or that a planner's plan is being carried out."""
        if step.items is None:
            taken = TakenStep(StepStatus.RUNNING, attempts=step.attempts, started_at=step.started_at)
        else:
            await self._elements(run, first, step_id, step.items, frozenset({ItemStatus.COMPLETED}))
            taken = TakenStep(StepStatus.PENDING, items=step.items.total)
        await self._send(_event(run, step_id, taken, step.worker_id))

    async def _done(self, run: Run, first: Run, step_ids: tuple[str, ...]) -> None:
        answers: list[asyncio.Future[bytes]] = []
        outputs = Outputs(self._store.history, first.run_id)
        for step_id in step_ids:
            step = _step(first, step_id)
            items = None if step.status is not StepStatus.COMPLETED or step.overridden else step.items
            if items is not None:
                await self._elements(run, first, step_id, items, DONE_ELEMENTS)
                answers += await self._put(_event(run, step_id, _taken(step, UNSET, items.total), step.worker_id))
                continue
            value = output_of(first, step_id)
            if step.parts or (step.output is UNSET and step.output_at is None):
                answers += await self._put(_event(run, step_id, _taken(step, UNSET), step.worker_id))
            elif size_of(value) <= LIGHT_BYTES_MAX:
                whole = await outputs.whole(value, OUTPUT_BYTES_MAX)
                answers += await self._put(_event(run, step_id, _taken(step, whole), step.worker_id))
            else:
                async with self._heavy:
                    whole = await outputs.whole(value, OUTPUT_BYTES_MAX)
                    await self._send(_event(run, step_id, _taken(step, whole), step.worker_id))
        await _stored(answers)

    async def _elements(self, run: Run, first: Run, map_id: str, items: Items, wanted: frozenset[ItemStatus]) -> None:
        """The elements of a map in these statuses, each as it has ended."""
        known = run.steps.get(map_id)  # None: its plan was appended just now
        there = None if known is None else known.items
        missing = {
            number: element.begun
            for number, element in items.numbered()
            if element.status in wanted and (there is None or there.get(number).status == ItemStatus.WAITING)
        }
        answers: list[asyncio.Future[bytes]] = []
        async for ended in self._ended(first, items, missing):
            element = items.get(ended.number)
            taken = _taken_element(ended, ITEM_STEP[element.status], element.attempts, items.total)
            worker = getattr(ended.begun or ended.record.event, "worker_id", None)
            answers += await self._put(_event(run, f"{map_id}.{ended.number}", taken, worker, ended.number))
            missing.pop(ended.number, None)
        await _stored(answers)
        if missing:
            raise NotFound(f"{len(missing)} elements of map {map_id} of run {first.run_id} are not there any more")

    async def _ended(self, first: Run, items: Items, missing: Mapping[int, int]) -> AsyncIterator[Ended]:
        ends = {items.get(number).begun + items.get(number).ended: number for number in missing}
        begins = {begun: number for number, begun in missing.items() if begun}
        begun: dict[int, Event] = {}
        left = len(ends)
        if not left:
            return
        async for page in self._store.history.pages(first.run_id, min((*ends, *begins)) - 1):
            for record in records([one for one in page if one.seq in ends or one.seq in begins]):
                if record.seq in begins:
                    begun[begins[record.seq]] = record.event
                if record.seq in ends:
                    left -= 1
                    yield Ended(ends[record.seq], begun.pop(ends[record.seq], None), record)
            if not left:
                return

    async def _put(self, event: StepTakenOver) -> list[asyncio.Future[bytes]]:
        """Append without waiting for the answer."""
        publisher = self._store.publisher
        if publisher.full:
            await publisher.room()
        self._lease.check()
        return [self._store.history.send(event)]

    async def _send(self, event: Event) -> None:
        self._lease.check()
        await self._store.history.send(event)


def expanded_again(new_id: str, first: Run, planner: str) -> PlannerExpanded:
    """The plan of a planner of the first run, for a run that takes it over."""
    return PlannerExpanded(
        run_id=new_id,
        step_id=planner,
        timestamp=_now(),
        attempt_number=first.steps[planner].attempts,
        payload=Fragment(first.fragments[planner]),
    )


async def _stored(answers: list[asyncio.Future[bytes]]) -> None:
    for answer in answers:
        await answer
        reached("rerun.step_taken")


def _step(first: Run, step_id: str) -> StepState:
    found = first.steps.get(step_id)
    if found is None:
        raise NotFound(f'step "{step_id}" of run {first.run_id} is not there any more')
    return found


def _event(run: Run, step_id: str, taken: TakenStep, worker: str | None, item: int | None = None) -> StepTakenOver:
    return StepTakenOver(
        run_id=run.run_id, step_id=step_id, timestamp=_now(), worker_id=worker, item=item, payload=taken, v=FORMAT
    )


def _taken(step: StepState, output: Raw | UnsetType, items: int | None = None) -> TakenStep:
    return TakenStep(
        step.status,
        output,
        step.error,
        step.attempts,
        step.iteration,
        step.started_at,
        step.finished_at,
        step.child_run_id,
        step.received,
        items,
    )


def _taken_element(ended: Ended, status: StepStatus, attempts: int, total: int) -> TakenStep:
    event, error, output = ended.record.event, None, payload_of(ended.record.event)
    child = event.payload.run_id if isinstance(event, ChildEnded) else None
    match event:
        case StepTakenOver(payload=before):
            return TakenStep(
                status, before.output, before.error, attempts, 0, before.started_at, before.finished_at,
                before.child_run_id, None, total,
            )  # fmt: skip
        case StepFailed():
            error = shortened(event.payload.error)
        case ChildEnded():
            error = shortened(child_problem(event.payload) or "") or None
    began = began_at(ended.begun or event)
    error = error or too_large("the output", output)
    given = UNSET if error is not None else output
    return TakenStep(status, given, error, attempts, 0, began, event.timestamp, child, None, total)


def _now() -> str:
    return rfc3339(time.time())
