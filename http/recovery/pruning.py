"""/runs/prune: runs that have ended are removed, with all that is stored of them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from falcon.asgi import Request, Response
from msgspec import Struct

from penstock.actors.control import bulk
from penstock.actors.index.freshness import freshened
from penstock.actors.index.selection import Selection
from penstock.actors.maintenance.pruning import prune
from penstock.client.recovery.views import BulkPruned
from penstock.engine.definition import values
from penstock.engine.definition.report import Report
from penstock.engine.run.state import RUN_ENDED
from penstock.http.backend import Backend
from penstock.http.messages import bodies, fields, params, responses
from penstock.http.messages.audited import note_many
from penstock.http.messages.callers import caller_of
from penstock.http.resources.bulk import SELECT, next_part, skipped

ENDED: Mapping[str, frozenset[str]] = {
    **{str(status): frozenset({str(status)}) for status in sorted(RUN_ENDED)},
    "all": frozenset(map(str, RUN_ENDED)),
}
PRUNE: fields.Fields = {
    "workflow_id": values.name,
    "status": values.one_of(*ENDED),
    **SELECT,
    "ended_before": fields.moment.annotated(description="Only runs that ended before this time."),
}
FILTERS = ("workflow_id", "status", "after", "before", "ended_before", "labels")


class PruneRuns(Struct, frozen=True, forbid_unknown_fields=True):
    """The filter as in CancelRuns, of runs that have ended; at least one condition. Without `workflow_id`, the runs of
    all workflows that the caller may see."""

    workflow_id: str | None = None
    status: str | None = None
    after: str | None = None
    before: str | None = None
    ended_before: str | None = None
    dry_run: bool = False
    limit: int | None = None
    cursor: str | None = None
    labels: dict[str, str] | None = None


class PruneResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_post(self, req: Request, resp: Response) -> None:
        """Remove up to 1,000 runs that have ended and match."""
        request = bodies.decode(await bodies.read(req), PruneRuns)
        caller = caller_of(req)
        if request.workflow_id is not None:
            caller.check_workflow(request.workflow_id)
        read = _read(request)
        note_many(req, request.workflow_id, dry_run=request.dry_run)
        store, index = self._backend.store, self._backend.index
        responses.set_lag(resp, await freshened(store, index, params.min_seq(req)))
        wanted = _selection(request, read, caller.workflows)
        found = await bulk.selected(index, wanted, request.limit, request.cursor)
        before = read.get("ended_before")
        ended_before = datetime.fromisoformat(before).timestamp() if isinstance(before, str) else None
        done = await prune(store, index, found.run_ids, ended_before, dry_run=request.dry_run)
        rest = next_part(request.limit, found.next, found.remaining)
        total = len(done.pruned) + len(done.skipped)
        responses.ok(resp, BulkPruned(done.pruned, skipped(done.skipped), total, request.dry_run, *rest))


def _read(request: PruneRuns) -> Mapping[str, object]:
    """The values of the filter. Raises Invalid with every problem beyond the types of its fields."""
    report = Report()
    read = fields.read_fields(request, PRUNE, report)
    if request.cursor is not None and request.limit is None:
        report.add("cursor goes with limit only")
    if not any(getattr(request, name) for name in FILTERS):
        report.add(f'no condition: give at least one of {", ".join(FILTERS)} ("status": "all" is all that have ended)')
    fields.raise_problems(report)
    return read


def _selection(request: PruneRuns, read: Mapping[str, object], pattern: str | None) -> Selection:
    """What may match in the index. A run that ended before a time was created before it, too."""
    after, before = read.get("after"), read.get("before")
    bounds = [bound for bound in (before, read.get("ended_before")) if isinstance(bound, str)]
    return Selection(
        workflow=request.workflow_id,
        statuses=ENDED[request.status or "all"],
        after=after if isinstance(after, str) else None,
        before=min(bounds, key=datetime.fromisoformat) if bounds else None,
        labels=tuple(f"{key}:{value}" for key, value in (request.labels or {}).items()),
        pattern=None if request.workflow_id is not None else pattern,
    )
