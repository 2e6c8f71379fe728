"""/runs/{run_id}/stream: the chunks that a run's steps stream, live, as server-sent events."""

from __future__ import annotations

from functools import partial

from falcon.asgi import Request, Response

from penstock.actors.imports.reading import read
from penstock.http.backend import Backend
from penstock.http.live import following, rendering
from penstock.http.live.ends import check_step
from penstock.http.messages import params


class StreamResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response, run_id: str) -> None:
        """The chunks of a run's steps from the first one on, live, until the step or the run ends."""
        store, found, wanted = self._backend.store, params.run_id(run_id), params.stream_filter(req)
        run = await read(store, found)
        check_step(run, wanted.step)
        render = partial(rendering.chunk_events, after=wanted.after)
        await following.respond(req, resp, self._backend, store.chunks, run, wanted.step, wanted.after, render)
