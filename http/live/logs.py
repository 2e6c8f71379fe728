"""/runs/{run_id}/logs: the log lines of a run's steps, as pages or as a live stream of server-sent events."""

from __future__ import annotations

from contextlib import aclosing
from functools import partial
from typing import NamedTuple
from urllib.parse import urlencode

from falcon.asgi import Request, Response

from penstock.actors.imports.reading import read
from penstock.broker.store import Store
from penstock.client.views import LogLineView
from penstock.config.limits import ENTRIES_MAX, EVENTS_BYTES_MAX
from penstock.http.backend import Backend
from penstock.http.live import following, rendering
from penstock.http.live.ends import check_step
from penstock.http.messages import params, responses
from penstock.http.messages.params import LogFilter

STREAM = "text/event-stream"


class LogPage(NamedTuple):
    """`next` is the place after which the next page begins; None at the end."""

    lines: list[LogLineView]
    next: int | None


class LogsResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response, run_id: str) -> None:
        """The log lines of a run, with a Link to the next page; as a stream, live and until the run ends."""
        store, found, wanted = self._backend.store, params.run_id(run_id), params.log_filter(req)
        run = await read(store, found)
        check_step(run, wanted.step)
        if STREAM in req.accept:
            render = partial(rendering.log_events, wanted=wanted)
            await following.respond(req, resp, self._backend, store.logs, run, wanted.step, wanted.after, render)
            return
        page = await _page(store, found, wanted)
        responses.ok(resp, page.lines)
        if page.next is not None:
            query = urlencode({**req.params, "after": page.next})
            resp.set_header("Link", f'<{req.path}?{query}>; rel="next"')


async def _page(store: Store, run_id: str, wanted: LogFilter) -> LogPage:
    """Up to `limit` lines, fewer after so many bytes of messages, whether they had what is wanted or not."""
    found: list[LogLineView] = []
    size = 0
    async with aclosing(store.logs.pages(run_id, wanted.step, max(1, wanted.after // ENTRIES_MAX))) as pages:
        async for page in pages:
            for stored in page:
                if size >= EVENTS_BYTES_MAX:
                    return LogPage(found, stored.seq * ENTRIES_MAX - 1)
                size += len(stored.data)
                found += rendering.lines_in(stored, wanted)
                if len(found) >= wanted.limit:
                    return LogPage(found[: wanted.limit], found[wanted.limit - 1].seq)
    return LogPage(found, None)
