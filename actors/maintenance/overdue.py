"""Overdue schedules: messages that the broker did not publish when they were due, because it had no room.

They are written again. Every engine checks for them; a schedule that two find at once is replaced by compare-and-swap
and published once.
"""

from __future__ import annotations

from typing import NoReturn

from penstock.actors.maintenance.rounds import Throttle, repeat_rounds
from penstock.broker.store import Store
from penstock.config.logging import get_logger

EVERY_S = 10.0
GRACE_S = 5.0  # a broker that has just been started publishes thousands in less

log = get_logger()


async def watch_overdue_schedules(store: Store) -> NoReturn:
    """Repeat overdue schedules every EVERY_S, for ever."""

    async def check(throttle: Throttle) -> None:
        repeated = await repeat_overdue(store)
        if repeated:
            log.warning("schedules_overdue", repeated=repeated)

    await repeat_rounds("overdue_schedules", check, EVERY_S)


async def repeat_overdue(store: Store, grace_s: float = GRACE_S) -> int:
    """Write each schedule again that was due more than `grace_s` ago. Returns how many. Raises Unavailable."""
    before = await store.history.now() - grace_s
    return sum([await store.schedules.repeat(one) async for one in store.schedules.due_before(before)])
