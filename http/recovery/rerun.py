"""/runs/{run_id}/rerun and /runs/rerun: new runs of runs that have ended, from the beginning or from a step."""

from __future__ import annotations

from falcon.asgi import Request, Response
from msgspec import UNSET, Raw, Struct, UnsetType, field

from penstock.actors.control import run_operations
from penstock.actors.control.bulk import Wanted
from penstock.actors.control.rerunning import Definition, RerunWish, rerun
from penstock.actors.control.retry import Plan, with_wish
from penstock.actors.control.retry import rerun as rerun_all
from penstock.actors.index.freshness import freshened
from penstock.client.recovery.views import BulkRerun, RepeatedRun
from penstock.config.limits import BULK_RUNS_MAX
from penstock.engine.definition import values
from penstock.engine.definition.labels import labels
from penstock.engine.definition.report import Report
from penstock.engine.run.state import RunStatus
from penstock.http.backend import Backend
from penstock.http.messages import bodies, fields, params, responses
from penstock.http.messages.audited import note_many
from penstock.http.messages.callers import caller_of
from penstock.http.messages.errors import publishing
from penstock.http.resources.bulk import (
    FILTER,
    SelectRuns,
    check_known,
    keyed_plan,
    listed,
    next_part,
    one_workflow,
    selection_of,
    skipped,
)

OUTPUTS_MAX = BULK_RUNS_MAX - 1  # which begin the run together with its start, in one batch
ENDED = {
    "failed": frozenset[str]({RunStatus.FAILED}),
    "completed": frozenset[str]({RunStatus.COMPLETED}),
    "cancelled": frozenset[str]({RunStatus.CANCELLED}),
    "all": frozenset[str]({RunStatus.FAILED, RunStatus.COMPLETED, RunStatus.CANCELLED}),
}
RERUN: fields.Fields = {"labels": labels}
RERUN_ALL: fields.Fields = {"status": values.one_of(*ENDED), **FILTER}


class RerunOne(Struct, frozen=True, forbid_unknown_fields=True):
    """The optional body. `from` is the step to begin at: what does not depend on it is taken over as it is; without it
    nothing is. `input` replaces that of the run, `outputs` those of steps that are taken over, by step. `latest` uses
    the newest definition in place of the run's own. `labels` replaces those of the run."""

    from_: str | None = field(default=None, name="from")
    input: Raw | UnsetType = UNSET
    outputs: dict[str, Raw] = {}
    latest: bool = False
    labels: dict[str, str] | None = None


class RerunMany(SelectRuns, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`status` is failed (the default), completed, cancelled or all; `from` and `latest` are as in RerunOne, the rest
    as in RetryRuns."""

    status: str = "failed"
    once: bool = False
    from_: str | None = field(default=None, name="from")
    latest: bool = False


class RunRerunResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_post(self, req: Request, resp: Response, run_id: str) -> None:
        """Start a new run of one that has ended, from the beginning or from a step."""
        found, key = params.run_id(run_id), params.idempotency_key(req)
        body = await bodies.read(req)
        request = bodies.decode(body, RerunOne) if body else RerunOne()
        _check(request)
        latest = await self._latest(found) if request.latest else None
        given = None if isinstance(request.input, UnsetType) else request.input
        with publishing():
            wish = RerunWish(request.from_, given, request.outputs, latest, request.labels)
            begun = await rerun(self._backend.store, found, wish, key)
        responses.set_seq(resp, begun.seq)
        responses.created(resp, RepeatedRun(begun.run_id, found))

    async def _latest(self, run_id: str) -> Definition:
        run = await run_operations.get(self._backend.store, run_id)
        known = await self._backend.catalog.wanted(run.workflow_id)
        return Definition(known.definition, known.digest, known.schema)


class BulkRerunResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_post(self, req: Request, resp: Response) -> None:
        """Start new runs of up to 1,000 ended runs of one workflow."""
        request = bodies.decode(await bodies.read(req), RerunMany)
        wanted = selection_of(request, caller_of(req), RERUN_ALL, ENDED, request.status)
        workflow, given = one_workflow(request), params.idempotency_key(req)
        key = None if request.dry_run else given
        latest = await self._latest(req, request)
        note_many(req, request.workflow_id, dry_run=request.dry_run)
        store, index = self._backend.store, self._backend.index
        responses.set_lag(resp, await freshened(store, index, params.min_seq(req)))
        found = await self._plan(request, wanted, key)
        again = with_wish(store, RerunWish(request.from_, latest=latest))
        done = await rerun_all(store, workflow, found, again, dry_run=request.dry_run, key=key)
        rest = next_part(request.limit, found.next, found.remaining)
        responses.ok(resp, BulkRerun(listed(done.retried), skipped(done.skipped), found.total, request.dry_run, *rest))

    async def _latest(self, req: Request, request: RerunMany) -> Definition | None:
        """The newest definition, if it is wanted. Raises Invalid for an unknown workflow; one that was deleted may have
        runs, which have definitions of their own."""
        if not request.latest:
            await check_known(self._backend, request.workflow_id, params.min_seq(req))
            return None
        known = await self._backend.catalog.wanted(one_workflow(request))
        return Definition(known.definition, known.digest, known.schema)

    async def _plan(self, request: RerunMany, wanted: Wanted, key: str | None) -> Plan:
        asked = f"rerun {request.status} {wanted.after} {wanted.before} {request.once} {wanted.limit} {wanted.cursor}"
        asked = f"{asked} {request.from_} {request.latest} {sorted(wanted.labels)}"
        return await keyed_plan(
            self._backend,
            one_workflow(request),
            wanted,
            key,
            asked,
            "another filter, from or latest",
            once=request.once,
        )


def _check(request: RerunOne) -> None:
    """Raises Invalid or TooLarge for what is wrong whatever the run is."""
    report = Report()
    fields.read_fields(request, RERUN, report)
    if request.outputs and request.from_ is None:
        report.add("outputs goes with from only: without it nothing is taken over")
    if len(request.outputs) > OUTPUTS_MAX:
        report.add(f"outputs has {len(request.outputs)} steps, {OUTPUTS_MAX} is the most")
    fields.raise_problems(report)
    if not isinstance(request.input, UnsetType):
        bodies.check_payload("input", request.input)
    for step_id, output in request.outputs.items():
        bodies.check_payload(f"outputs.{step_id}", output)
