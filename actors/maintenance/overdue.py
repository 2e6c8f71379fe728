"""Overdue schedules: messages that the broker did not publish when they were due, because it had no room.

They are written again. Every engine checks for them; a schedule that two find at once is replaced by compare-and-swap
and published once.
"""

from __future__ import annotations

from typing import NoReturn

from penstock.actors.maintenance.rounds import Throttle, repeat_rounds
from penstock.broker.nats.direct import Stored
from penstock.broker.store import Store
from penstock.broker.streams.schedules import KEPT_IN, due_at
from penstock.config.logging import get_logger
from penstock.engine.errors import Unavailable

EVERY_S = 10.0
LATEST_S = 60.0  # on a busy machine a round takes long without doing much
GRACE_S = 5.0  # a broker that has just been started publishes thousands in less
READ_ALL_EVERY_S = 300.0
REMEMBERED_MAX = 100_000  # of a stream, in about 250 bytes each

log = get_logger()


async def watch_overdue_schedules(store: Store) -> NoReturn:
    """Repeat overdue schedules every EVERY_S, on a busy machine every LATEST_S, for ever."""
    overdue = OverdueSchedules(store)

    async def check(throttle: Throttle) -> None:
        repeated = await overdue.repeat()
        if repeated:
            log.warning("schedules_overdue", repeated=repeated)

    await repeat_rounds("overdue_schedules", check, EVERY_S, LATEST_S)


class OverdueSchedules:
    """Owned by the watcher. It remembers which schedules will soon be due, because reading all costs the broker much.

    Every READ_ALL_EVERY_S it reads all, otherwise only the new ones, and remembers those that are due before it will
    have read all again. If these are too many, it reads all every time.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._streams = {stream: _Remembered() for stream in KEPT_IN}
        self._read_all_at = 0.0

    async def repeat(self, grace_s: float = GRACE_S) -> int:
        """Write each schedule again that was due more than `grace_s` ago. Returns how many. Raises Unavailable."""
        now = await self._store.history.now()
        if now - self._read_all_at >= READ_ALL_EVERY_S:
            self._forget(now)
        try:
            return sum([await self._repeat(stream, now - grace_s) for stream in KEPT_IN])
        except Unavailable:
            self._forget(0.0)
            raise

    async def _repeat(self, stream: str, before: float) -> int:
        remembered, schedules = self._streams[stream], self._store.schedules
        horizon = self._read_all_at + 2 * READ_ALL_EVERY_S
        async for page in schedules.pages(stream, remembered.last_seq + 1):
            remembered.add(page, horizon)
        subjects = remembered.take_due(before)
        if len(remembered) > REMEMBERED_MAX:
            self._streams[stream] = _Remembered()
        found = await schedules.existing(stream, subjects) if subjects else []
        return sum([await schedules.repeat(one) for one in found if _is_due(one, before)])

    def _forget(self, read_all_at: float) -> None:
        """Read all the next time."""
        self._streams = {stream: _Remembered() for stream in KEPT_IN}
        self._read_all_at = read_all_at


class _Remembered:
    """Schedules of one stream by subject, and when they are due; the last one has the sequence `last_seq`."""

    def __init__(self) -> None:
        self.last_seq = 0
        self._due: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._due)

    def add(self, page: list[Stored], horizon: float) -> None:
        for one in page:
            due = due_at(one)
            if due is not None and due < horizon:
                self._due[one.subject] = due
        self.last_seq = page[-1].seq

    def take_due(self, before: float) -> list[str]:
        """Those that were due before this time; they are not remembered any more."""
        subjects = [subject for subject, due in self._due.items() if due < before]
        for subject in subjects:
            del self._due[subject]
        return subjects


def _is_due(schedule: Stored, before: float) -> bool:
    due = due_at(schedule)
    return due is not None and due < before
