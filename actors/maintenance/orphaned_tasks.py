"""Orphaned tasks: tasks that are still stored, and that the broker never delivers again.

A broker that is killed writes down how far a consumer is, and what a stream holds, at different moments. So a task may
stand at or below the floor of its consumer, up to which everything counts as acknowledged: one that was acknowledged
and came back, or one that nobody has ever got. Where its step still waits for it, it is queued again; else it is
removed. Every engine checks for them; a task that two find at once is queued once, and delivered twice at most.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, NoReturn

from msgspec import MsgspecError

from penstock.actors.maintenance.rounds import Throttle, repeat_rounds, unthrottled
from penstock.actors.runs.loading import load
from penstock.broker import names
from penstock.broker.nats.direct import Stored
from penstock.broker.store import Store
from penstock.broker.worker_messages import TaskPayload, decode
from penstock.config.logging import get_logger
from penstock.engine.errors import NeedsUpgrade
from penstock.engine.run.state import STEP_OUT

EVERY_S = 60.0
TASKS_MAX = 1_000  # of one stream, in one round

log = get_logger()


async def watch_orphaned_tasks(store: Store) -> NoReturn:
    """Mend orphaned tasks, for ever; the check is made every EVERY_S."""
    orphaned = OrphanedTasks(store)

    async def check(throttle: Throttle) -> None:
        await orphaned.mend(throttle)

    await repeat_rounds("orphaned_tasks", check, EVERY_S)


class OrphanedTasks:
    """Remembers which tasks stood at or below a floor in the last round: one that is being acknowledged is gone by the
    next one, an orphaned one is not."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stood: dict[str, frozenset[int]] = {}
        self._mended = store.meters.counter("penstock_orphaned_tasks_total")

    async def mend(self, throttle: Throttle = unthrottled) -> int:
        """Queue again, or remove, what stood at or below a floor in the last round, too. Returns how many. Raises
        Unavailable."""
        mended = 0
        for stream in (names.TASKS, names.STICKY):
            stands = await self._standing(stream, throttle)
            before, self._stood[stream] = self._stood.get(stream, frozenset()), frozenset(one.seq for one in stands)
            mended += await self._mend(stream, [one for one in stands if one.seq in before], throttle)
        return mended

    async def _standing(self, stream: str, throttle: Throttle) -> Sequence[Stored]:
        found: list[Stored] = []
        for floor in await self._store.tasks.floors(stream):
            await throttle()
            found += await self._store.tasks.up_to_floor(stream, floor, TASKS_MAX - len(found))
            if len(found) == TASKS_MAX:
                break
        return found

    async def _mend(self, stream: str, orphaned: Collection[Stored], throttle: Throttle) -> int:
        mended = 0
        for stored in orphaned:
            await throttle()
            outcome = await self._outcome(stored)
            if outcome is None:
                continue
            log.warning("task_orphaned", stream=stream, seq=stored.seq, subject=stored.subject, outcome=outcome)
            if outcome == "queued":
                await self._store.tasks.queue_again(stored)
            await self._store.tasks.remove(
                stream, stored
            )  # last: after a crash before this line the next round queues it again
            self._mended.add(outcome)
            mended += 1
        return mended

    async def _outcome(self, stored: Stored) -> Literal["queued", "removed"] | None:
        """What to do with an orphaned task; None: a newer version of the service decides."""
        try:
            task = decode(stored.data)
        except MsgspecError:
            return "queued"  # who receives it makes it a dead letter
        try:
            return "queued" if await self._is_awaited(task) else "removed"
        except NeedsUpgrade:
            return None

    async def _is_awaited(self, task: TaskPayload) -> bool:
        run = (await load(self._store, task.run_id)).run
        step = None if run is None or run.ended else run.find(task.step_id)
        if step is None or step.status not in STEP_OUT:
            return False
        return (step.attempts, step.iteration) == (task.attempt, task.iteration)
