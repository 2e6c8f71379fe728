"""One task queue that is polled in this process: it takes deliveries from the broker for the waiting polls.

Each waiting poll stands for one requested delivery, and requests more only when the broker has more. While tasks are
answered at once, a few more are requested: their workers poll again at once. So few deliveries come without a poll to
take them: these, and those that were requested for a poll which got its task from another queue, or whose client
disconnected. Such a request is not cancelled, because a task in flight at that moment would be delivered again only
after its ack wait. It serves the next poll, or expires after EXPIRES_S. A delivery without a poll is spare: it stays
here for SPARE_S, as long as a worker takes to poll again, and is then given back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from typing import NamedTuple

from penstock.broker.nats.pull import Delivery, Pull
from penstock.broker.store import Store
from penstock.broker.worker_protocol.receiving import return_unworked
from penstock.config.limits import POLL_BYTES_MAX
from penstock.config.logging import get_logger
from penstock.config.process.background import start
from penstock.config.process.rate_limited_log import log_rate_limited
from penstock.engine.errors import PenstockError, Unavailable
from penstock.http.bridge.byte_budget import ByteBudget

BATCH = 1000
EXPIRES_S = 5
MORE_S = 0.01  # how long a poll with a task waits for more that the broker has
SPARE_S = 0.05  # how long a delivery without a poll stays here
AHEAD_MAX = 32  # requests beyond the waiting polls, while tasks are answered at once
AHEAD_S = 0.05  # what was answered at once in this time, and in as long before, counts
NOT_AHEAD_S = 10.0  # after a spare delivery that no poll took
SURPLUS_MAX = 64  # more requests than polls by more than this, as when many clients leave at once, are cancelled
PROBE_S = 0.05  # how long even a poll with timeout_ms 0 waits for the broker to answer

log = get_logger()


class QueueName(NamedTuple):
    """The tasks of a type for all workers, those of a group, or those for one worker."""

    task: str
    group: str | None = None
    worker: str | None = None


class TakenDelivery(NamedTuple):
    task: str
    delivery: Delivery


class Spare(NamedTuple):
    """A delivery without a poll, and when it came, in s of the loop's clock."""

    delivery: Delivery
    came_at: float


class Ahead:
    """How many deliveries a queue requests beyond its waiting polls: as many as were answered at once of late. Owned by
    the queue; times are those of the loop's clock, in s."""

    __slots__ = ("_answered", "_before", "_none_until", "_period")

    def __init__(self) -> None:
        self._period = self._answered = self._before = 0
        self._none_until = 0.0

    def answer(self, now: float) -> None:
        """One more was answered at once."""
        self._count_from(now)
        self._answered += 1

    def stop(self, now: float) -> None:
        """Request none for NOT_AHEAD_S: a delivery came for which there was no poll."""
        self._none_until = now + NOT_AHEAD_S

    def number(self, now: float) -> int:
        if now < self._none_until:
            return 0
        self._count_from(now)
        return min(AHEAD_MAX, max(self._answered, self._before))

    def _count_from(self, now: float) -> None:
        period = int(now / AHEAD_S)
        if period != self._period:
            self._before = self._answered if period == self._period + 1 else 0
            self._period, self._answered = period, 0


