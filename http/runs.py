"""/runs: start a run, look at one, list many, cancel one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from falcon.asgi import Request, Response
from msgspec import Raw, Struct

from penstock.actors import control
from penstock.actors.watching import wait_for_end
from penstock.config.limits import PAYLOAD_BYTES_MAX, SCHEDULE_AHEAD_MIN_S
from penstock.engine.errors import Invalid
from penstock.engine.events import NULL
from penstock.engine.identifiers import quoted
from penstock.engine.state import RunStatus
from penstock.http import answers, bodies, listing, params
from penstock.http.backend import Backend
from penstock.http.catalog import Known
from penstock.http.views import view

AHEAD_MIN = timedelta(seconds=SCHEDULE_AHEAD_MIN_S)


class StartRun(Struct, frozen=True, forbid_unknown_fields=True):
    workflow: str
    input: Raw = NULL
    run_at: str | None = None


class CancelRun(Struct, frozen=True, forbid_unknown_fields=True):
    reason: str | None = None


class Started(Struct, frozen=True):
    run_id: str


class Cancelled(Struct, frozen=True):
    run_id: str
    status: str = RunStatus.CANCELLED


class Runs:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response) -> None:
        """Runs, newest first; a Link leads to the next page."""
        page = await listing.page(self._backend.store, self._backend.index, params.run_filter(req))
        answers.ok(resp, [view(run) for run in page.runs])
        if page.next:
            resp.set_header("Link", listing.link(req, page.next))

    async def on_post(self, req: Request, resp: Response) -> None:
        """Start a run now."""
        key = params.idempotency_key(req)
        request = bodies.decode(await bodies.read(req), StartRun)
        known = await self._backend.catalog.wanted(request.workflow)
        _check(request, known)
        run_id = await control.start(self._backend.store, known.definition, known.digest, request.input, key)
        answers.created(resp, Started(run_id))


class Run:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response, run_id: str) -> None:
        """One run, as fresh as the log; with `wait_ms`, once it has ended or that time is over."""
        store, found, wait_s = self._backend.store, params.run_id(run_id), params.wait_s(req)
        run = await wait_for_end(store, found, wait_s) if wait_s else await control.get(store, found)
        answers.ok(resp, view(run))


class Cancellation:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_post(self, req: Request, resp: Response, run_id: str) -> None:
        """Cancel a run; the body may hold a reason."""
        found = params.run_id(run_id)
        body = await bodies.read(req, PAYLOAD_BYTES_MAX)
        request = bodies.decode(body, CancelRun) if body else CancelRun()
        await control.cancel(self._backend.store, found, request.reason)
        answers.ok(resp, Cancelled(found))


def _check(request: StartRun, known: Known) -> None:
    """Raises TooLarge or Invalid, with all that is wrong beyond the request's form."""
    bodies.check_payload("input", request.input)
    problems = [*_time_problems(request.run_at), *(known.schema.check(bytes(request.input), "input") if known.schema else [])]
    if problems:
        raise Invalid(*problems)


def _time_problems(run_at: str | None) -> list[str]:
    if run_at is None:
        return []
    moment = params.instant(run_at)
    if moment is None:
        return [f"run_at must be a time such as 2025-01-31T12:00:00Z, not {quoted(run_at)}"]
    late = moment > datetime.now(UTC) + AHEAD_MIN
    return ["run_at: scheduled runs are not supported by this version"] if late else []
