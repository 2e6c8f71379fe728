"""Why several runs wait, within bounds of time and of requests at once."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from penstock.actors.diagnosis.explanation import explanation
from penstock.broker.store import Store
from penstock.config.process.background import all_of
from penstock.engine.access.scopes import EVERYBODY, Caller
from penstock.engine.errors import NotFound, Unavailable
from penstock.engine.run.state import Run
from penstock.engine.waiting.reasons import WaitingReason

AT_ONCE = 16
RECENT_S = 2.0

StorageProblem = Callable[[], Coroutine[Any, Any, str]]


class RecentReasons:
    """Reasons that were found within the last 2 s, so that many who look at the same runs cost as much as one. What is
    known of a run is forgotten as soon as the run has moved. Callers with other workflows are told apart: a reason may
    name other runs."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, int, str | None], tuple[float, WaitingReason | None]] = {}

    async def of(
        self,
        store: Store,
        runs: Iterable[Run],
        storage_problem: StorageProblem,
        within_s: float,
        caller: Caller = EVERYBODY,
    ) -> dict[str, WaitingReason | None]:
        """As `first_reasons`."""
        keys = [(run.run_id, run.seq, caller.workflows) for run in runs]
        now = time.monotonic()
        self._found = {key: one for key, one in self._found.items() if now - one[0] < RECENT_S}
        known = {key[0]: self._found[key][1] for key in keys if key in self._found}
        unknown = [run_id for run_id, *_ in keys if run_id not in known]
        said = await first_reasons(store, unknown, storage_problem, within_s, caller)
        now = time.monotonic()
        self._found |= {key: (now, said[key[0]]) for key in keys if key[0] in said}
        return known | said


async def first_reasons(
    store: Store,
    run_ids: Iterable[str],
    storage_problem: StorageProblem,
    within_s: float,
    caller: Caller = EVERYBODY,
) -> dict[str, WaitingReason | None]:
    """For each run the first reason for which it waits, one that wants somebody before others; None for a run that
    does not wait. Runs that were not reached within the time, or of which nothing could be read, are left out."""
    found: dict[str, WaitingReason | None] = {}
    waiting, deadline = deque(run_ids), time.monotonic() + within_s

    async def explain_next() -> None:
        while waiting and time.monotonic() < deadline:
            run_id = waiting.popleft()
            try:
                _, reasons = await explanation(store, run_id, storage_problem, caller=caller)
            except (NotFound, Unavailable):
                continue
            found[run_id] = _first(reasons)

    await all_of(explain_next() for _ in range(min(AT_ONCE, len(waiting))))
    return found


def _first(reasons: list[WaitingReason]) -> WaitingReason | None:
    return next((one for one in reasons if one.wants_somebody), reasons[0] if reasons else None)
