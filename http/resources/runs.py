"""/runs: start a run, show one, list many; cancel, pause and resume one, send it a signal."""

from __future__ import annotations

import time
from datetime import datetime
from functools import partial

from falcon.asgi import Request, Response
from msgspec import UNSET, Raw, Struct, field

from penstock.actors.control import pausing, run_operations
from penstock.actors.control.watch import wait_for_end
from penstock.actors.imports.reading import read, read_at
from penstock.actors.index.freshness import freshened
from penstock.actors.runs.outputs import shown
from penstock.client.recovery.views import PausedRun
from penstock.client.views import CancelledRun, Sent, StartedRun
from penstock.config.limits import PAYLOAD_BYTES_MAX, SCHEDULE_AHEAD_MIN_S, SCHEDULE_AHEAD_S_MAX, SIGNAL_BYTES_MAX
from penstock.engine.definition import durations, values
from penstock.engine.definition.identifiers import quoted
from penstock.engine.definition.labels import labels
from penstock.engine.definition.report import Report
from penstock.engine.run.event_payloads import NULL
from penstock.engine.run.state import Run, RunStatus
from penstock.http.backend import Backend
from penstock.http.catalog import Known
from penstock.http.messages import bodies, fields, params, responses, run_filters
from penstock.http.messages.callers import caller_of
from penstock.http.messages.errors import publishing
from penstock.http.messages.recent import Made, RecentAnswers
from penstock.http.messages.run_filters import StatsFilter
from penstock.http.messages.views import view
from penstock.http.resources import listing

START: fields.Fields = {
    "version": values.version.annotated(description="An older one; else the latest."),
    "labels": labels,
}


class StartRun(Struct, frozen=True, forbid_unknown_fields=True):
    workflow: str
    input: Raw = field(default_factory=lambda: NULL)
    run_at: str | None = None
    version: str | None = None
    labels: dict[str, str] | None = None


class CancelRun(Struct, frozen=True, forbid_unknown_fields=True):
    """With `compensate` the run undoes the steps that have completed, and is cancelled then."""

    reason: str | None = None
    compensate: bool = False


class PauseRun(Struct, frozen=True, forbid_unknown_fields=True):
    """With `children`, also the runs that its steps wait for, and theirs."""

    children: bool = False


class RunsResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response) -> None:
        """Runs, newest first; a Link leads to the next page."""
        wanted = run_filters.run_filter(req)
        responses.set_lag(
            resp, await freshened(self._backend.store, self._backend.index, params.min_seq(req), hasty=True)
        )
        page = await listing.page(self._backend.store, self._backend.index, wanted)
        outputs = await shown(self._backend.store, page.runs, listing.PAGE_BYTES_MAX, wanted.payload_max)
        responses.ok(resp, [view(run, outputs, payload_max=wanted.payload_max) for run in page.runs])
        if page.next:
            resp.set_header("Link", responses.link(req, page.next))

    async def on_post(self, req: Request, resp: Response) -> None:
        """Start a run, now or at a given time."""
        key = params.idempotency_key(req)
        request = bodies.decode(await bodies.read(req), StartRun)
        caller_of(req).check_workflow(request.workflow)
        if request.version is not None or request.labels is not None:
            fields.check_fields(request, START)
        known = await self._backend.catalog.wanted(request.workflow, request.version)
        run_at = await self._run_at(request, known)
        store, given = self._backend.store, (known.definition, known.digest, request.input)
        served = self._backend.served
        served.look()
        if run_at is None:
            begun = await run_operations.begin(store, *given, key, labels=request.labels or None)
        else:
            begun = await run_operations.schedule(store, *given, run_at, key, request.labels or None)
        responses.set_seq(resp, begun.seq)
        if begun.scheduled:  # workers may come until then
            responses.created(resp, StartedRun(begun.run_id, RunStatus.SCHEDULED))
        else:
            warnings = await served.warnings(known.definition, known.digest)
            responses.created(resp, StartedRun(begun.run_id, warnings=warnings or UNSET))

    async def _run_at(self, request: StartRun, known: Known) -> datetime | None:
        """As `_check`. Where a wrong clock of ours would start a run early, or let its schedule be forgotten, the
        broker's is asked."""
        max_age_s = self._backend.settings.history_max_age
        run_at = _check(request, known, max_age_s, time.time())
        if request.run_at is None or (run_at is not None and max_age_s is None):
            return run_at
        return _check(request, known, max_age_s, await self._backend.store.history.now())


class RunStatsResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._recent = RecentAnswers()

    async def on_get(self, req: Request, resp: Response) -> None:
        """Numbers of runs by status and time of creation."""
        wanted, min_seq = run_filters.stats_filter(req), params.min_seq(req)
        await self._recent.give(req, resp, partial(self._made, wanted, min_seq))

    async def _made(self, wanted: StatsFilter, min_seq: int) -> Made:
        store, index = self._backend.store, self._backend.index
        lag = await freshened(store, index, min_seq, hasty=True)
        return Made(responses.encoded(await listing.numbers(index, wanted)), responses.lag_headers(lag))


class RunResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response, run_id: str) -> None:
        """One run, as fresh as the log; with `wait_ms`, when it has ended or that is over; with `at`, as it was."""
        store, found, wanted = self._backend.store, params.run_id(run_id), params.moment(req)
        most = wanted.payload_max
        if wanted.at is not None:
            then = await read_at(store, found, wanted.at)
            outputs = await shown(store, [then], each=most)
            return responses.ok(resp, view(then, outputs, payload_max=most))
        run = (
            await wait_for_end(store, found, self._backend.waiters.limit_for(req, wanted.wait_s))
            if wanted.wait_s
            else await read(store, found)
        )
        outputs = await shown(store, [run], each=most)
        return responses.ok(resp, view(run, outputs, store.progress.of, most))


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


class PauseResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_post(self, req: Request, resp: Response, run_id: str) -> None:
        """Pause a run: what runs finishes, and nothing new begins."""
        found, request = params.run_id(run_id), await _pause_request(req)
        with publishing():
            run = await pausing.pause(self._backend.store, found, children=request.children)
        responses.ok(resp, _paused(run))


class ResumeResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_post(self, req: Request, resp: Response, run_id: str) -> None:
        """Let a paused run go on."""
        found, request = params.run_id(run_id), await _pause_request(req)
        with publishing():
            run = await pausing.unpause(self._backend.store, found, children=request.children)
        responses.ok(resp, _paused(run))


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


async def _pause_request(req: Request) -> PauseRun:
    body = await bodies.read(req, PAYLOAD_BYTES_MAX)
    return bodies.decode(body, PauseRun) if body else PauseRun()


def _paused(run: Run) -> PausedRun:
    return PausedRun(run.run_id, run.status, None if run.pause is None else run.pause.at)


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
