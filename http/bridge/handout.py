"""Assigns tasks: from the deliveries that a poll has taken to the leased tasks in its response."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, TypeAlias

from penstock.broker import record_keys
from penstock.broker.records.leases import Lease
from penstock.broker.store import Store
from penstock.broker.worker_messages import TaskPayload
from penstock.broker.worker_protocol.bridge_messages import PolledTask, polled_task
from penstock.broker.worker_protocol.receiving import Unreadable, given_up, refuse, return_unworked, task_in
from penstock.config.process.background import all_of
from penstock.engine.errors import PenstockError, Unavailable
from penstock.http.bridge.leases import HeldLeases
from penstock.http.bridge.queue import TakenDelivery
from penstock.http.bridge.starts import Starts
from penstock.http.messages import bodies


class _Ready(NamedTuple):
    """A task for a worker, and the step's last checkpoint."""

    taken: TakenDelivery
    task: TaskPayload
    checkpoint: bytes | None


_Prepared: TypeAlias = _Ready | PenstockError | None


class TaskHandout:
    """Makes leased tasks of the deliveries that a poll has taken. Owned by the bridge.

    A delivery is in one of these states:

        taken       it came for this poll
        ready       its task is read and its checkpoint loaded
        assigned    the poll is answered with it; unless it is answered at once, the start of its step is reported, its
                    lease is stored, and this process keeps the task alive
        refused     nobody can carry it out: its step has failed, and it is acknowledged
        returned    it is given back to the broker, for another poll

    taken → ready → assigned; taken → refused; taken, ready or assigned → returned.
    """

    def __init__(self, store: Store, held: HeldLeases, starts: Starts) -> None:
        self._store, self._held, self._starts = store, held, starts

    async def hand_out(self, taken: Sequence[TakenDelivery], worker_id: str | None) -> list[PolledTask]:
        """Assign the tasks to the worker, and return them without those that were refused.

        Tasks that cannot be prepared are returned to the broker. Raises Unavailable when that is so for all.
        """
        ready, others = _split(taken)
        try:
            prepared = await self._prepare_all(others, worker_id)
            ready += [one for one in prepared if isinstance(one, _Ready)]
            self._store.broker.check_connected()  # else no answer could be stored
            await self._assign(ready, worker_id)
        except BaseException:
            await self._return_all(ready)
            raise
        if not ready:
            _raise_first(prepared)
        return [_polled(one) for one in ready]

    async def take_back(self, tasks: Sequence[PolledTask]) -> None:
        """Return assigned tasks whose client has disconnected: their starts are not reported."""
        for task in tasks:
            lease = self._starts.new(task.task_id)
            if lease is not None:
                self._starts.discard(task.task_id)
            else:
                kept = await self._held.known(task.task_id)
                if kept is not None and self._held.let_go(kept) is not None:
                    lease = kept.lease
                    await self._store.leases.delete(kept)
            if lease is not None:
                with suppress(Unavailable):  # then it is delivered again after its ack wait
                    await self._store.pauses.give_back(lease, self._store.leases.delivery(lease))

    async def _assign(self, ready: Sequence[_Ready], worker_id: str | None) -> None:
        """Hold back the starts and leases of first deliveries. Those of others are reported and stored at once: a
        former worker may be about to answer, and the lease shows whether it is too late."""
        now = time.time()
        first: list[Lease] = []
        others: list[Lease] = []
        for one in ready:
            of_its_kind = first if one.taken.delivery.deliveries == 1 else others
            of_its_kind.append(self._lease(one, worker_id, now))
        if first:
            self._starts.later(first)
        for lease in others:
            self._starts.report_now(lease)
        if others:
            await self._store.leases.written()

    async def _prepare_all(self, taken: Sequence[TakenDelivery], worker_id: str | None) -> list[_Prepared]:
        return await all_of(self._prepare(one, worker_id) for one in taken) if taken else []

    async def _prepare(self, taken: TakenDelivery, worker_id: str | None) -> _Prepared:
        """The task when it is ready; None when it was refused; an error for which it is returned."""
        try:
            return await self._ready(taken, worker_id)
        except BaseException as error:
            await self._return(taken)
            if isinstance(error, PenstockError):
                return error
            raise

    async def _ready(self, taken: TakenDelivery, worker_id: str | None) -> _Ready | None:
        delivery = taken.delivery
        try:
            task = task_in(delivery)
        except Unreadable as error:
            await refuse(self._store, taken.task, delivery, worker_id, str(error))
            return None
        if await given_up(self._store, task, delivery, worker_id):
            return None
        return _Ready(taken, task, await self._checkpoint(task))

    def _lease(self, ready: _Ready, worker_id: str | None, now: float) -> Lease:
        task = ready.task
        execution = (task.run_id, task.step_id, task.attempt, task.iteration)
        return Lease(
            *execution,
            ready.taken.delivery.reply,
            worker_id or "",
            now,
            holder=self._held.holder,
            item=task.item,
        )

    async def _return_all(self, ready: Sequence[_Ready]) -> None:
        for one in ready:
            await self._return(one.taken)

    async def _return(self, taken: TakenDelivery) -> None:
        with suppress(PenstockError):  # then it is delivered again after its ack wait
            await return_unworked(self._store, taken.delivery)

    async def _checkpoint(self, task: TaskPayload) -> bytes | None:
        """The step's checkpoint, if it is JSON: other programs may write other bytes."""
        entry = await self._store.checkpoints.get(record_keys.step_key(task.run_id, task.step_id))
        return entry.value if entry is not None and bodies.is_json(entry.value) else None


def _split(taken: Sequence[TakenDelivery]) -> tuple[list[_Ready], list[TakenDelivery]]:
    """Deliveries that are ready at once, and those that must be prepared."""
    ready, others = [], []
    for one in taken:
        if first := _first(one):
            ready.append(first)
        else:
            others.append(one)
    return ready, others


def _first(taken: TakenDelivery) -> _Ready | None:
    """The first delivery of a step's first execution: it cannot have a checkpoint. None for any other."""
    if taken.delivery.deliveries > 1:
        return None
    with suppress(Unreadable):
        task = task_in(taken.delivery)
        if task.attempt == 1 and task.iteration == 0:
            return _Ready(taken, task, None)
    return None


def _raise_first(prepared: Sequence[_Prepared]) -> None:
    for error in prepared:
        if isinstance(error, PenstockError):
            raise error


def _polled(ready: _Ready) -> PolledTask:
    deliveries = ready.taken.delivery.deliveries
    return polled_task(ready.task, ready.taken.task, deliveries=deliveries, checkpoint=ready.checkpoint)
