"""What workers had in hand, or waited for them, when a backup was made: the queues of tasks are not in it.

Each such task is reported to its run as a fired timer, and the engine then orders the same attempt again. A worker that
still carries one out may report its end all the same: one end counts.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

from penstock.actors.runs.loading import load_many
from penstock.broker import names
from penstock.broker.store import Store
from penstock.engine.run.event_payloads import TimerRef
from penstock.engine.run.events import (
    Malformed,
    TimerFired,
    WorkflowCancelled,
    WorkflowCompleted,
    WorkflowFailed,
    decode,
)
from penstock.engine.run.items import ItemStatus
from penstock.engine.run.state import RUN_OPEN, Run, StepState
from penstock.engine.run.timers import is_out, restored_timer
from penstock.engine.times import rfc3339

PAGE = 500  # runs that are read together
ENDS = WorkflowCompleted | WorkflowCancelled | WorkflowFailed


async def order_again(store: Store, note: Callable[[Run], Awaitable[None]]) -> int:
    """Have every task ordered again that was out. Returns how many. `note` is called for each run that may go on, as it
    was before that. Raises Unavailable."""
    count = 0
    async for run_ids in _pages(store):
        for run in await load_many(store, await _may_be_open(store, run_ids)):
            await note(run)
            for event in _events(run):
                await store.history.append(event)
                count += 1
    return count


async def _pages(store: Store) -> AsyncIterator[list[str]]:
    run_ids = await store.history.run_ids()
    for at in range(0, len(run_ids), PAGE):
        yield run_ids[at : at + PAGE]


async def _may_be_open(store: Store, run_ids: list[str]) -> list[str]:
    """The runs whose last event is not their end."""
    subjects = [names.stored_subject(run_id) for run_id in run_ids]
    last = {one.subject: one.data for one in await store.reader.last(names.HISTORY, subjects)}
    return [
        run_id
        for run_id, subject in zip(run_ids, subjects, strict=True)
        if subject in last and not _is_end(last[subject])
    ]


def _is_end(body: bytes) -> bool:
    try:
        return isinstance(decode(body), ENDS)
    except Malformed:
        return False


def _events(run: Run) -> Iterator[TimerFired]:
    if run.status not in RUN_OPEN:
        return
    for step_id, step in _executions(run):
        if is_out(step) and not _is_without_worker(step):
            ref = TimerRef(timer=restored_timer(step_id, step), step_id=step_id, attempt=step.attempts)
            yield TimerFired(run_id=run.run_id, timestamp=rfc3339(time.time()), payload=ref)


def _is_without_worker(step: StepState) -> bool:
    """Whether the step waits for something else than a worker: what it waits for is in the backup."""
    others = (step.items, step.wake_at, step.waits_for, step.child_run_id, step.token)
    return any(other is not None for other in others)


def _executions(run: Run) -> Iterator[tuple[str, StepState]]:
    """Every step, and the elements of maps that were ordered."""
    for step_id, step in run.steps.items():
        yield step_id, step
        if step.items is not None:
            ordered = (ItemStatus.QUEUED, ItemStatus.RUNNING)
            numbers = (number for number, element in step.items.numbered() if element.status in ordered)
            yield from ((item, run.step(item)) for item in (f"{step_id}.{number}" for number in numbers))
