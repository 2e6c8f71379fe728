"""Schedules that the broker should have published and did not, because it had no room at that time: they are given to it again.

Looking for them is done by every engine, and may be done twice: each is replaced by compare-and-swap, and published once.
"""

from __future__ import annotations

import asyncio
import time
from typing import NoReturn

from penstock.broker.store import Store
from penstock.config.logging import get_logger
from penstock.engine.errors import PenstockError

EVERY_S = 10.0
GRACE_S = 5.0  # a broker that has just been started publishes thousands in less
SHARE_MAX = 0.01  # of the time may go into looking, with however many schedules there are

log = get_logger()


async def keep_on_time(store: Store) -> NoReturn:
    """Look for what is overdue, for ever."""
    pause_s = EVERY_S
    while True:
        await asyncio.sleep(pause_s)
        begin = time.monotonic()
        try:
            repeated = await repeat_overdue(store)
            if repeated:
                log.warning("schedules_overdue", repeated=repeated)
        except PenstockError as error:
            log.warning("overdue_wait", error=str(error))
        pause_s = max(EVERY_S, (time.monotonic() - begin) / SHARE_MAX)


async def repeat_overdue(store: Store, grace_s: float = GRACE_S) -> int:
    """Have the broker publish what should have come so long ago; returns how many schedules those were. Raises Unavailable."""
    before = await store.history.now() - grace_s
    return sum([await store.schedules.repeat(one) async for one in store.schedules.due_before(before)])
