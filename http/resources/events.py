"""/runs/{run_id}/events: a run's history, as an array or as a live stream of server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import NamedTuple

import msgspec
from falcon.asgi import Request, Response, SSEvent
from msgspec import Raw

from penstock.actors.control import run_operations
from penstock.actors.control.watch import Watched
from penstock.broker.nats.direct import Stored
from penstock.broker.store import Store
from penstock.config.limits import EVENTS_BYTES_MAX
from penstock.config.logging import get_logger
from penstock.engine.errors import Unavailable
from penstock.engine.run.events import (
    Event,
    Malformed,
    decode,
    event_type,
)
from penstock.engine.times import utc
from penstock.http.backend import Backend
from penstock.http.messages import params, responses

STREAM = "text/event-stream"
STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
COMMENT = SSEvent(comment="")

_FIELDS = msgspec.json.Decoder(dict[str, Raw])

log = get_logger()


class EventsPage(NamedTuple):
    """Events as JSON, each with its sequence; `next` is the last sequence when there may be more."""

    events: list[bytes]
    next: int | None


class EventsResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response, run_id: str) -> None:
        """The events after a sequence, with a Link to the next page; as a stream, live and until the run ends."""
        store, found, after = self._backend.store, params.run_id(run_id), params.after_seq(req)
        if STREAM in req.accept:
            await self._live(req, resp, found, after)
        else:
            page = await _page(store, found, after)
            responses.ok_raw(resp, page.events)
            if page.next is not None:
                resp.set_header("Link", f'<{req.path}?after={page.next}>; rel="next"')

    async def _live(self, req: Request, resp: Response, run_id: str, after: int) -> None:
        resp.set_headers(STREAM_HEADERS)
        if req.method == "HEAD":
            await run_operations.get(self._backend.store, run_id)
            resp.content_type, resp.stream = STREAM, _nothing()
            return
        watched = Watched(self._backend.store, run_id)
        events = watched.events()
        coming = self._backend.waiters.until_stopped(events)
        resp.sse = _stream(run_id, after, await _beginning(watched, events), coming)


async def _nothing() -> AsyncGenerator[bytes]:
    """An empty stream, which is never read: with it, the framework does not give a Content-Length in the response to
    HEAD."""
    return
    yield b""


async def _page(store: Store, run_id: str, after: int) -> EventsPage:
    events: list[bytes] = []
    size = last = 0
    async with aclosing(store.history.pages(run_id, after)) as pages:
        async for stored in pages:
            for one in stored:
                if size >= EVENTS_BYTES_MAX:
                    return EventsPage(events, last)
                size, last = size + len(one.data), one.seq
                if event := _event(one):
                    events.append(b'{"seq":%d,%b' % (one.seq, _shown(one, event).lstrip()[1:]))
    if not last:
        await run_operations.get(store, run_id)  # raises NotFound
    return EventsPage(events, None)


async def _beginning(watched: Watched, events: AsyncGenerator[Stored | None]) -> list[Stored]:
    """The events up to the first that applies. Raises NotFound for a run that was never started."""
    read: list[Stored] = []
    async for stored in events:
        if stored is None:
            break
        read.append(stored)
        if watched.run is not None:
            break
    return read


async def _stream(
    run_id: str, after: int, read: list[Stored], coming: AsyncGenerator[Stored | None]
) -> AsyncGenerator[SSEvent]:
    """Ends with the run; also when the process stops, or the broker is unavailable: the client reconnects, and then
    gets an error."""
    yield COMMENT  # the headers leave with it
    for stored in read:
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
    line = _shown(stored, event).replace(b"\n", b" ").replace(b"\r", b" ")
    return SSEvent(data=line, event=event_type(event), event_id=str(stored.seq))


def _shown(stored: Stored, event: Event) -> bytes:
    """The stored JSON of the event, with its time in UTC, and without fields that are null."""
    at = utc(event.timestamp, stored.at)
    if at is event.timestamp and b"null" not in stored.data:
        return stored.data
    fields = {**_FIELDS.decode(stored.data), "timestamp": Raw(msgspec.json.encode(at))}
    return msgspec.json.encode(
        {name: value for name, value in fields.items() if name == "payload" or bytes(value) != b"null"}
    )


def _event(stored: Stored) -> Event | None:
    """None for a malformed message in the history: the engine has dead-lettered it."""
    try:
        stored.data.decode()
        return decode(stored.data)
    except (Malformed, UnicodeDecodeError):
        return None
