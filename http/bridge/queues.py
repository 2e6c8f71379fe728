"""The task queues that are polled in this process. A poll waits at several of them and takes what comes first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from penstock.broker.nats.pull import consumer_in
from penstock.broker.store import Store
from penstock.broker.worker_protocol.receiving import return_unworked
from penstock.config.limits import POLLED_QUEUES_MAX
from penstock.config.process.background import start
from penstock.engine.errors import PenstockError, Unavailable
from penstock.http.bridge.byte_budget import ByteBudget
from penstock.http.bridge.queue import PROBE_S, PolledQueue, Poller, QueueName, TakenDelivery

IDLE_S = 30.0  # a queue without a poll for this long is closed


class PolledQueues:
    """Every queue that is polled in this process. Owned by the bridge."""

    def __init__(self, store: Store, answer_within: Callable[[float], None]) -> None:
        """`answer_within` is called with the ack wait of each queue that is opened, in s."""
        self._store, self._answer_within = store, answer_within
        self._budget = ByteBudget(self._ask_again)
        self._open: dict[QueueName, asyncio.Task[PolledQueue]] = {}
        self._by_consumer: dict[str, PolledQueue] = {}
        self._by_worker: dict[str, set[Poller]] = {}
        self._turn = 0
        self._closed = False

    async def poll(self, names: Sequence[QueueName], poller: Poller, worker_id: str | None, timeout_s: float) -> None:
        """Wait until the poller has tasks, is finished, or `timeout_s` is over. The caller assigns or gives back what
        it took. Raises Unavailable."""
        queues = [await self._queue(name) for name in names]
        if self._closed:
            raise Unavailable("the service is stopping")
        timer = asyncio.get_running_loop().call_later(max(timeout_s, PROBE_S), poller.finish)
        if worker_id is not None:
            self._by_worker.setdefault(worker_id, set()).add(poller)
        try:
            await self._join(queues, poller)
            await poller.ready
        finally:
            timer.cancel()
            self.leave(poller)
            self._forget(worker_id, poller)

    def leave(self, poller: Poller) -> None:
        """Remove the poller from its queues: it gets nothing more."""
        queues, poller.queues = poller.queues, []
        for queue in queues:
            queue.leave(poller)

    def release(self, worker_id: str) -> None:
        """End the waiting polls of a worker."""
        for poller in self._by_worker.get(worker_id, ()):
            poller.finish()

    def answered_at_once(self, reply: str) -> None:
        """A task was, whose acknowledgement has this subject."""
        if queue := self._by_consumer.get(consumer_in(reply)):
            queue.answered_at_once()

    async def give_back(self, taken: Sequence[TakenDelivery]) -> None:
        """Give deliveries back to the broker that were not assigned."""
        self.let_go(taken)
        with suppress(Unavailable):  # then they are delivered again after their ack wait
            for one in taken:
                await return_unworked(self._store, one.delivery)

    def let_go(self, taken: Sequence[TakenDelivery]) -> None:
        """Remove these from the byte count of this process: they were assigned or given back."""
        self._budget.let_go(one.delivery for one in taken)

    async def tidy(self) -> None:
        """Close the queues that had no poll for IDLE_S."""
        before = asyncio.get_running_loop().time() - IDLE_S
        for name, task in list(self._open.items()):
            if _is_open(task) and not task.result().polled and task.result().last_used < before:
                del self._open[name]
                self._by_consumer.pop(task.result().consumer, None)
                await task.result().close()

    async def close(self) -> None:
        """End every poll with what it has, then close all queues."""
        self._closed = True
        for task in self._open.values():
            if _is_open(task):
                task.result().end_polls()
        for task in list(
            self._open.values()
        ):  # what is being opened meanwhile ends with its task, and leaves the dict then
            if _is_open(task):
                await task.result().close()
            else:
                task.cancel()

    async def _join(self, queues: Sequence[PolledQueue], poller: Poller) -> None:
        """Each poll starts at another of its queues, so that none starves."""
        self._turn += 1
        first = self._turn % len(queues)
        turned = [*queues[first:], *queues[:first]]
        for queue in turned:
            queue.join(poller)
        if not poller.taken:
            for queue in turned:
                await queue.ask()

    def _ask_again(self) -> None:
        """Request again: nothing was requested while the process held too many bytes."""
        for task in self._open.values():
            if _is_open(task) and task.result().polled:
                task.result().ask_soon()

    async def _queue(self, name: QueueName) -> PolledQueue:
        """The queue of this name, opened by the first poll that needs it."""
        task = self._open.get(name)
        if task is None:
            if len(self._open) >= POLLED_QUEUES_MAX:
                raise Unavailable(f"{POLLED_QUEUES_MAX} task queues are polled here already")
            task = self._open[name] = start(self._opened(name), name="bridge_queue", expected=PenstockError)
        queue = task.result() if task.done() else await asyncio.shield(task)
        queue.touch()
        return queue

    async def _opened(self, name: QueueName) -> PolledQueue:
        queue = PolledQueue(name, self._store, self._answer_within, self._budget)
        try:
            await queue.open()
        except BaseException:
            del self._open[name]
            raise
        self._by_consumer[queue.consumer] = queue
        return queue

    def _forget(self, worker_id: str | None, poller: Poller) -> None:
        if worker_id is not None:
            pollers = self._by_worker[worker_id]
            pollers.discard(poller)
            if not pollers:
                del self._by_worker[worker_id]


def _is_open(task: asyncio.Task[PolledQueue]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None
