"""Why several runs wait, within bounds of time and of requests at once."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from penstock.actors.diagnosis.explanation import explanation
from penstock.broker.store import Store
from penstock.config.process.background import all_of
from penstock.engine.errors import NotFound, Unavailable
from penstock.engine.run.state import Run
from penstock.engine.waiting.reasons import WaitingReason

AT_ONCE = 16
RECENT_S = 2.0

StorageProblem = Callable[[], Coroutine[Any, Any, str]]


class RecentReasons:
    """Reasons that were found within the last 2 s, so that many who look at the same runs cost as much as one. What is
    known of a run is forgotten as soon as the run has moved."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, int], tuple[float, WaitingReason | None]] = {}

    async def of(
        self, store: Store, runs: Iterable[Run], storage_problem: StorageProblem, within_s: float
    ) -> dict[str, WaitingReason | None]:
        """As `first_reasons`."""
        keys = [(run.run_id, run.seq) for run in runs]
        now = time.monotonic()
        self._found = {key: one for key, one in self._found.items() if now - one[0] < RECENT_S}
        known = {key[0]: self._found[key][1] for key in keys if key in self._found}
        said = await first_reasons(
            store, [run_id for run_id, _ in keys if run_id not in known], storage_problem, within_s
        )
        now = time.monotonic()
        self._found |= {key: (now, said[key[0]]) for key in keys if key[0] in said}
        return known | said


async def first_reasons(
    store: Store, run_ids: Iterable[str], storage_problem: StorageProblem, within_s: float
) -> dict[str, WaitingReason | None]:
    """For each run the first reason for which it waits, one that wants somebody before others; None for a run that
    does not wait. Runs that were not reached within the time, or of which nothing could be read, are left out."""
    found: dict[str, WaitingReason | None] = {}
    waiting, deadline = deque(run_ids), time.monotonic() + within_s

    async def explain_next() -> None:
        while waiting and time.monotonic() < deadline:
            run_id = waiting.popleft()
            try:
                _, reasons = await explanation(store, run_id, storage_problem)
            except (NotFound, Unavailable):
                continue
            found[run_id] = _first(reasons)

    await all_of(explain_next() for _ in range(min(AT_ONCE, len(waiting))))
    return found


def _first(reasons: list[WaitingReason]) -> WaitingReason | None:
    return next((one for one in reasons if one.wants_somebody), reasons[0] if reasons else None)
