"""What a page of the console shows without scripts: the list of runs, or one run with its steps and events."""

from __future__ import annotations

import msgspec
from falcon.asgi import Request
from msgspec import Struct

from penstock.actors.imports.reading import read
from penstock.actors.index.freshness import freshened
from penstock.client.views import EventView, RunView
from penstock.config.limits import KIB
from penstock.engine.errors import NotFound
from penstock.http.backend import Backend
from penstock.http.messages import params, run_filters
from penstock.http.messages.callers import caller_of
from penstock.http.messages.masking import shows_tokens
from penstock.http.messages.params import EventFilter
from penstock.http.messages.views import view
from penstock.http.resources import events, listing

RUNS_SHOWN = 50
EVENTS_SHOWN = 100
PAYLOAD_SHOWN_MAX = 1 * KIB

_EVENTS = msgspec.json.Decoder(EventView)


class Summary(Struct, frozen=True):
    """One of these, as the address says; nothing for pages that need scripts. `problem` is why there is nothing."""

    runs: list[RunView] | None = None
    run: RunView | None = None
    events: list[EventView] = []
    problem: str | None = None


async def summary(backend: Backend, req: Request, page: str) -> Summary:
    """What the page of this path below /console shows. Raises as the API does for the same."""
    match page.split("/"):
        case [""] | ["runs"]:
            return Summary(runs=await _runs(backend, req))
        case ["runs", run_id]:
            return await _run(backend, req, params.run_id(run_id))
    return Summary()


async def _runs(backend: Backend, req: Request) -> list[RunView]:
    wanted = run_filters.newest(req, RUNS_SHOWN)
    await freshened(backend.store, backend.index, 0, hasty=True)
    found = await listing.page(backend.store, backend.index, wanted)
    return [view(run, {}, payload_max=0) for run in found.runs]


async def _run(backend: Backend, req: Request, run_id: str) -> Summary:
    run = await read(backend.store, run_id)
    if not caller_of(req).sees(run.workflow_id):
        raise NotFound(f"run {run_id} does not exist")
    show = events.Show(shows_tokens(req), PAYLOAD_SHOWN_MAX)
    page = await events.page(backend.store, run_id, EventFilter(0, EVENTS_SHOWN, PAYLOAD_SHOWN_MAX), show)
    shown = view(run, {}, payload_max=PAYLOAD_SHOWN_MAX)
    return Summary(run=shown, events=[_EVENTS.decode(one) for one in page.events])
