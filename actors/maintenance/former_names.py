"""Former names: moves tasks that an older version queued under another subject to the subject used today.

That version queued tasks of type `a` with group `b` together with those of type `a.b`, and left the dots in worker ids.
The run's definition says which of them is meant. Every engine checks for such tasks; a task that two engines move at
once is carried out twice at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from msgspec import MsgspecError

from penstock.actors.maintenance.rounds import Throttle, repeat_rounds
from penstock.actors.runs.loading import load_many
from penstock.broker import message_ids, names
from penstock.broker.nats.direct import Stored
from penstock.broker.store import Store
from penstock.broker.streams.former_names import AMBIGUOUS
from penstock.broker.worker_messages import TaskPayload, decode
from penstock.broker.worker_protocol.receiving import return_unworked
from penstock.config.logging import get_logger
from penstock.engine.errors import NotFound
from penstock.engine.run.expansion import expanded
from penstock.engine.run.state import STEP_OUT, Run

EVERY_S = 10.0
OLD_S = 60.0  # younger tasks are checked later: nearly all of them have been carried out by then
CHECKED_MAX = 200  # tasks whose runs are read at a time

log = get_logger()


class _Misnamed(NamedTuple):
    """A task and its subject of today; None: its step does not wait for it any more."""

    stored: Stored
    task: TaskPayload
    subject: str | None
    type: str
    worker_id: str | None


async def watch_former_names(store: Store) -> NoReturn:
    """Move misnamed tasks every EVERY_S, for ever."""
    tasks = FormerNameMover(store)

    async def check(throttle: Throttle) -> None:
        await tasks.move(await store.history.now() - OLD_S)

    await repeat_rounds("former_names", check, EVERY_S)


class FormerNameMover:
    """Remembers up to which sequence all tasks are checked: each task is checked once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._from = dict.fromkeys(AMBIGUOUS, 1)

    async def move(self, stored_before: float) -> int:
        """Move misnamed tasks that were stored before this time (of the broker, s). Returns how many. Raises
        Unavailable."""
        moved = 0
        for stream, from_seq in list(self._from.items()):
            page = await self._store.former_names.ambiguous(stream, from_seq)
            old = [one for one in page[:CHECKED_MAX] if one.at < stored_before]
            if old:
                misnamed = await self._misnamed(stream, old)
                done = await (self._move_queued(misnamed) if stream == names.TASKS else self._move_bound(misnamed))
                self._from[stream] = min(
                    (one.stored.seq for one in misnamed if one.stored.seq not in done), default=old[-1].seq + 1
                )
                moved += len(done)
        return moved

    async def _misnamed(self, stream: str, stored: Sequence[Stored]) -> list[_Misnamed]:
        tasks = [(one, task) for one in stored if (task := _readable(one)) is not None]
        runs = {run.run_id: run for run in await load_many(self._store, sorted({task.run_id for _, task in tasks}))}
        found = []
        for one, task in tasks:
            run = runs.get(task.run_id)
            if run is not None and (belongs := await self._belongs(stream, one, task, run)) is not None:
                found.append(belongs)
        return found

    async def _belongs(self, stream: str, stored: Stored, task: TaskPayload, run: Run) -> _Misnamed | None:
        """The task with its subject of today; None if it has that already."""
        try:
            workflow = await self._store.definitions.load(run.workflow_id, run.digest)
            plan = expanded(workflow, run).plan_of(task.step_id)
        except NotFound:
            return None
        if plan is None:
            return None
        step = run.step(task.step_id)
        wanted = step.status in STEP_OUT and (step.attempts, step.iteration) == (task.attempt, task.iteration)
        if stream == names.TASKS:
            subject = names.task_subject(plan.task, run.run_id, plan.group)
            return (
                None
                if subject == stored.subject
                else _Misnamed(stored, task, subject if wanted else None, plan.task, None)
            )
        worker_id = step.sticky or run.bound
        if worker_id is None or names.sticky_subject(plan.task, worker_id, run.run_id) == stored.subject:
            return None
        wanted = wanted and step.sticky is not None
        subject = names.sticky_subject(plan.task, worker_id, run.run_id)
        return _Misnamed(stored, task, subject if wanted else None, plan.task, worker_id)

    async def _move_queued(self, misnamed: Sequence[_Misnamed]) -> set[int]:
        """Move tasks that no worker holds or asks for where they are. Returns the sequences of what was moved."""
        moved: set[int] = set()
        queues: dict[str, list[_Misnamed]] = {}
        for one in misnamed:
            queues.setdefault(names.task_of(one.stored.subject)[0], []).append(one)
        for queue in queues.values():
            free = await self._store.former_names.free(queue[0].stored)
            seqs = {one.stored.seq for one in queue} if free is None else {delivery.seq for delivery in free}
            for delivery in free or ():
                if delivery.seq not in {one.stored.seq for one in queue}:
                    await return_unworked(self._store, delivery)
            moved |= {await self._move(names.TASKS, one) for one in queue if one.stored.seq in seqs}
        return moved

    async def _move_bound(self, misnamed: Sequence[_Misnamed]) -> set[int]:
        moved: set[int] = set()
        for one in misnamed:
            assert one.worker_id is not None
            if not await self._store.former_names.is_bound(one.stored, one.type, one.worker_id):
                moved.add(await self._move(names.STICKY, one))
        return moved

    async def _move(self, stream: str, one: _Misnamed) -> int:
        task = one.task
        log.info("task_moved", run_id=task.run_id, step_id=task.step_id, subject=one.stored.subject, to=one.subject)
        message_id = message_ids.of_task(task.run_id, task.step_id, task.iteration, task.attempt)
        await self._store.former_names.move(stream, one.stored, one.subject, message_id)
        return one.stored.seq


def _readable(stored: Stored) -> TaskPayload | None:
    """The task, or None: what is no task stays where it is, its receiver makes it a dead letter."""
    try:
        return decode(stored.data)
    except MsgspecError:
        return None
