"""/runs/pause and /runs/resume: many runs in one request."""

from __future__ import annotations

from collections.abc import Mapping

from falcon.asgi import Request, Response

from penstock.actors.control import bulk, pausing
from penstock.actors.control.bulk import MatchingRuns
from penstock.actors.control.pausing import OrderedRuns
from penstock.actors.index.freshness import freshened
from penstock.client.recovery.views import BulkPaused, BulkResumed
from penstock.engine.definition import values
from penstock.engine.run.state import RunStatus
from penstock.http.backend import Backend
from penstock.http.messages import bodies, fields, params, responses
from penstock.http.messages.audited import note_many
from penstock.http.messages.callers import caller_of
from penstock.http.resources.bulk import FILTER, SelectRuns, check_known, next_part, selection_of, skipped

RUNNING = frozenset[str]({RunStatus.RUNNING, RunStatus.COMPENSATING})
PENDING = frozenset[str]({RunStatus.PENDING, RunStatus.SCHEDULED})
OPEN: Mapping[str, frozenset[str]] = {"running": RUNNING, "pending": PENDING, "all": RUNNING | PENDING}
PAUSE: fields.Fields = {"status": values.one_of(*OPEN), **FILTER}


class PauseRuns(SelectRuns, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The filter as in CancelRuns. With `children`, also the runs that the steps of these wait for, and theirs."""

    status: str = "all"
    children: bool = False
    paused: bool | None = None


class BulkPauseResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_post(self, req: Request, resp: Response) -> None:
        """Pause up to 1,000 runs that match."""
        request, found = await _matching(self._backend, req, resp)
        done = (
            OrderedRuns(found.run_ids, [])
            if request.dry_run
            else await pausing.pause_all(self._backend.store, found.run_ids, children=request.children)
        )
        rest = next_part(request.limit, found.next, found.remaining)
        responses.ok(resp, BulkPaused(done.done, skipped(done.skipped), len(found.run_ids), request.dry_run, *rest))


class BulkResumeResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_post(self, req: Request, resp: Response) -> None:
        """Let those go on that are paused, of up to 1,000 runs of one workflow that match."""
        request, found = await _matching(self._backend, req, resp)
        done = await pausing.unpause_all(
            self._backend.store, found.run_ids, children=request.children, dry_run=request.dry_run
        )
        rest = next_part(request.limit, found.next, found.remaining)
        responses.ok(resp, BulkResumed(done.done, skipped(done.skipped), len(found.run_ids), request.dry_run, *rest))


async def _matching(backend: Backend, req: Request, resp: Response) -> tuple[PauseRuns, MatchingRuns]:
    """The request, and the runs that match. Raises Invalid, also for an unknown workflow; Unavailable."""
    request = bodies.decode(await bodies.read(req), PauseRuns)
    wanted = selection_of(request, caller_of(req), PAUSE, OPEN, request.status, request.paused)
    await check_known(backend, request.workflow_id, params.min_seq(req))
    note_many(req, request.workflow_id, dry_run=request.dry_run)
    responses.set_lag(resp, await freshened(backend.store, backend.index, params.min_seq(req)))
    return request, await bulk.matching(backend.index, wanted)
