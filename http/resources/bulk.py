"""/runs/bulk, /runs/cancel, /runs/retry: many runs in one request."""

from __future__ import annotations

from collections.abc import Mapping

from falcon.asgi import Request, Response
from msgspec import UNSET, Raw, Struct, UnsetType

from penstock.actors.control import bulk, run_operations
from penstock.actors.control.bulk import RetryResult, Skipped, Wanted
from penstock.actors.control.rerunning import Definition
from penstock.actors.control.retry import Again, Plan, keep, plan, planned, rerun, with_latest
from penstock.actors.index.freshness import freshened
from penstock.client.recovery.views import BulkRetried, RetriedRun
from penstock.client.views import BulkCancelled, BulkStarted, SkippedRun
from penstock.config.limits import BULK_RUNS_MAX, MATCHING_RUNS_MAX, PAYLOAD_BYTES_MAX, RUN_LABELS_MAX
from penstock.engine.access.scopes import Caller
from penstock.engine.definition import values
from penstock.engine.definition.labels import labels, labels_of_each
from penstock.engine.definition.report import Report
from penstock.engine.definition.schema import Schema
from penstock.engine.errors import Conflict, Invalid, Unavailable
from penstock.engine.run.state import RunStatus
from penstock.http.backend import Backend
from penstock.http.messages import bodies, fields, params, responses
from penstock.http.messages.audited import note_many
from penstock.http.messages.callers import caller_of
from penstock.http.messages.run_filters import search_text

RUNNING = frozenset[str]({RunStatus.RUNNING})
PENDING = frozenset[str]({RunStatus.PENDING, RunStatus.SCHEDULED})
CANCELLABLE: Mapping[str, frozenset[str]] = {"running": RUNNING, "pending": PENDING, "all": RUNNING | PENDING}
FAILED = frozenset[str]({RunStatus.FAILED})
RETRYABLE: Mapping[str, frozenset[str]] = {"rerun": FAILED, "replay": FAILED}

MODE = values.one_of(*RETRYABLE)
START: fields.Fields = {
    "inputs": fields.entries(BULK_RUNS_MAX, least=1),
    "version": values.version.annotated(description="An older one; else the latest."),
    "labels": labels.annotated(description="Of every run."),
    "run_labels": labels_of_each.annotated(description="Of each run, in the order of the inputs; null for none."),
}
SELECT: fields.Fields = {
    "after": fields.moment.annotated(description="Created at this time or later."),
    "before": fields.moment.annotated(description="Created at this time or earlier."),
    "limit": values.whole_number(MATCHING_RUNS_MAX, least=1).annotated(
        description="At most so many, the newest, however many match."
    ),
    "labels": labels.annotated(description="Only runs that have all of these."),
}
FILTER: fields.Fields = {
    **SELECT,
    "trigger": values.name.annotated(description="Only runs that this trigger has started."),
    "parent": params.run.annotated(description="Only runs that a step of this run has started."),
    "q": search_text.annotated(description="Only runs whose id begins so, or with a label that contains it."),
    "run_ids": fields.each(params.run, MATCHING_RUNS_MAX).annotated(description="Only these."),
}
CONDITIONS = ("workflow_id", "after", "before", "labels", "trigger", "parent", "q", "run_ids")
CANCEL: fields.Fields = {"status": values.one_of(*CANCELLABLE), **FILTER}
RETRY: fields.Fields = {"mode": MODE, **FILTER}


class StartRuns(Struct, frozen=True, forbid_unknown_fields=True):
    workflow_id: str
    inputs: list[Raw]
    version: str | None = None
    labels: dict[str, str] | None = None
    run_labels: list[dict[str, str] | None] | None = None


