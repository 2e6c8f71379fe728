"""/runs/bulk, /runs/cancel, /runs/retry: many runs in one request."""

from __future__ import annotations

from collections.abc import Mapping

from falcon.asgi import Request, Response
from msgspec import UNSET, Raw, Struct, UnsetType

from penstock.actors.control import bulk, run_operations
from penstock.actors.control.bulk import RetryResult, Skipped, Wanted
from penstock.actors.control.retry import Latest, Plan, keep, plan, planned, rerun
from penstock.actors.index.freshness import freshened
from penstock.client.views import BulkCancelled, BulkRetried, BulkStarted, RetriedRun, SkippedRun
from penstock.config.limits import BULK_RUNS_MAX, MATCHING_RUNS_MAX, PAYLOAD_BYTES_MAX
from penstock.engine.definition import values
from penstock.engine.definition.report import Report
from penstock.engine.definition.schema import Schema
from penstock.engine.errors import Conflict, Invalid, Unavailable
from penstock.engine.run.state import RunStatus
from penstock.http.backend import Backend
from penstock.http.messages import bodies, fields, params, responses

RUNNING = frozenset[str]({RunStatus.RUNNING})
PENDING = frozenset[str]({RunStatus.PENDING, RunStatus.SCHEDULED})
CANCELLABLE: Mapping[str, frozenset[str]] = {"running": RUNNING, "pending": PENDING, "all": RUNNING | PENDING}
FAILED = frozenset[str]({RunStatus.FAILED})

MODE = values.one_of("rerun", "replay")
START: fields.Fields = {
    "inputs": fields.entries(BULK_RUNS_MAX, least=1),
    "version": values.version.annotated(description="An older one; else the latest."),
}
SELECT: fields.Fields = {
    "after": fields.moment.annotated(description="Created at this time or later."),
    "before": fields.moment.annotated(description="Created at this time or earlier."),
    "limit": values.whole_number(MATCHING_RUNS_MAX, least=1).annotated(
        description="At most so many, the newest, however many match."
    ),
}
CANCEL: fields.Fields = {"status": values.one_of(*CANCELLABLE), **SELECT}
RETRY: fields.Fields = {"mode": MODE, **SELECT}


class StartRuns(Struct, frozen=True, forbid_unknown_fields=True):
    workflow_id: str
    inputs: list[Raw]
    version: str | None = None


class CancelRuns(Struct, frozen=True, forbid_unknown_fields=True):
    """`after` and `before` bound the time of creation. With `limit`, the newest so many are taken, and `cursor`
    continues after them. With `compensate` the runs undo the steps that have completed, and are cancelled then."""

    workflow_id: str
    status: str = "all"
    after: str | None = None
    before: str | None = None
    dry_run: bool = False
    limit: int | None = None
    cursor: str | None = None
    compensate: bool = False


class RetryRuns(Struct, frozen=True, forbid_unknown_fields=True):
    """`mode` is rerun or replay; the rest as in CancelRuns. With `once`, runs that were rerun already are skipped."""

    workflow_id: str
    mode: str
    after: str | None = None
    before: str | None = None
    dry_run: bool = False
    once: bool = False
    limit: int | None = None
    cursor: str | None = None


class BulkRunsResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_post(self, req: Request, resp: Response) -> None:
        """Start up to 1,000 runs of one workflow, all or none."""
        key = params.idempotency_key(req)
        body = await bodies.read(req)
        request = bodies.decode(body, StartRuns)
        fields.check_fields(request, START)
        _check_sizes(body, request.inputs)
        known = await self._backend.catalog.wanted(request.workflow_id, request.version)
        _check_inputs(request.inputs, known.schema)
        begun = await run_operations.begin_all(self._backend.store, known.definition, known.digest, request.inputs, key)
        responses.set_seq(resp, begun.seq)
        responses.created(resp, BulkStarted(begun.run_ids, len(begun.run_ids)))


class BulkCancelResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_post(self, req: Request, resp: Response) -> None:
        """Cancel up to 1,000 runs of one workflow that match."""
        request = bodies.decode(await bodies.read(req), CancelRuns)
        wanted = _wanted(request)
        await _check_known(self._backend, request.workflow_id)
        store, index = self._backend.store, self._backend.index
        responses.set_lag(resp, await freshened(store, index, params.min_seq(req)))
        found = bulk.matching(index, wanted)
        done = (
            bulk.CancelledRuns(found.run_ids, [])
            if request.dry_run
            else await bulk.cancel(store, found.run_ids, compensate=request.compensate)
        )
        next_part = _next_part(request, found.next, found.remaining)
        responses.ok(
            resp, BulkCancelled(done.cancelled, _skipped(done.skipped), len(found.run_ids), request.dry_run, *next_part)
        )


class BulkRetryResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_post(self, req: Request, resp: Response) -> None:
        """Rerun or resume up to 1,000 failed runs of one workflow."""
        request = bodies.decode(await bodies.read(req), RetryRuns)
        wanted = _wanted(request)
        given = params.idempotency_key(req)
        key = None if request.dry_run else given
        known = await self._backend.catalog.wanted(request.workflow_id)
        store, index = self._backend.store, self._backend.index
        responses.set_lag(resp, await freshened(store, index, params.min_seq(req)))
        if request.mode == "rerun":
            plan = await self._plan(request, wanted, key)
            latest = Latest(known.definition, known.digest, known.schema)
            done, total = await rerun(store, plan, latest, dry_run=request.dry_run, key=key), plan.total
            next_part = _next_part(request, plan.next, plan.remaining)
        else:
            found = bulk.matching(index, wanted)
            done, total = await bulk.replay(store, found.run_ids, dry_run=request.dry_run), len(found.run_ids)
            next_part = _next_part(request, found.next, found.remaining)
        responses.ok(
            resp, BulkRetried(_retried(done.retried), _skipped(done.skipped), total, request.dry_run, *next_part)
        )

    async def _plan(self, request: RetryRuns, wanted: Wanted, key: str | None) -> Plan:
        """The runs to start again; with a key, those of its first request. Raises Conflict when it selected others."""
        store, index = self._backend.store, self._backend.index
        asked = f"{wanted.after} {wanted.before} {request.once}"
        if wanted.limit is not None:
            asked = f"{asked} {wanted.limit} {wanted.cursor}"
        found = None if key is None else await planned(store, wanted.workflow, key)
        if found is None:
            found = plan(index, bulk.matching(index, wanted), once=request.once, wanted=asked)
            if key is not None:
                found = await keep(store, wanted.workflow, key, found)
        if key is not None and found.wanted != asked:
            raise Conflict("this Idempotency-Key was used for another after, before or once, or another part")
        return found


async def _check_known(backend: Backend, workflow: str) -> None:
    """Raises Invalid for a workflow that is not registered and has no runs: one that was deleted may have some."""
    try:
        await backend.catalog.wanted(workflow)
    except Invalid as unknown:
        try:
            runs = backend.index.count(workflow)
        except Unavailable:
            raise unknown from None
        if not runs:
            raise


def _wanted(request: CancelRuns | RetryRuns) -> Wanted:
    """The filter of a request. Raises Invalid with every problem beyond the types of its fields."""
    report = Report()
    read = fields.read_fields(request, CANCEL if isinstance(request, CancelRuns) else RETRY, report)
    if request.cursor is not None and request.limit is None:
        report.add("cursor goes with limit only")
    fields.raise_problems(report)
    statuses = CANCELLABLE[request.status] if isinstance(request, CancelRuns) else FAILED
    after, before = read.get("after"), read.get("before")
    return Wanted(request.workflow_id, statuses, after, before, request.limit, request.cursor)


def _next_part(
    request: CancelRuns | RetryRuns, following: str | None, remaining: int
) -> tuple[str | UnsetType, int | UnsetType]:
    """`next` and `remaining`, which only an answer to a request with a limit has."""
    return (UNSET, UNSET) if request.limit is None else (following or UNSET, remaining)


def _skipped(found: list[Skipped]) -> list[SkippedRun]:
    return [SkippedRun(one.run_id, one.reason) for one in found]


def _retried(done: list[RetryResult]) -> list[RetriedRun]:
    return [RetriedRun(one.original_run_id, one.new_run_id) for one in done]


def _check_sizes(body: bytes, inputs: list[Raw]) -> None:
    if len(body) > PAYLOAD_BYTES_MAX:
        for number, value in enumerate(inputs):
            bodies.check_payload(f"input[{number}]", value)


def _check_inputs(inputs: list[Raw], schema: Schema | None) -> None:
    if schema is None:
        return
    report = Report()
    for number, value in enumerate(inputs):
        report.add(*schema.check(bytes(value), f"input[{number}]"))
    fields.raise_problems(report)
