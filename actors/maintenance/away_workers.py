"""Workers that have gone without a word, such as killed ones: their own consumers for sticky tasks are removed once
their registration is gone. As long as such a consumer is there, tasks would go to it, and wait.

A worker that stops removes its own; the broker removes those that nobody asks for after STICKY_CONSUMER_S. The tasks
stay in the stream, and a worker that comes back makes its consumers again. Every engine checks for them.
"""

from __future__ import annotations

import time
from typing import NoReturn

from penstock.actors.diagnosis.registrations import registrations
from penstock.actors.maintenance.rounds import Throttle, repeat_rounds
from penstock.broker.store import Store
from penstock.config.limits import WORKER_HEARTBEAT_S
from penstock.config.logging import get_logger

EVERY_S = 10.0
AWAY_S = 1.5 * WORKER_HEARTBEAT_S  # one that was cut off, and is back, has registered again by then

log = get_logger()


async def watch_away_workers(store: Store) -> NoReturn:
    """Remove what they have left, for ever; the check is made every EVERY_S."""
    away = AwayWorkers(store)

    async def check(throttle: Throttle) -> None:
        await away.remove(time.monotonic())

    await repeat_rounds("away_workers", check, EVERY_S)


class AwayWorkers:
    """Remembers which workers with consumers were registered: one that never was may take tasks all the same."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: dict[str, float] = {}  # when it was registered last (s, monotonic)

    async def remove(self, now: float) -> int:
        """Remove the consumers of workers that are not registered since AWAY_S at `now`, and ask for nothing. Returns
        how many. Raises Unavailable."""
        pairs = await self._store.sticky_tasks.pairs()
        if not pairs:
            self._seen = {}
            return 0
        there = (await registrations(self._store)).workers.keys()
        with_consumers = {worker_id for _, worker_id in pairs}
        seen = self._seen | dict.fromkeys(there, now)
        self._seen = {worker_id: at for worker_id, at in seen.items() if worker_id in with_consumers}
        gone = {worker_id for worker_id, at in self._seen.items() if now - at >= AWAY_S}
        return sum([await self._remove(task, worker_id) for task, worker_id in pairs if worker_id in gone])

    async def _remove(self, task: str, worker_id: str) -> bool:
        removed = await self._store.sticky_tasks.forget_unasked(task, worker_id)
        if removed:
            log.info("sticky_consumer_removed", worker_id=worker_id, task=task)
        return removed
