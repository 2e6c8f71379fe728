"""/runs/summaries: runs in short, with the reasons for which they do not go on."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from functools import partial
from math import inf

from falcon.asgi import Request, Response
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from penstock.actors.diagnosis.several import RecentReasons
from penstock.actors.index.freshness import freshened
from penstock.client.operating.views import RunSummary
from penstock.client.views import ParentView
from penstock.engine.access.scopes import Caller
from penstock.engine.run.event_payloads import NULL, ParentRef
from penstock.engine.run.items import ItemStatus
from penstock.engine.run.state import RUN_ENDED, Run, RunStatus
from penstock.engine.waiting.reasons import WaitingReason
from penstock.http.backend import Backend
from penstock.http.messages import params, responses, run_filters
from penstock.http.messages.callers import caller_of
from penstock.http.messages.recent import Made, RecentAnswers
from penstock.http.messages.run_filters import Filter, SummaryFilter
from penstock.http.resources import listing
from penstock.http.resources.listing import RunsPage
from penstock.http.system.storage import StorageHealth

INPUT_CHARS_MAX = 160
ERROR_CHARS_MAX = 300
EXPLAINED_MAX = 100  # runs of one answer
EXPLAINED_S_MAX = 1.0
LOOKED_AT_MAX = 200  # runs of one answer, for those that are held up
PART = 50
OPEN = frozenset(RunStatus) - RUN_ENDED

Reasons = Mapping[str, WaitingReason | None]


class SummariesResource:
    def __init__(self, backend: Backend, storage: StorageHealth) -> None:
        self._backend, self._storage = backend, storage
        self._recent, self._answers = RecentReasons(), RecentAnswers()

    async def on_get(self, req: Request, resp: Response) -> None:
        """Runs in short, newest first; a Link leads to the next page."""
        wanted, min_seq = run_filters.summary_filter(req), params.min_seq(req)
        await self._answers.give(req, resp, partial(self._made, req, wanted, min_seq))

    async def _made(self, req: Request, wanted: SummaryFilter, min_seq: int) -> Made:
        caller = caller_of(req)
        lag = await freshened(self._backend.store, self._backend.index, min_seq, hasty=True)
        found, reasons = await (self._held_up(wanted.runs, caller) if wanted.held_up else self._all(wanted, caller))
        headers = responses.lag_headers(lag)
        if found.next:
            headers["Link"] = responses.link(req, found.next)
        return Made(responses.encoded([summary(run, reasons.get(run.run_id)) for run in found.runs]), headers)

    async def _all(self, wanted: SummaryFilter, caller: Caller) -> tuple[RunsPage, Reasons]:
        found = await listing.page(self._backend.store, self._backend.index, wanted.runs)
        return found, await self._reasons(found.runs, EXPLAINED_S_MAX, caller) if wanted.explain else {}

    async def _held_up(self, wanted: Filter, caller: Caller) -> tuple[RunsPage, Reasons]:
        """Those that wait for somebody, of the runs that have not ended. Ends early after LOOKED_AT_MAX of them, or
        when the time is over: what was not looked at is on the next page."""
        statuses = OPEN if wanted.status is None else OPEN & {wanted.status}
        wanted = replace(wanted, selection=replace(wanted.selection, statuses=frozenset(map(str, statuses))))
        deadline, looked_at = time.monotonic() + EXPLAINED_S_MAX, 0
        runs: list[Run] = []
        reasons: dict[str, WaitingReason | None] = {}
        cursor = wanted.cursor
        while True:
            part = replace(wanted, limit=min(PART, wanted.limit - len(runs)), cursor=cursor)
            found = await listing.page(self._backend.store, self._backend.index, part)
            said = await self._reasons(found.runs, inf, caller)
            runs += (run for run in found.runs if (why := said.get(run.run_id)) is not None and why.wants_somebody)
            reasons |= said
            cursor, looked_at = found.next, looked_at + part.limit
            is_over = looked_at >= LOOKED_AT_MAX or time.monotonic() >= deadline
            if cursor is None or len(runs) >= wanted.limit or is_over:
                return RunsPage(runs, cursor), reasons

    async def _reasons(self, runs: list[Run], within_s: float, caller: Caller) -> Reasons:
        active = [run for run in runs if not run.ended and run.imported is None][:EXPLAINED_MAX]
        return await self._recent.of(self._backend.store, active, self._storage.problem, within_s, caller)


def summary(run: Run, waiting: WaitingReason | None) -> RunSummary:
    """The run in short, and what it waits for."""
    text, size = _input(run)
    return RunSummary(
        run.run_id,
        run.workflow_id,
        run.version,
        run.status,
        run.created_at,
        dict(Counter(str(step.status) for step in run.steps.values())),
        text,
        size,
        None if run.error is None else run.error[:ERROR_CHARS_MAX],
        run.started_at,
        run.finished_at,
        run.run_at,
        ParentView(run.parent.run_id, run.parent.step_id) if isinstance(run.parent, ParentRef) else run.parent,
        run.rerun_of,
        run.trigger,
        run.failure_of,
        run.labels,
        None if run.pause is None else run.pause.at,
        run.imported is not None,
        waiting,
        waiting is not None and waiting.wants_somebody,
        sum(step.items.counts[ItemStatus.FAILED] for step in run.steps.values() if step.items is not None),
    )


def _input(run: Run) -> tuple[str | None, int | UnsetType]:
    """The beginning of the input, and the size of the whole where there is more; none of one that is null."""
    if run.input_at is not None:  # stands in the history only
        return None, run.input_at.size
    value = memoryview(run.input)
    if value == memoryview(NULL):
        return None, UNSET
    text = bytes(value[: 4 * INPUT_CHARS_MAX]).decode(errors="ignore")  # at most 4 bytes each
    is_whole = len(text) <= INPUT_CHARS_MAX and value.nbytes <= 4 * INPUT_CHARS_MAX
    return text[:INPUT_CHARS_MAX], UNSET if is_whole else value.nbytes
