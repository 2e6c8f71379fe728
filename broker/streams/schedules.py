"""Messages that the broker publishes at a later time: starts and timers of runs, instants of cron triggers; and overdue
ones.

A broker whose storage is full at that time does not publish, and does not try again until it is restarted.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from datetime import datetime

from penstock.broker import names
from penstock.broker.nats.direct import DirectReader, Stored
from penstock.broker.nats.headers import EXPECT_SEQ, SCHEDULE, SCHEDULE_TARGET
from penstock.broker.nats.publisher import Publisher
from penstock.engine.errors import Conflict

KEPT_IN = {names.HISTORY: "schedule.>", names.EVENTS: "cron.>"}
SCHEDULED = re.compile(rb"\r\n%s: (@at (\S+))\r\n" % SCHEDULE.encode())
TARGET = re.compile(rb"\r\n%s: (\S+)\r\n" % SCHEDULE_TARGET.encode())


class Schedules:
    """The schedules in both streams. It has no state."""

    def __init__(self, publisher: Publisher, reader: DirectReader) -> None:
        self._publisher, self._reader = publisher, reader

    async def pages(self, stream: str, from_seq: int = 1) -> AsyncIterator[list[Stored]]:
        """The schedules that still exist in the stream from this sequence on, in order. Raises Unavailable."""
        async for page in self._reader.pages(stream, KEPT_IN[stream], from_seq):
            yield page

    async def existing(self, stream: str, subjects: Sequence[str]) -> list[Stored]:
        """Those of these schedules that still exist. Raises Unavailable."""
        return await self._reader.last(stream, subjects)

    async def repeat(self, schedule: Stored) -> bool:
        """Write it again in its place: the broker publishes an overdue one at once.

        False: it was published or withdrawn meanwhile, or is not such a schedule. Raises Unavailable (outcome unknown;
        repeating it is safe).
        """
        scheduled, target = SCHEDULED.search(schedule.headers), TARGET.search(schedule.headers)
        if scheduled is None or target is None:
            return False
        headers = {
            SCHEDULE: scheduled[1].decode(),
            SCHEDULE_TARGET: target[1].decode(),
            EXPECT_SEQ: str(schedule.seq),
        }
        try:
            await self._publisher.send(schedule.subject, schedule.data, headers, wait_if_full=False)
        except Conflict:
            return False
        return True


def due_at(schedule: Stored) -> float | None:
    """When the broker is to publish it, in s since the epoch.

    None for a repeating schedule and for an unreadable time: whoever may publish events may also schedule some.
    """
    found = SCHEDULED.search(schedule.headers)
    try:
        return None if found is None else datetime.fromisoformat(found[2].decode()).timestamp()
    except (ValueError, OverflowError):
        return None
