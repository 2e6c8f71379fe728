"""From a delivery to a task in a worker's hands."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress

import orjson
from msgspec import UNSET, Raw, Struct, UnsetType

from penstock.broker import facts, names
from penstock.broker.leases import Lease
from penstock.broker.reception import Unreadable, given_up, refuse, return_unworked, task_in
from penstock.broker.store import Store
from penstock.broker.tasks import TaskPayload
from penstock.engine.errors import PenstockError, Unavailable
from penstock.http.bridge_leases import HeldLeases
from penstock.http.bridge_queue import Taken
from penstock.http.bridge_starts import Starts


class PolledTask(Struct, frozen=True):
    """TaskPayload and what the bridge adds: the task type, how often this attempt was delivered, the step's last checkpoint."""

    task_id: str
    run_id: str
    step_id: str
    iteration: int
    attempt: int
    input: Raw
    workflow_name: str
    task: str
    metadata: dict[str, str] | UnsetType = UNSET
    step_type: str | UnsetType = UNSET
    deliveries: int | UnsetType = UNSET
    checkpoint: Raw | UnsetType = UNSET


class Handing:
    """Owned by the bridge."""

    def __init__(self, store: Store, held: HeldLeases, starts: Starts) -> None:
        self._store, self._held, self._starts = store, held, starts

    async def hand_out(self, taken: Sequence[Taken], worker_id: str | None) -> list[PolledTask]:
        """The tasks, leased and told to their histories; without those that nobody can carry out. What cannot be leased is given
        back. Raises Unavailable when that is so for all."""
        if len(taken) == 1:
            found = [await self._try(taken[0], worker_id)]
        else:
            found = await asyncio.gather(*(self._try(one, worker_id) for one in taken))
        tasks = [task for task in found if isinstance(task, PolledTask)]
        if not tasks:
            for task in found:
                if isinstance(task, PenstockError):
                    raise task
        return tasks

    async def take_back(self, tasks: Sequence[PolledTask]) -> None:
        """For tasks that could not be handed out after all."""
        for task in tasks:
            self._starts.never(task.task_id)
            kept = await self._held.get(task.task_id)
            if kept is not None and self._held.let_go(kept):
                await self._store.leases.delete(kept)
                with suppress(Unavailable):  # then its ack wait brings it back
                    await self._store.pauses.give_back(kept.lease, self._store.leases.delivery(kept.lease))

    async def _try(self, taken: Taken, worker_id: str | None) -> PolledTask | PenstockError | None:
        try:
            return await self._hand_out(taken, worker_id)
        except BaseException as error:
            with suppress(PenstockError):
                await return_unworked(self._store, taken.delivery)
            if isinstance(error, PenstockError):
                return error
            raise

    async def _hand_out(self, taken: Taken, worker_id: str | None) -> PolledTask | None:
        delivery = taken.delivery
        try:
            task = task_in(delivery)
        except Unreadable as error:
            await refuse(self._store, taken.task, delivery, worker_id, str(error))
            return None
        if await given_up(self._store, task, delivery, worker_id):
            return None
        checkpoint = await self._checkpoint(task, delivery.deliveries)
        await self._held.begin(self._lease(task, delivery.reply, worker_id))
        self._starts.later(task.task_id, facts.started(task, worker_id))
        return _polled(task, taken.task, delivery.deliveries, checkpoint)

    def _lease(self, task: TaskPayload, reply: str, worker_id: str | None) -> Lease:
        execution = (task.run_id, task.step_id, task.attempt, task.iteration)
        return Lease(*execution, reply, worker_id or "", time.time(), holder=self._held.holder)

    async def _checkpoint(self, task: TaskPayload, deliveries: int) -> bytes | None:
        """JSON only: others write there too. The first execution of all has none, so nobody looks."""
        if task.attempt == 1 and task.iteration == 0 and deliveries == 1:
            return None
        entry = await self._store.checkpoints.get(names.step_key(task.run_id, task.step_id))
        return entry.value if entry is not None and _is_json(entry.value) else None


def _polled(task: TaskPayload, task_type: str, deliveries: int, checkpoint: bytes | None) -> PolledTask:
    return PolledTask(
        task.task_id,
        task.run_id,
        task.step_id,
        task.iteration,
        task.attempt,
        task.input,
        task.workflow_name,
        task_type,
        task.metadata or UNSET,
        UNSET if task.step_type == "normal" else task.step_type,
        UNSET if deliveries == 1 else deliveries,
        UNSET if checkpoint is None else Raw(checkpoint),
    )


def _is_json(body: bytes) -> bool:
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    return True
