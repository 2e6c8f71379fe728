"""/runs/{run_id}/events: a run's history, as an array or as a live stream of server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import structlog
from falcon.asgi import Request, Response, SSEvent

from penstock.actors import control
from penstock.actors.watching import Watched
from penstock.broker.direct import Stored
from penstock.broker.store import Store
from penstock.engine.errors import Unavailable
from penstock.engine.events import (
    Event,
    Malformed,
    decode,
    event_type,
)
from penstock.http import answers, params
from penstock.http.backend import Backend

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
            events = Watched(store, found).events()
            resp.set_headers(STREAM_HEADERS)
            resp.sse = _stream(found, after, await _past(events), events)
        else:
            answers.ok_raw(resp, await _array(store, found, after))


async def _array(store: Store, run_id: str, after: int) -> list[bytes]:
    stored = await store.history.read(run_id, after)
    if not stored:
        await control.get(store, run_id)  # raises NotFound
    return [b'{"seq":%d,%b' % (one.seq, one.data.lstrip()[1:]) for one in stored if _event(one)]


async def _past(events: AsyncGenerator[Stored | None]) -> list[Stored]:
    """What the history has now. Raises NotFound for a run that nobody started."""
    past: list[Stored] = []
    async for stored in events:
        if stored is None:
            break
        past.append(stored)
    return past


async def _stream(run_id: str, after: int, past: list[Stored], coming: AsyncGenerator[Stored | None]) -> AsyncGenerator[SSEvent]:
    """Ends when the run has; also when the broker goes away: the client comes again, and then gets an error."""
    yield COMMENT  # the headers leave with it
    for stored in past:
        if stored.seq > after:
            yield _message(stored)
    try:
        async with aclosing(coming):
            async for new in coming:
                if new is None or new.seq > after:
                    yield COMMENT if new is None else _message(new)
    except Unavailable as error:
        log.info("event_stream_ended", run_id=run_id, error=str(error))


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
