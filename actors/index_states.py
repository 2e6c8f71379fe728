"""What owners have folded of their runs, for the run index: read off the headers of the snapshots, which say status and sequence."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Collection
from typing import NamedTuple

import msgspec

from penstock.actors.index_file import Unfit, instant_us
from penstock.actors.index_rows import Row, State
from penstock.broker import names
from penstock.broker.buckets import Entry
from penstock.broker.pull import Delivery
from penstock.broker.store import Store
from penstock.broker.tail import Gulp, Tail
from penstock.engine.errors import NeedsUpgrade
from penstock.engine.state import RunStatus, head_of

GULP = 2000
BATCHES_MAX = 20  # read and not yet taken: then the broker keeps the rest
WAIT_S_MAX = 5.0  # for the log to be read as far; where it has lost its end, it never is
BODIES_AT_ONCE = 50  # a snapshot may have some MiB
REST_S_PER_MESSAGE, REST_S_MAX = 0.003, 0.25  # nobody waits for them: the log has told already
STATUSES = {status.value: status for status in RunStatus}


class _Batch(NamedTuple):
    """`upto`: what the log must have been read up to, to know of all these runs. `unread` have no such header: an older version's."""

    upto: int
    revision: int
    states: list[State]
    unread: list[str]
    since: float

    def ready(self, seq: int) -> bool:
        return self.upto <= seq or time.monotonic() - self.since > WAIT_S_MAX


class Snapshots:
    """Owned by one life of the follower. What is read waits here until the log has been read as far."""

    def __init__(self, store: Store, after: int) -> None:
        self._runs = store.runs
        self._after = self._read = self._sure = after
        self._batches: deque[_Batch] = deque()
        self._missed: dict[str, None] = {}
        self._room = asyncio.Event()

    @property
    def taken(self) -> int:
        """The revision up to which nothing is left to do."""
        return self._sure

    def ready(self, seq: int) -> bool:
        """Whether something is there that waits for no more than this much of the log."""
        return bool(self._batches) and self._batches[0].ready(seq)

    async def read(self, wait_s: float) -> AsyncGenerator[None]:
        """Gulp after gulp, for ever; it yields after each of them, and after a quiet time.

        Raises Unfit when the bucket has lost its end, Lost, Unavailable.
        """
        if await self._runs.last_revision() < self._after:
            raise Unfit("the snapshots have lost their end")
        async with self._runs.tail(self._after) as tail:
            while True:
                gulp = await tail.next(wait_s)
                if gulp.last is None:
                    yield
                    continue
                count = await self._read_on(tail, gulp, gulp.last)
                yield
                await asyncio.sleep(0.0 if count > GULP else min(REST_S_MAX, count * REST_S_PER_MESSAGE))
                while len(self._batches) >= BATCHES_MAX:
                    self._room.clear()
                    await self._room.wait()

    async def _read_on(self, tail: Tail, gulp: Gulp, last: Delivery) -> int:
        if last.pending:
            gulp += await tail.waiting(GULP)
            last = gulp.last or last
        states: list[State] = []
        unread: list[str] = []
        for one in gulp.kept:
            run_id = self._runs.key(one.subject)
            state = names.run_state(one.headers)
            if state is not None and (status := STATUSES.get(state[0])) is not None:
                states.append(State(run_id, status, state[1], state[1]))
            elif b"KV-Operation" not in one.headers:
                unread.append(run_id)
        self._batches.append(_Batch(max((state.seq for state in states), default=0), last.seq, states, unread, time.monotonic()))
        return gulp.messages

    def take(self, seq: int) -> list[State]:
        """The states of all gulps that are about no more than this much of the log."""
        states: list[State] = []
        while self.ready(seq):
            batch = self._batches.popleft()
            states += batch.states
            self._read = batch.revision
            self._missed.update(dict.fromkeys(batch.unread))
        if not self._missed:
            self._sure = self._read
        self._room.set()
        return states

    def miss(self, run_ids: Collection[str]) -> None:
        """These have states, and no beginning in the log."""
        self._missed.update(dict.fromkeys(run_ids))

    async def rows(self) -> list[Row]:
        """Of the runs that are missed, what their snapshots say."""
        missed = list(self._missed)
        rows: list[Row] = []
        for at in range(0, len(missed), BODIES_AT_ONCE):
            found = await self._runs.get_many(missed[at : at + BODIES_AT_ONCE])
            rows += (row for entry in found.values() if (row := _row(entry)) is not None)
        for run_id in missed:
            del self._missed[run_id]
        return rows


def _row(entry: Entry) -> Row | None:
    """None for a snapshot that cannot be read here: it says so when its run is looked at."""
    try:
        head = head_of(entry.value)
    except (NeedsUpgrade, msgspec.MsgspecError):
        return None
    created_us = instant_us(head.created_at)
    return Row(entry.key, head.workflow_id, head.status, created_us or 0, confirmed=head.seq, rerun_of=head.rerun_of)
