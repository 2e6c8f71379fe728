"""From a delivery to a task in a worker's hands."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import orjson

from penstock.broker import names
from penstock.broker.records.leases import Lease
from penstock.broker.store import Store
from penstock.broker.worker_messages import TaskPayload
from penstock.broker.worker_protocol import reports
from penstock.broker.worker_protocol.bridge_messages import PolledTask, polled_task
from penstock.broker.worker_protocol.receiving import Unreadable, given_up, refuse, return_unworked, task_in
from penstock.config.process.background import all_of
from penstock.config.process.crash_points import reached
from penstock.engine.errors import PenstockError, Unavailable
from penstock.http.bridge.leases import HeldLeases
from penstock.http.bridge.queue import TakenDelivery
from penstock.http.bridge.starts import Starts


class _Ready(NamedTuple):
    """A task that a worker can carry out, and the step's last checkpoint."""

    taken: TakenDelivery
    task: TaskPayload
    checkpoint: bytes | None


class TaskHandout:
    """Owned by the bridge."""

    def __init__(self, store: Store, held: HeldLeases, starts: Starts) -> None:
        self._store, self._held, self._starts = store, held, starts

    async def hand_out(self, taken: Sequence[TakenDelivery], worker_id: str | None) -> list[PolledTask]:
        """The tasks, leased and told to their histories; without those that nobody can carry out. What cannot be leased
        is given back. Raises Unavailable when that is so for all."""
        firsts = [_first(one) for one in taken]
        ready = [one for one in firsts if one is not None]
        others = [one for one, first in zip(taken, firsts, strict=True) if first is None]
        try:
            found = await all_of(self._try(one, worker_id) for one in others) if others else []
            ready += [one for one in found if isinstance(one, _Ready)]
            if ready:
                await self._held.begin(self._lease(one, worker_id) for one in ready)
        except BaseException:
            for one in ready:
                await self._return(one.taken)
            raise
        if not ready:
            for error in found:
                if isinstance(error, PenstockError):
                    raise error
        for one in ready:
            reached("bridge.leased")
            started = reports.started(one.task, worker_id, delivery=one.taken.delivery.deliveries)
            self._starts.later(one.task.task_id, started)
        return [
            polled_task(one.task, one.taken.task, deliveries=one.taken.delivery.deliveries, checkpoint=one.checkpoint)
            for one in ready
        ]

    async def take_back(self, tasks: Sequence[PolledTask]) -> None:
        """For tasks that could not be handed out after all."""
        for task in tasks:
            self._starts.never(task.task_id)
            kept = await self._held.get(task.task_id)
            if kept is not None and self._held.let_go(kept):
                await self._store.leases.delete(kept)
                with suppress(Unavailable):  # then its ack wait brings it back
                    await self._store.pauses.give_back(kept.lease, self._store.leases.delivery(kept.lease))

    async def _try(self, taken: TakenDelivery, worker_id: str | None) -> _Ready | PenstockError | None:
        try:
            return await self._look_up(taken, worker_id)
        except BaseException as error:
            await self._return(taken)
            if isinstance(error, PenstockError):
                return error
            raise

    async def _look_up(self, taken: TakenDelivery, worker_id: str | None) -> _Ready | None:
        delivery = taken.delivery
        try:
            task = task_in(delivery)
        except Unreadable as error:
            await refuse(self._store, taken.task, delivery, worker_id, str(error))
            return None
        if await given_up(self._store, task, delivery, worker_id):
            return None
        return _Ready(taken, task, await self._checkpoint(task))

    async def _return(self, taken: TakenDelivery) -> None:
        with suppress(PenstockError):  # then its ack wait brings it back
            await return_unworked(self._store, taken.delivery)

    def _lease(self, ready: _Ready, worker_id: str | None) -> Lease:
        task = ready.task
        execution = (task.run_id, task.step_id, task.attempt, task.iteration)
        return Lease(*execution, ready.taken.delivery.reply, worker_id or "", time.time(), holder=self._held.holder)

    async def _checkpoint(self, task: TaskPayload) -> bytes | None:
        """JSON only: others write there too."""
        entry = await self._store.checkpoints.get(names.step_key(task.run_id, task.step_id))
        return entry.value if entry is not None and _is_json(entry.value) else None


def _first(taken: TakenDelivery) -> _Ready | None:
    """A task that is carried out for the first time of all: nobody can have stored anything about it. None for any
    other."""
    if taken.delivery.deliveries > 1:
        return None
    with suppress(Unreadable):
        task = task_in(taken.delivery)
        if task.attempt == 1 and task.iteration == 0:
            return _Ready(taken, task, None)
    return None


def _is_json(body: bytes) -> bool:
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    return True