class Poller:
    """One poll. Owned by its request. It takes no more once its response is large."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self._bytes = 0
        self.taken: list[TakenDelivery] = []
        self.queues: list[PolledQueue] = []
        self._loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self._coming = 0

    def take(self, taken: TakenDelivery) -> None:
        self.taken.append(taken)
        self._bytes += len(taken.delivery.data)
        self.wanted = max(0, self.wanted - 1) if self._bytes < POLL_BYTES_MAX else 0
        self._coming = max(0, self._coming - 1)
        if not (self._coming and self.wanted):
            self.finish()

    def expect(self, more: int) -> None:
        """Wait MORE_S at most for this many deliveries, which are on their way."""
        self._coming = more
        self._loop.call_later(MORE_S, self.finish)

    def finish(self) -> None:
        if not self.ready.done():
            self.ready.set_result(None)


class PolledQueue:
    """Owned by PolledQueues, from `open` to `close`.

    A poll is in one of these states:

        waiting      it has no task yet (`_waiting`, in the order in which polls came)
        collecting   it has a task, and takes more (`_collecting`): what comes until its request goes on, for MORE_S at
                     most if the broker has more
        finished     it is answered with what it has

        join            → waiting; → finished, if there are spare deliveries
        a delivery      waiting → collecting, if the poll wants more and nobody else waits; waiting → finished
                        otherwise; collecting → finished, when the poll wants no more
        MORE_S, leave   → finished

    A delivery goes to the first poll that waits, else to the first that collects, else it is spare. The queue asks the
    broker for as many deliveries as polls wait, and a few ahead (`Ahead`), and for none while it is closed, cancels its
    requests (`_recalling`), or the process holds too many bytes of tasks.
    """

    def __init__(
        self, name: QueueName, store: Store, answer_within: Callable[[float], None], budget: ByteBudget
    ) -> None:
        self.name, self._store, self._answer_within, self._budget = name, store, answer_within, budget
        self._waiting: dict[Poller, None] = {}  # in the order in which they came
        self._collecting: dict[Poller, None] = {}  # those that have a task and wait a moment for more
        self._spare: deque[Spare] = deque()
        self._ahead = Ahead()
        self._pull: Pull | None = None
        self._closed = self._recalling = self._settling = False
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._stack = AsyncExitStack()
        self.last_used = self._loop.time()

    async def open(self) -> None:
        """Open the consumer. Raises Conflict for a consumer that serves other tasks, Unavailable."""
        async with self._stack:
            self._pull = await self._stack.enter_async_context(self._consuming())
            if self.name.worker is None:
                self._answer_within(await self._store.tasks.ack_wait_s(self.name.task, self.name.group))
            self._stack = self._stack.pop_all()

    async def close(self) -> None:
        """Request nothing more, cancel all requests, and give spare deliveries back."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._settle(0)
        await self._stack.aclose()

    @property
    def consumer(self) -> str:
        """The name of its consumer, when it is open."""
        return "" if self._pull is None else self._pull.consumer

    @property
    def polled(self) -> bool:
        return bool(self._waiting)

    def touch(self) -> None:
        self.last_used = self._loop.time()

    def answered_at_once(self) -> None:
        """One of its tasks was."""
        self._ahead.answer(self._loop.time())

    def end_polls(self) -> None:
        for poller in list(self._waiting):
            poller.finish()

    def join(self, poller: Poller) -> None:
        """Give the poller spare deliveries, or let it wait for the next one."""
        while self._spare and poller.wanted:
            poller.take(TakenDelivery(self.name.task, self._spare.popleft().delivery))
        if not poller.taken:
            self._waiting[poller] = None
            poller.queues.append(self)

    def ask_soon(self) -> None:
        self._spawn(self.ask())

    async def ask(self) -> None:
        if self._pull is not None:
            with suppress(Unavailable):  # asked again when the connection is back
                await self._pull.top_up()

    def leave(self, poller: Poller) -> None:
        self._waiting.pop(poller, None)
        self._collecting.pop(poller, None)
        self.touch()
        self._settle_later()

    def _consuming(self) -> AbstractAsyncContextManager[Pull]:
        name = self.name
        if name.worker is None:
            return self._store.tasks.consume(
                name.task, self._take, batch=BATCH, room=self._room, group=name.group, expires_s=EXPIRES_S
            )
        return self._store.sticky_tasks.consume(
            name.task, name.worker, self._take, batch=BATCH, room=self._room, expires_s=EXPIRES_S
        )

    def _room(self) -> int:
        if self._closed or self._recalling or self._budget.full:
            return 0
        return len(self._waiting) + self._ahead.number(self._loop.time())

    def _take(self, delivery: Delivery) -> None:
        """Called by the reader of the connection: it must not wait."""
        self._budget.take(delivery)
        if poller := self._first_waiting():
            self._give_to_waiting(poller, delivery)
        elif self._collecting:
            self._give_to_collecting(next(iter(self._collecting)), delivery)
        else:
            self._spare.append(Spare(delivery, self._loop.time()))
            self._settle_later()

    def _first_waiting(self) -> Poller | None:
        """The first waiting poll that has not got a task from another queue."""
        return next((one for one in self._waiting if not one.taken), None)

    def _give_to_waiting(self, poller: Poller, delivery: Delivery) -> None:
        del self._waiting[poller]
        alone = not self._waiting
        if alone:
            self._expect_more(poller, delivery)
        poller.take(TakenDelivery(self.name.task, delivery))
        if alone and poller.wanted:
            self._collecting[poller] = None

    def _give_to_collecting(self, poller: Poller, delivery: Delivery) -> None:
        poller.take(TakenDelivery(self.name.task, delivery))
        if not poller.wanted:
            del self._collecting[poller]

    def _expect_more(self, poller: Poller, delivery: Delivery) -> None:
        """Have a poll that gets its first delivery wait for those that the broker has behind it, and request what is
        not requested. Not while others wait: their requests bring tasks."""
        if not delivery.pending or self._pull is None or self._budget.full or len(delivery.data) >= POLL_BYTES_MAX:
            return
        if (more := min(poller.wanted - 1, delivery.pending, BATCH)) > 0:
            poller.expect(more + 1)
            if more > self._pull.left:
                self._spawn(self._ask_briefly(more - self._pull.left))

    async def _ask_briefly(self, more: int) -> None:
        assert self._pull is not None
        with suppress(Unavailable):  # the poll goes on with what it has
            await self._pull.ask_briefly(more)

    def _settle_later(self) -> None:
        if self._timer is not None or self._settling or self._closed:
            return
        if self._spare or self._surplus > SURPLUS_MAX:
            left_s = self._spare[0].came_at + SPARE_S - self._loop.time() if self._spare else 0.0
            self._timer = self._loop.call_later(left_s if left_s > 0 else SPARE_S, self._begin_settling)

    @property
    def _surplus(self) -> int:
        """The number of requests beyond the waiting polls."""
        return 0 if self._pull is None else self._pull.left - len(self._waiting)

    def _begin_settling(self) -> None:
        self._timer = None
        self._spawn(self._settle(SURPLUS_MAX))

    async def _settle(self, surplus_max: int) -> None:
        """Cancel requests beyond this surplus, and give spare deliveries back that waited for SPARE_S; all of them when
        the queue is closed. The whole surplus goes first then: it would only get them again."""
        came_by, self._settling = self._loop.time() - SPARE_S, True
        try:
            if self._spare and self._spare[0].came_at <= came_by:
                self._ahead.stop(came_by + SPARE_S)
                surplus_max = 0
            if self._surplus > surplus_max:
                await self._recall()
            await self._give_spare_back(came_by)
        except PenstockError as error:  # spare deliveries come again after their ack wait
            log_rate_limited(log, "tasks_not_given_back", task=self.name.task, error=str(error))
        finally:
            self._settling = False
        self._settle_later()

    async def _give_spare_back(self, came_by: float) -> None:
        while self._spare and (self._closed or self._spare[0].came_at <= came_by):
            delivery = self._spare.popleft().delivery
            self._budget.let_go([delivery])
            await return_unworked(self._store, delivery)

    async def _recall(self) -> None:
        assert self._pull is not None
        self._recalling = True
        try:
            await self._pull.recall()
        finally:  # else a failure would have this queue ask for nothing, for ever
            self._recalling = False
        await self.ask()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = start(work, name="bridge_queue")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
