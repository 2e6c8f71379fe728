"""/runs/{run_id}/events: a run's history, as an array or as a live stream of server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import structlog
from falcon.asgi import Request, Response, SSEvent

from penstock.actors import control
from penstock.broker.direct import Stored
from penstock.broker.store import Store
from penstock.engine.errors import Unavailable
from penstock.engine.events import (
    Event,
    Malformed,
    WorkflowCancelled,
    WorkflowCompleted,
    WorkflowFailed,
    decode,
    event_type,
)
from penstock.engine.state import Run
from penstock.http import answers, params
from penstock.http.backend import Backend

ENDING = (WorkflowCompleted, WorkflowFailed, WorkflowCancelled)
STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
COMMENT = SSEvent(comment="")

log = structlog.get_logger()


class Events:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response, run_id: str) -> None:
        """All events after a sequence; live and until the run ends for who accepts a stream."""
        store, found, after = self._backend.store, params.run_id(run_id), params.after_seq(req)
        if "text/event-stream" in req.accept:
            resp.set_headers(STREAM_HEADERS)
            resp.sse = _stream(store, await control.get(store, found), after)
        else:
            answers.ok_raw(resp, await _array(store, found, after))


async def _array(store: Store, run_id: str, after: int) -> list[bytes]:
    stored = await store.history.read(run_id, after)
    if not stored:
        await control.get(store, run_id)  # raises NotFound
    return [b'{"seq":%d,%b' % (one.seq, one.data.lstrip()[1:]) for one in stored if _event(one)]


async def _stream(store: Store, run: Run, after: int) -> AsyncGenerator[SSEvent]:
    """Ends when the run has; also when the broker goes away: the client comes again, and then gets an error."""
    yield COMMENT  # the headers leave with it
    try:
        async with aclosing(_stored(store, run, after)) as found:
            async for stored in found:
                yield COMMENT if stored is None else _message(stored)
    except Unavailable as error:
        log.info("event_stream_ended", run_id=run.run_id, error=str(error))


async def _stored(store: Store, run: Run, after: int) -> AsyncGenerator[Stored | None]:
    """The events of a run until its end, None in between when it is quiet."""
    if not run.ended:
        async with aclosing(store.history.follow(run.run_id, after)) as live:
            async for stored in live:
                yield stored
                after = after if stored is None else stored.seq
                if stored is not None and await _ended(store, run.run_id, stored):
                    break
    for stored in await store.history.read(run.run_id, after):
        yield stored


async def _ended(store: Store, run_id: str, stored: Stored) -> bool:
    """Whether this event ended the run for good: it may not have applied, or the run may have been resumed since."""
    return isinstance(_event(stored), ENDING) and (await control.get(store, run_id)).ended


def _message(stored: Stored) -> SSEvent:
    event = _event(stored)
    if event is None:
        return COMMENT
    # Line ends in JSON stand between its tokens only.
    line = stored.data.replace(b"\n", b" ").replace(b"\r", b" ")
    return SSEvent(data=line, event=event_type(event), event_id=str(stored.seq))


def _event(stored: Stored) -> Event | None:
    """None for what is in the history and is no event: the engine has put it aside."""
    try:
        stored.data.decode()
        return decode(stored.data)
    except (Malformed, UnicodeDecodeError):
        return None
