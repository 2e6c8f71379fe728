"""A live stream of what a run says: from the beginning, or where a client was cut off, until the run has ended."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from falcon.asgi import Request, Response

from penstock.actors.control.watch import Watched
from penstock.broker.live.following import Follower, follow
from penstock.broker.live.said import SaidStream
from penstock.broker.nats.direct import Stored
from penstock.broker.store import Store
from penstock.config.limits import ENTRIES_MAX
from penstock.config.logging import get_logger
from penstock.config.process.background import background
from penstock.engine.errors import PenstockError, Unavailable
from penstock.engine.run.state import Run
from penstock.http.backend import Backend
from penstock.http.live.ends import status_at_end
from penstock.http.live.rendering import COMMENT, end_event

STREAM_HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}

Render = Callable[[Stored], bytes]

log = get_logger()


class LiveEnd:
    """When a live stream ends. Owned by its request; `status` is None when it ends for another reason than the end of
    what it shows."""

    def __init__(self, store: Store, run: Run, step_id: str | None) -> None:
        self._store, self._run, self._step_id = store, run, step_id
        self.status = status_at_end(run, step_id)

    async def watch(self, follower: Follower) -> None:
        """End the follower once the step, or the run, has ended, or the broker is unavailable."""
        if self.status is None:
            watched = Watched(self._store, self._run.run_id)
            try:
                async with aclosing(watched.events()) as events:
                    async for _ in events:
                        if watched.run is not None and (status := status_at_end(watched.run, self._step_id)):
                            self.status = status
                            break
            except PenstockError as error:
                log.info("live_stream_ended", run_id=self._run.run_id, error=str(error))
        follower.end()


async def respond(
    req: Request,
    resp: Response,
    backend: Backend,
    said: SaidStream,
    run: Run,
    step_id: str | None,
    after: int,
    render: Render,
) -> None:
    """Answer with a live stream. `render` makes server-sent events of a message, those after `after` only."""
    resp.set_headers(STREAM_HEADERS)
    end = LiveEnd(backend.store, run, step_id)
    resp.stream = (
        _nothing() if req.method == "HEAD" else _stream(req, backend, said, run.run_id, step_id, after, render, end)
    )


async def _stream(
    req: Request,
    backend: Backend,
    said: SaidStream,
    run_id: str,
    step_id: str | None,
    after: int,
    render: Render,
    end: LiveEnd,
) -> AsyncGenerator[bytes]:
    message = after // ENTRIES_MAX
    async with backend.waiters.presence(req) as client, follow(said, run_id, step_id, message - 1) as follower:
        client.leave = follower.wake
        quiet = True
        async with background(end.watch(follower), name="live_stream_end"), aclosing(follower.pages()) as pages:
            try:
                async for page in pages:
                    if client.over.is_set():
                        return
                    events = b"".join(map(render, page))
                    if events or quiet:  # a comment shows that the connection is alive
                        yield events or COMMENT
                    quiet = not page
            except Unavailable as error:  # without an end the client comes again
                log.info("live_stream_ended", run_id=run_id, error=str(error))
                return
        if end.status is not None:
            yield end_event(end.status)


async def _nothing() -> AsyncGenerator[bytes]:
    """An empty stream, which is never read: with it, the framework does not give a Content-Length in the response to
    HEAD."""
    return
    yield b""
