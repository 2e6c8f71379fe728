"""/runs: start a run, show one, list many, cancel one, send it a signal."""

from __future__ import annotations

import time
from datetime import datetime

from falcon.asgi import Request, Response
from msgspec import Raw, Struct, field

from penstock.actors.control import run_operations
from penstock.actors.control.watch import wait_for_end
from penstock.actors.index.freshness import freshened
from penstock.actors.runs.outputs import shown
from penstock.client.views import CancelledRun, Sent, StartedRun
from penstock.config.limits import PAYLOAD_BYTES_MAX, SCHEDULE_AHEAD_MIN_S, SCHEDULE_AHEAD_S_MAX, SIGNAL_BYTES_MAX
from penstock.engine.definition import durations, values
from penstock.engine.definition.identifiers import quoted
from penstock.engine.definition.report import Report
from penstock.engine.run.events import NULL
from penstock.engine.run.state import RunStatus
from penstock.http.backend import Backend
from penstock.http.catalog import Known
from penstock.http.messages import bodies, fields, params, responses
from penstock.http.messages.errors import publishing
from penstock.http.messages.views import view
from penstock.http.resources import listing

START: fields.Fields = {"version": values.version.annotated(description="An older one; else the latest.")}


class StartRun(Struct, frozen=True, forbid_unknown_fields=True):
    workflow: str
    input: Raw = field(default_factory=lambda: NULL)
    run_at: str | None = None
    version: str | None = None


class CancelRun(Struct, frozen=True, forbid_unknown_fields=True):
    """With `compensate` the run undoes the steps that have completed, and is cancelled then."""

    reason: str | None = None
    compensate: bool = False


class RunsResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response) -> None:
        """Runs, newest first; a Link leads to the next page."""
        wanted = params.run_filter(req)
        responses.set_lag(
            resp, await freshened(self._backend.store, self._backend.index, params.min_seq(req), hasty=True)
        )
        page = await listing.page(self._backend.store, self._backend.index, wanted)
        outputs = await shown(self._backend.store, page.runs, listing.PAGE_BYTES_MAX)
        responses.ok(resp, [view(run, outputs) for run in page.runs])
        if page.next:
            resp.set_header("Link", listing.link(req, page.next))

    async def on_post(self, req: Request, resp: Response) -> None:
        """Start a run, now or at a given time."""
        key = params.idempotency_key(req)
        request = bodies.decode(await bodies.read(req), StartRun)
        if request.version is not None:
            fields.check_fields(request, START)
        known = await self._backend.catalog.wanted(request.workflow, request.version)
        run_at = await self._run_at(request, known)
        store, given = self._backend.store, (known.definition, known.digest, request.input)
        if run_at is None:
            begun = await run_operations.begin(store, *given, key)
        else:
            begun = await run_operations.schedule(store, *given, run_at, key)
        responses.set_seq(resp, begun.seq)
        responses.created(resp, StartedRun(begun.run_id, RunStatus.SCHEDULED if begun.scheduled else None))

    async def _run_at(self, request: StartRun, known: Known) -> datetime | None:
        """As `_check`. Where a wrong clock of ours would start a run early, or let its schedule be forgotten, the
        broker's is asked."""
        max_age_s = self._backend.settings.history_max_age
        run_at = _check(request, known, max_age_s, time.time())
        if request.run_at is None or (run_at is not None and max_age_s is None):
            return run_at
        return _check(request, known, max_age_s, await self._backend.store.history.now())


class RunResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response, run_id: str) -> None:
        """One run, as fresh as the log; with `wait_ms`, when it has ended or that time is over."""
        store, found, wait_s = self._backend.store, params.run_id(run_id), params.wait_s(req)
        run = (
            await wait_for_end(store, found, self._backend.waiters.limit(wait_s))
            if wait_s
            else await run_operations.get(store, found)
        )
        responses.ok(resp, view(run, await shown(store, [run])))


class CancellationResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_post(self, req: Request, resp: Response, run_id: str) -> None:
        """Cancel a run; the body may contain a reason, and ask for compensation."""
        found = params.run_id(run_id)
        body = await bodies.read(req, PAYLOAD_BYTES_MAX)
        request = bodies.decode(body, CancelRun) if body else CancelRun()
        with publishing():
            status = await run_operations.cancel(
                self._backend.store, found, request.reason, compensate=request.compensate
            )
        responses.ok(resp, CancelledRun(found, status))


class SignalResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_post(self, req: Request, resp: Response, run_id: str, name: str) -> None:
        """Send a signal to a run; its payload is the body, of any kind."""
        signal, found = params.signal_name(name), params.run_id(run_id)
        payload = await bodies.read(req, SIGNAL_BYTES_MAX)
        with publishing():
            await run_operations.signal(self._backend.store, found, signal, payload)
        responses.ok(resp, Sent(found, signal))


def _check(request: StartRun, known: Known, history_max_age_s: float | None, now: float) -> datetime | None:
    """When the run shall start, None for at once. Raises TooLarge or Invalid, with all that is wrong beyond the
    request's form."""
    bodies.check_payload("input", request.input)
    report = Report()
    run_at = _run_at(request.run_at, history_max_age_s, now, report)
    report.add(*(known.schema.check(bytes(request.input), "input") if known.schema else []))
    fields.raise_problems(report)
    return run_at


def _run_at(text: str | None, history_max_age_s: float | None, now: float, report: Report) -> datetime | None:
    if text is None:
        return None
    moment = fields.instant(text)
    if moment is None:
        report.add(f"run_at must be a time such as 2025-01-31T12:00:00Z, not {quoted(text)}")
        return None
    ahead_s = moment.timestamp() - now
    if history_max_age_s and ahead_s >= history_max_age_s:
        report.add(
            f"run_at {quoted(text)} is further ahead than history_max_age ({durations.text(history_max_age_s)}) "
            "keeps a schedule"
        )
    if ahead_s > SCHEDULE_AHEAD_S_MAX:
        report.add(f"run_at {quoted(text)} is more than 100 years ahead")
    return moment if ahead_s > SCHEDULE_AHEAD_MIN_S else None
