"""/runs/{run_id}/events: a run's history, as an array or as a live stream of server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import structlog
from falcon.asgi import Request, Response, SSEvent

from penstock.actors import control
from penstock.actors.loading import Replay
from penstock.broker.direct import Stored
from penstock.broker.store import Store
from penstock.engine.errors import NotFound, Unavailable
from penstock.engine.events import (
    Event,
    Malformed,
    WorkflowScheduled,
    WorkflowStarted,
    decode,
    event_type,
)
from penstock.http import answers, params
from penstock.http.backend import Backend

BEGINNING = (WorkflowScheduled, WorkflowStarted)
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
            resp.sse = _stream(store, found, after, await _known(store, found))
        else:
            answers.ok_raw(resp, await _array(store, found, after))


async def _array(store: Store, run_id: str, after: int) -> list[bytes]:
    stored = await store.history.read(run_id, after)
    if not stored:
        await control.get(store, run_id)  # raises NotFound
    return [b'{"seq":%d,%b' % (one.seq, one.data.lstrip()[1:]) for one in stored if _event(one)]


async def _known(store: Store, run_id: str) -> list[Stored]:
    """What the history has now. Raises NotFound for a run that nobody started."""
    known = await store.history.read(run_id)
    if not any(isinstance(_event(one), BEGINNING) for one in known):
        raise NotFound(f"run {run_id} does not exist")
    return known


async def _stream(store: Store, run_id: str, after: int, known: list[Stored]) -> AsyncGenerator[SSEvent]:
    """Ends when the run has; also when the broker goes away: the client comes again, and then gets an error."""
    yield COMMENT  # the headers leave with it
    try:
        async with aclosing(_until_ended(store, run_id, known)) as found:
            async for stored in found:
                if stored is None or stored.seq > after:
                    yield COMMENT if stored is None else _message(stored)
    except Unavailable as error:
        log.info("event_stream_ended", run_id=run_id, error=str(error))


async def _until_ended(store: Store, run_id: str, known: list[Stored]) -> AsyncGenerator[Stored | None]:
    """All events until the run has ended: not just the first that says so, for it may not have applied. None: it is quiet."""
    replay = Replay(store)
    for stored in known:
        await replay.add(stored)
        yield stored
    if replay.ended:
        return
    async with aclosing(store.history.follow(run_id, known[-1].seq)) as live:
        async for new in live:
            if new is None and not store.broker.connected:
                raise Unavailable("the broker is not connected")
            yield new
            if new is not None:
                await replay.add(new)
            if replay.ended:
                return


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