class SelectRuns(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which runs: those that match, by the filters of listRuns. Without `workflow_id`, runs of all workflows that the
    caller may see, by at least one condition. `after` and `before` bound the time of creation. With `limit`, the newest
    so many are taken, and `cursor` continues after them."""

    workflow_id: str | None = None
    after: str | None = None
    before: str | None = None
    dry_run: bool = False
    limit: int | None = None
    cursor: str | None = None
    labels: dict[str, str] | None = None
    trigger: str | None = None
    parent: str | None = None
    q: str | None = None
    run_ids: list[str] | None = None


class CancelRuns(SelectRuns, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`after` and `before` bound the time of creation; `paused`: only runs that are paused, or (false) that are not.
    With `limit`, the newest so many are taken, and `cursor` continues after them. With `compensate` the runs undo the
    steps that have completed, and are cancelled then."""

    status: str = "all"
    compensate: bool = False
    paused: bool | None = None


class RetryRuns(SelectRuns, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`mode` is rerun or replay; the rest as in CancelRuns. With `once`, runs that were rerun already are skipped."""

    mode: str
    once: bool = False


class BulkRunsResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_post(self, req: Request, resp: Response) -> None:
        """Start up to 1,000 runs of one workflow, all or none."""
        key = params.idempotency_key(req)
        body = await bodies.read(req)
        request = bodies.decode(body, StartRuns)
        caller_of(req).check_workflow(request.workflow_id)
        fields.check_fields(request, START)
        _check_sizes(body, request.inputs)
        of_each = _labels_of_each(request)
        known = await self._backend.catalog.wanted(request.workflow_id, request.version)
        _check_inputs(request.inputs, known.schema)
        store, given = self._backend.store, (known.definition, known.digest, request.inputs)
        begun = await run_operations.begin_all(store, *given, key, of_each)
        responses.set_seq(resp, begun.seq)
        responses.created(resp, BulkStarted(begun.run_ids, len(begun.run_ids)))


class BulkCancelResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_post(self, req: Request, resp: Response) -> None:
        """Cancel up to 1,000 runs that match."""
        request = bodies.decode(await bodies.read(req), CancelRuns)
        wanted = _wanted(request, caller_of(req))
        await check_known(self._backend, request.workflow_id, params.min_seq(req))
        note_many(req, request.workflow_id, dry_run=request.dry_run)
        store, index = self._backend.store, self._backend.index
        responses.set_lag(resp, await freshened(store, index, params.min_seq(req)))
        found = await bulk.matching(index, wanted)
        done = (
            bulk.CancelledRuns(found.run_ids, [])
            if request.dry_run
            else await bulk.cancel(store, found.run_ids, compensate=request.compensate)
        )
        rest = next_part(request.limit, found.next, found.remaining)
        responses.ok(
            resp, BulkCancelled(done.cancelled, skipped(done.skipped), len(found.run_ids), request.dry_run, *rest)
        )


class BulkRetryResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_post(self, req: Request, resp: Response) -> None:
        """Resume up to 1,000 failed runs that match, or rerun those of one workflow."""
        request = bodies.decode(await bodies.read(req), RetryRuns)
        wanted = _wanted(request, caller_of(req))
        given = params.idempotency_key(req)
        key = None if request.dry_run else given
        store, index = self._backend.store, self._backend.index
        again = await self._again(req, request)
        note_many(req, request.workflow_id, dry_run=request.dry_run)
        responses.set_lag(resp, await freshened(store, index, params.min_seq(req)))
        if again is not None:
            plan = await self._plan(request, wanted, key)
            done = await rerun(store, one_workflow(request), plan, again, dry_run=request.dry_run, key=key)
            total = plan.total
            rest = next_part(request.limit, plan.next, plan.remaining)
        else:
            found = await bulk.matching(index, wanted)
            done, total = await bulk.replay(store, found.run_ids, dry_run=request.dry_run), len(found.run_ids)
            rest = next_part(request.limit, found.next, found.remaining)
        responses.ok(resp, BulkRetried(listed(done.retried), skipped(done.skipped), total, request.dry_run, *rest))

    async def _again(self, req: Request, request: RetryRuns) -> Again | None:
        """How a run is started again, with the newest definition; None for a replay, in which each run has its own.
        Raises Invalid for an unknown workflow."""
        if request.mode != "rerun":
            await check_known(self._backend, request.workflow_id, params.min_seq(req))
            return None
        known = await self._backend.catalog.wanted(one_workflow(request))
        return with_latest(self._backend.store, Definition(known.definition, known.digest, known.schema))

    async def _plan(self, request: RetryRuns, wanted: Wanted, key: str | None) -> Plan:
        asked = f"{wanted.after} {wanted.before} {request.once}"
        if wanted.limit is not None:
            asked = f"{asked} {wanted.limit} {wanted.cursor}"
        if wanted.labels:
            asked = f"{asked} {sorted(wanted.labels)}"
        return await keyed_plan(
            self._backend,
            one_workflow(request),
            wanted,
            key,
            asked,
            "another after, before or once, or another part",
            once=request.once,
        )


async def keyed_plan(
    backend: Backend, workflow: str, wanted: Wanted, key: str | None, asked: str, others: str, *, once: bool
) -> Plan:
    """The runs to start again; with a key, those of its first request. Raises Conflict when that was not what is
    `asked`, but `others`."""
    store, index = backend.store, backend.index
    if more := [str(one) for one in (wanted.trigger, wanted.parent, wanted.text, wanted.run_ids) if one]:
        asked = f"{asked} {more}"
    found = None if key is None else await planned(store, workflow, key)
    if found is None:
        found = plan(index, await bulk.matching(index, wanted), once=once, wanted=asked)
        if key is not None:
            found = await keep(store, workflow, key, found)
    if key is not None and found.wanted != asked:
        raise Conflict(f"this Idempotency-Key was used for {others}")
    return found


async def check_known(backend: Backend, workflow: str | None, min_seq: int) -> None:
    """Raises Invalid for a workflow that is not registered and has no runs: one that was deleted may have some."""
    if workflow is None:
        return
    try:
        await backend.catalog.wanted(workflow)
    except Invalid as unknown:
        try:
            await freshened(backend.store, backend.index, min_seq)
            runs = backend.index.count(workflow)
        except Unavailable:
            raise unknown from None
        if not runs:
            raise


def _wanted(request: CancelRuns | RetryRuns, caller: Caller) -> Wanted:
    if isinstance(request, RetryRuns):
        return selection_of(request, caller, RETRY, RETRYABLE, request.mode)
    return selection_of(request, caller, CANCEL, CANCELLABLE, request.status, request.paused)


def selection_of(
    request: SelectRuns,
    caller: Caller,
    rules: fields.Fields,
    statuses: Mapping[str, frozenset[str]],
    status: str,
    paused: bool | None = None,
) -> Wanted:
    """The filter of a request, whose `status` means these statuses: of the caller's workflows only. Raises OutOfScope
    for another workflow, Invalid with every problem beyond the types of its fields."""
    if request.workflow_id is not None:
        caller.check_workflow(request.workflow_id)
    report = Report()
    read = fields.read_fields(request, rules, report)
    if request.cursor is not None and request.limit is None:
        report.add("cursor goes with limit only")
    if all(getattr(request, name) in (None, {}) for name in CONDITIONS):
        report.add(f"no condition: give at least one of {', '.join(CONDITIONS)}")
    fields.raise_problems(report)
    labelled = tuple(f"{key}:{value}" for key, value in (request.labels or {}).items())
    bounds = (read.get("after"), read.get("before"), request.limit, request.cursor)
    return Wanted(
        request.workflow_id,
        statuses[status],
        *bounds,
        labelled,
        paused,
        request.trigger,
        request.parent,
        request.q,
        None if request.run_ids is None else tuple(dict.fromkeys(request.run_ids)),
        caller.workflows if request.workflow_id is None else None,
    )


def one_workflow(request: SelectRuns) -> str:
    """The workflow whose runs are started again. Raises Invalid without one."""
    if request.workflow_id is None:
        raise Invalid("workflow_id is missing: runs are started again of one workflow at a time")
    return request.workflow_id


def next_part(limit: int | None, following: str | None, remaining: int) -> tuple[str | UnsetType, int | UnsetType]:
    """`next` and `remaining`, which only an answer to a request with a limit has."""
    return (UNSET, UNSET) if limit is None else (following or UNSET, remaining)


def skipped(found: list[Skipped]) -> list[SkippedRun]:
    return [SkippedRun(one.run_id, one.reason) for one in found]


def listed(done: list[RetryResult]) -> list[RetriedRun]:
    return [RetriedRun(one.original_run_id, one.new_run_id) for one in done]


def _check_sizes(body: bytes, inputs: list[Raw]) -> None:
    if len(body) > PAYLOAD_BYTES_MAX:
        for number, value in enumerate(inputs):
            bodies.check_payload(f"input[{number}]", value)


def _labels_of_each(request: StartRuns) -> list[dict[str, str] | None] | None:
    """The labels of each run: its own beside those of all, and before them; None when no run has any.

    Raises Invalid for another number of them than of inputs, and for too many of one run.
    """
    if request.run_labels is None:
        return [request.labels] * len(request.inputs) if request.labels else None
    report = Report()
    if len(request.run_labels) != len(request.inputs):
        report.add(f"run_labels has {len(request.run_labels)} entries, inputs has {len(request.inputs)}")
    found = [{**(request.labels or {}), **(own or {})} for own in request.run_labels]
    for number, merged in enumerate(found):
        if len(merged) > RUN_LABELS_MAX:
            report.add(f"run_labels[{number}] has {len(merged)} entries with labels, {RUN_LABELS_MAX} is the most")
    fields.raise_problems(report)
    return [merged or None for merged in found]


def _check_inputs(inputs: list[Raw], schema: Schema | None) -> None:
    if schema is None:
        return
    report = Report()
    for number, value in enumerate(inputs):
        report.add(*schema.check(bytes(value), f"input[{number}]"))
    fields.raise_problems(report)
