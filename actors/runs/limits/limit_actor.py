"""The actor of one limit: it alone decides who gets its slots.

One turn: fold all that was asked, decide once for all of it, store the decision behind the one before it, and inform
the runs. They are told only what is stored. A crash between any two of these lines repeats them: the next owner folds
the same log, decides what is not decided, and informs the runs again that may not have been told. Runs ignore what they
have been told before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import Struct

from penstock.actors.runs.limits.news import news
from penstock.actors.runs.shared.broker_clock import BrokerClock
from penstock.actors.runs.shared.lease import LeaseLost, ShardLease
from penstock.broker.store import Store
from penstock.config.logging import get_logger
from penstock.config.process.background import begin, report
from penstock.config.process.crash_points import reached
from penstock.config.process.rate_limited_log import log_rate_limited
from penstock.engine.errors import PenstockError
from penstock.engine.limits.allot import allot, next_at
from penstock.engine.limits.compaction import full, waiting_before, written_again
from penstock.engine.limits.fold import fold, mark_told
from penstock.engine.limits.records import Allowed, Ask, Decided, LimitRecord
from penstock.engine.limits.state import LimitState

WRITTEN_AT_ONCE = 500  # who waits still, in one message of perhaps 100 KB

log = get_logger()


class LimitDeps(Struct, frozen=True):
    """What the limits of a shard need, made by their owner once.

    `allowed` says how much a limit allows now. `wake` makes a limit take a turn at a time of the broker (s since the
    epoch). `decided` is called for each decision that is stored.
    """

    store: Store
    lease: ShardLease
    clock: BrokerClock
    allowed: Callable[[LimitState], Allowed]
    wake: Callable[[LimitActor, float], None]
    decided: Callable[[Decided], None]


class _News:
    """A decision of which some runs have not been told."""

    __slots__ = ("answers", "left", "seq")

    def __init__(self, seq: int, left: int) -> None:
        self.seq, self.left = seq, left
        self.answers: list[asyncio.Future[bytes]] = []


class LimitActor:
    """Owned by the limits of a partition, until nobody holds or waits and its log is removed. Its task lives while
    there is work.

    `decided_seq` is the sequence of the last decision that is stored (0: there is none). `lost` is called when all that
    is in memory may be out of date, as when another owner has decided. `seen` says up to which sequence the log of the
    partition has come here.
    """

    __slots__ = (
        "_deps",
        "_dismissed",
        "_due",
        "_fulls",
        "_lost",
        "_queue",
        "_seen",
        "_task",
        "_untold",
        "_write_before",
        "decided_seq",
        "limit_id",
        "state",
    )

    def __init__(self, deps: LimitDeps, limit_id: str, seen: Callable[[], int], lost: Callable[[], None]) -> None:
        self._deps, self._seen, self._lost, self.limit_id = deps, seen, lost, limit_id
        self.state = LimitState()
        self.decided_seq = 0
        self._queue: list[tuple[Ask, int]] = []
        self._untold: deque[_News] = deque()
        self._fulls: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None
        self._write_before = 0
        self._due = self._dismissed = False

    @property
    def idle(self) -> bool:
        """Nothing is to be done, and all runs know what was decided."""
        return self._task is None and not self._queue and not self._due and not self._untold

    @property
    def folded_below(self) -> int | None:
        """The sequence of the first ask that is not folded yet; None: all are."""
        return self._queue[0][1] if self._queue else None

    def replay(self, record: LimitRecord, seq: int) -> None:
        """Fold what is stored already, before the first turn."""
        fold(self.state, record, seq)
        if isinstance(record, Decided):
            self.decided_seq = seq

    def take(self, record: Ask, seq: int) -> None:
        """Fold what was asked in the next turn."""
        self._queue.append((record, seq))
        self.begin()

    def wake(self) -> None:
        """Take a turn: what is allowed, or the time, may have changed."""
        self._due = True
        self.begin()

    def write_full(self, waiting_before: int = 0) -> asyncio.Future[None]:
        """Store a decision that stands for all before it, and others that stand for the requests that are stored before
        the sequence `waiting_before`. The future ends when they are stored, or not needed."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._fulls.append(future)
        self._write_before = max(self._write_before, waiting_before)
        self.wake()
        return future

    def pending(self) -> list[asyncio.Future[Any]]:
        """What is under way."""
        task: list[asyncio.Future[Any]] = [] if self._task is None else [self._task]
        return task + [answer for item in self._untold for answer in item.answers if not answer.done()]

    def begin(self) -> None:
        if self._task is None and not self._dismissed:
            self._task = begin(self._work(), name="limit")

    def dismiss(self) -> None:
        """Stop at once: the limit has another owner, or is read again."""
        self._dismissed, self._due = True, False
        self._queue.clear()
        if self._task is not None:
            self._task.cancel()
        for future in self._fulls:
            future.cancel()

    async def _work(self) -> None:
        """Turn after turn until nothing waits. An error makes the owner read the limits of the partition again."""
        try:
            await self._inform_again()
            while self._queue or self._due:
                self._deps.lease.check()
                await self._turn()
        except LeaseLost:
            return
        except Exception as error:
            self._report(error)
            self._lost()
        finally:
            self._task = None

    async def _turn(self) -> None:
        queue, self._queue, self._due = self._queue, [], False
        state, deps = self.state, self._deps
        for record, seq in queue:
            fold(state, record, seq)
        if state.name is None:  # all that is known of it is what was given back
            self._end_fulls()
            return
        allowed, now = deps.allowed(state), deps.clock.now()
        decided = allot(state, allowed, now)
        if decided is not None:
            await self._decide(decided)
        elif self._fulls:
            await self._write(allowed, now)
        if self._fulls:
            self._due = True
        elif (at := next_at(state, allowed)) is not None:
            deps.wake(self, at)

    async def _write(self, allowed: Allowed, now: float) -> None:
        """Store what stands for older records, as wanted. No ask is folded before all of it is stored."""
        state = self.state
        await self._decide(full(state, allowed, now, self._seen()))
        waiting, self._write_before = waiting_before(state, self._write_before), 0
        for at in range(0, len(waiting), WRITTEN_AT_ONCE):
            await self._decide(written_again(state, allowed, now, waiting[at : at + WRITTEN_AT_ONCE]))
        self._end_fulls()

    async def _decide(self, decided: Decided) -> None:
        reached("limit.deciding")
        seq = await self._deps.store.limit_log.decide(decided, self.decided_seq)
        reached("limit.decided")
        self.decided_seq = seq
        fold(self.state, decided, seq)
        self._deps.decided(decided)
        await self._inform(decided, seq)
        reached("limit.told")

    async def _inform_again(self) -> None:
        """Send the news that not all may have been told by a former owner. This one sends nothing twice."""
        if not self._untold:
            for seq, decided in list(self.state.news):
                await self._inform(decided, seq)

    async def _inform(self, decided: Decided, seq: int) -> None:
        """Send the news of a decision. When all of it is stored, the next decision says so."""
        store, events = self._deps.store, list(news(decided, self.limit_id, seq))
        item = _News(seq, len(events))
        self._untold.append(item)
        for event, message_id in events:
            if store.publisher.full:
                await store.publisher.room()
            answer = store.history.send(event, message_id)
            answer.add_done_callback(partial(self._was_told, item))
            item.answers.append(answer)
        self._note_told()

    def _was_told(self, item: _News, answer: asyncio.Future[bytes]) -> None:
        if answer.cancelled():
            return
        if (error := answer.exception()) is not None:  # the next owner informs the run again
            self._report(error)
            return
        item.left -= 1
        self._note_told()

    def _note_told(self) -> None:
        while self._untold and not self._untold[0].left:
            mark_told(self.state, self._untold.popleft().seq)

    def _end_fulls(self) -> None:
        for future in self._fulls:
            if not future.done():
                future.set_result(None)
        self._fulls.clear()

    def _report(self, error: BaseException) -> None:
        if not isinstance(error, PenstockError):
            report("limit", error)
        log_rate_limited(log, "limit_read_again", limit=self.limit_id, error=str(error))
