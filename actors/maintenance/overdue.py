"""Schedules that the broker should have published and did not, because it had no room at that time: they are given to
it again.

Looking for them is done by every engine, and may be done twice: each is replaced by compare-and-swap, and published
once.
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
    """Look for what is overdue, for ever."""

    async def check(throttle: Throttle) -> None:
        repeated = await repeat_overdue(store)
        if repeated:
            log.warning("schedules_overdue", repeated=repeated)

    await repeat_rounds("overdue_schedules", check, EVERY_S)


async def repeat_overdue(store: Store, grace_s: float = GRACE_S) -> int:
    """Have the broker publish what should have come so long ago; returns how many schedules those were. Raises
    Unavailable."""
    before = await store.history.now() - grace_s
    return sum([await store.schedules.repeat(one) async for one in store.schedules.due_before(before)])
