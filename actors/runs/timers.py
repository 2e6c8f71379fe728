"""Timers: in memory for the first TIMER_DURABLE_AFTER_S, then as a schedule of the broker.

A fast step thus pays nothing for its timeout, a slow one a single publish. No timer is lost: the event that set it
stays unacknowledged (see `holds_from`) until the timer has fired, was withdrawn, or is stored by the broker.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress

from msgspec import Struct

from penstock.actors.runs.shared.broker_clock import BrokerClock
from penstock.actors.runs.shared.lease import LeaseLost, ShardLease
from penstock.broker import message_ids, names
from penstock.broker.nats.headers import EXPECT_SEQ, MSG_ID, SCHEDULE, SCHEDULE_TARGET
from penstock.broker.nats.publisher import ack_seq
from penstock.broker.store import Store
from penstock.config.limits import TIMER_DURABLE_AFTER_S
from penstock.config.logging import get_logger
from penstock.config.process.background import all_of, report, start
from penstock.config.process.crash_points import reached
from penstock.config.process.rate_limited_log import log_rate_limited
from penstock.engine.errors import Conflict, PenstockError
from penstock.engine.run.commands import SetTimer
from penstock.engine.run.event_payloads import TimerRef
from penstock.engine.run.events import TimerFired, encode
from penstock.engine.times import rfc3339

AGAIN_S = 0.5

log = get_logger()


class _Armed(Struct):
    """A timer in memory. `since` is when its event was received (monotonic). `withdrawn`: it must not fire.
    `maybe_stored`: a former owner may have given it to the broker."""

    run_id: str
    partition: int
    command: SetTimer
    since: float
    live: bool = True
    withdrawn: bool = False
    maybe_stored: bool = False


_Act = Callable[[_Armed], Coroutine[None, None, None]]


class Timers:
    """Owned by one shard, as long as it lives. Times are the broker's, in s since the epoch, unless monotonic."""

    def __init__(self, store: Store, lease: ShardLease, clock: BrokerClock) -> None:
        self._store, self._lease, self._clock = store, lease, clock
        self._known: dict[int, int] = {}
        self._armed: dict[tuple[str, str], _Armed] = {}
        self._held: dict[int, dict[int, _Armed]] = {}
        self._storing: dict[tuple[str, str], asyncio.Future[None]] = {}
        self._heap: list[tuple[float, int, _Armed, _Act]] = []
        self._numbers = itertools.count()
        self._wake = asyncio.Event()

    @property
    def in_memory(self) -> int:
        """The number of timers that have not fired, were not withdrawn, and are not stored by the broker."""
        return len(self._armed)

    def arm(self, run_id: str, command: SetTimer, since: float, *, maybe_stored: bool = False) -> None:
        """Set a timer. It replaces one of the same run and name, and never fires early by the broker's clock. The same
        one, set once more by a state that was read again, holds the events that it has held before."""
        before = self._forget(run_id, command.timer)
        if before is not None and before.command == command:
            since = min(since, before.since)
        armed = _Armed(run_id, names.partition(run_id), command, since, maybe_stored=maybe_stored)
        self._armed[run_id, command.timer] = armed
        self._held.setdefault(armed.partition, {})[id(armed)] = armed
        wait_s = command.due - self._clock.now()
        act = self._fire if wait_s <= TIMER_DURABLE_AFTER_S else self._hand_over
        self._push(time.monotonic() + min(wait_s, TIMER_DURABLE_AFTER_S), armed, act)

    def learn(self, partition: int, seq: int) -> None:
        """Note that every schedule stored so far for a run of the partition has a sequence up to this one."""
        self._known[partition] = max(seq, self._known.get(partition, 0))

    async def withdraw(self, run_id: str, timer: str) -> None:
        """Keep the timer from firing. The run ignores one that has just fired.

        However late the removal arrives, it does not remove what a later owner of the run has set.
        """
        armed = self._forget(run_id, timer)
        if armed is None or armed.maybe_stored:
            await self._remove(run_id, timer, self._known.get(names.partition(run_id), 0))

    def forget(self, partition: int) -> None:
        """Drop the timers of a partition that this shard does not own any more."""
        for armed in list(self._held.pop(partition, {}).values()):
            self._release(armed)
        self._known.pop(partition, None)

    async def settle(self, partition: int) -> None:
        """Store every timer of the partition at the broker, so that no event must be redelivered for one.

        Raises Unavailable.
        """
        await all_of(map(self._hand_over, list(self._held.get(partition, {}).values())))

    def holds_from(self, partition: int) -> float:
        """Events of the partition that were received from this moment on must stay unacknowledged (infinity: none)."""
        held = self._held.get(partition, {})
        return min((armed.since for armed in held.values()), default=float("inf"))  # not in the order of the events

    async def run(self) -> None:
        """Fire timers and hand them over to the broker, each when it is due, for ever."""
        while True:
            self._wake.clear()
            self._start_due(time.monotonic())
            wait_s = self._heap[0][0] - time.monotonic() if self._heap else None
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()

    def _start_due(self, now: float) -> None:
        """Start what is due. Withdrawn timers, most of them, are removed when they come to the front of the heap."""
        while self._heap and (self._heap[0][0] <= now or not self._heap[0][2].live):
            _, _, armed, act = heapq.heappop(self._heap)
            if armed.live:
                self._start(armed, act)

    async def _fire(self, armed: _Armed) -> None:
        command, run_id = armed.command, armed.run_id
        message_id = message_ids.of_timer(run_id, command.timer, command.attempt)
        reached("timer.due")
        self._lease.check()
        await self._store.publisher.send(names.history_subject(run_id), _body(armed), {MSG_ID: message_id})
        reached("timer.fired")
        self._release(armed)

    async def _hand_over(self, armed: _Armed) -> None:
        """Have the broker fire it. Until the broker has stored it, the event that set it stays unacknowledged."""
        async with self._alone(armed):
            if not armed.live:
                return
            seq = await self._schedule(armed)
            self.learn(armed.partition, seq)
            reached("timer.stored")
            if armed.withdrawn:  # while it was in flight; one of its name that a later owner has set stays
                await self._remove(armed.run_id, armed.command.timer, seq)
            elif armed.live:
                self._release(armed)

    @asynccontextmanager
    async def _alone(self, armed: _Armed) -> AsyncIterator[None]:
        """Wait until no other timer of this name is in flight: it might be stored over this one, and then be removed
        because this one has replaced it."""
        key = (armed.run_id, armed.command.timer)
        while (before := self._storing.get(key)) is not None:
            await asyncio.wait([before])
        stored = self._storing[key] = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            del self._storing[key]
            stored.set_result(None)

    async def _schedule(self, armed: _Armed) -> int:
        """Store the schedule, replacing only the one of its name that was there while the lease was good: a later
        owner's stays. Returns its sequence."""
        subject = names.schedule_subject(armed.run_id, armed.command.timer)
        headers = {
            SCHEDULE: f"@at {rfc3339(armed.command.due)}",
            SCHEDULE_TARGET: names.history_subject(armed.run_id),
        }
        there = 0  # nearly always there is none
        while True:
            self._lease.check()
            try:
                return ack_seq(
                    await self._store.publisher.send(subject, _body(armed), {**headers, EXPECT_SEQ: str(there)})
                )
            except Conflict:
                found = await self._store.reader.one(names.HISTORY, subject)
                there = 0 if found is None else found.seq

    async def _remove(self, run_id: str, timer: str, seq: int) -> None:
        """Remove the schedules of this name up to this sequence from the broker."""
        self._lease.check()
        request = {"filter": names.schedule_subject(run_id, timer), "seq": seq + 1}
        await self._store.broker.remove(f"STREAM.PURGE.{names.HISTORY}", request)
        reached("timer.withdrawn")

    def _start(self, armed: _Armed, act: _Act) -> None:
        start(self._attempt(armed, act), name="timer")

    async def _attempt(self, armed: _Armed, act: _Act) -> None:
        """Carry it out, and schedule another try after an error: without one the timer would be lost, and would hold
        back the acknowledgements of its partition for good."""
        try:
            await act(armed)
        except LeaseLost:  # the next owner of its run arms it again, if a late heartbeat does not renew the lease
            if armed.live:
                self._push(time.monotonic() + AGAIN_S, armed, act)
        except Exception as error:
            if not isinstance(error, PenstockError):
                report("timer", error)
            log_rate_limited(log, "timer_failed", run_id=armed.run_id, timer=armed.command.timer, error=str(error))
            if armed.live:
                self._push(time.monotonic() + AGAIN_S, armed, act)

    def _push(self, at: float, armed: _Armed, act: _Act) -> None:
        heapq.heappush(self._heap, (at, next(self._numbers), armed, act))
        if self._heap[0][2] is armed:
            self._wake.set()

    def _forget(self, run_id: str, timer: str) -> _Armed | None:
        armed = self._armed.get((run_id, timer))
        if armed is not None:
            armed.withdrawn = True
            self._release(armed)
        return armed

    def _release(self, armed: _Armed) -> None:
        armed.live = False
        if self._armed.get((armed.run_id, armed.command.timer)) is armed:
            del self._armed[armed.run_id, armed.command.timer]
        self._held.get(armed.partition, {}).pop(id(armed), None)


def _body(armed: _Armed) -> bytes:
    command = armed.command
    ref = TimerRef(timer=command.timer, step_id=command.step_id, attempt=command.attempt)
    return encode(TimerFired(run_id=armed.run_id, timestamp=rfc3339(command.due), payload=ref))
