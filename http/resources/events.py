"""/runs/{run_id}/events: a run's history, as an array or as a live stream of server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import NamedTuple
from urllib.parse import urlencode

import msgspec
from falcon.asgi import Request, Response, SSEvent
from msgspec import Raw
from msgspec.structs import replace

from penstock.actors.control.watch import Watched
from penstock.actors.imports.reading import read, read_import
from penstock.actors.runs.loading import load
from penstock.broker.nats.direct import Stored
from penstock.broker.records.imports import ImportedEvents, mark_in
from penstock.broker.store import Store
from penstock.config.limits import EVENTS_BYTES_MAX
from penstock.config.logging import get_logger
from penstock.engine.errors import Invalid, NotFound, Unavailable
from penstock.engine.run.event_payloads import NULL
from penstock.engine.run.events import (
    Event,
    Malformed,
    Record,
    decode,
    event_type,
)
from penstock.engine.run.execution.deliveries import began_at, has_its_start, start_in
from penstock.engine.times import utc
from penstock.http.backend import Backend
from penstock.http.messages import params, responses
from penstock.http.messages.masking import masked, shows_tokens
from penstock.http.messages.params import EventFilter

STREAM = "text/event-stream"
STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
COMMENT = SSEvent(comment="")

_FIELDS = msgspec.json.Decoder(dict[str, Raw])

log = get_logger()


class EventsPage(NamedTuple):
    """Events as JSON, each with its sequence; `next` is the last sequence when there may be more."""

    events: list[bytes]
    next: int | None


class Show(NamedTuple):
    """How events are shown: with the tokens of approvals or without, and how large payloads may be, in bytes."""

    tokens: bool
    payload_max: int | None

    def __call__(self, stored: Stored, event: Event) -> bytes:
        """The JSON of the event."""
        data = _written(stored, event)
        if not self.tokens:
            data = masked(event, data)
        return data if self.payload_max is None or len(data) <= self.payload_max else _trimmed(data, self.payload_max)


class EventsResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response, run_id: str) -> None:
        """The events after a sequence, with a Link to the next page; as a stream, live and until the run ends."""
        store, found, wanted = self._backend.store, params.run_id(run_id), params.event_filter(req)
        show = Show(shows_tokens(req), wanted.payload_max)
        if STREAM in req.accept:
            if wanted.limit is not None:
                raise Invalid("limit is for pages: a stream goes on until the run ends")
            await self._live(req, resp, found, wanted.after, show)
        else:
            shown = await page(store, found, wanted, show)
            responses.ok_raw(resp, shown.events)
            if shown.next is not None:
                query = urlencode({**req.params, "after": shown.next})
                resp.set_header("Link", f'<{req.path}?{query}>; rel="next"')

    async def _live(self, req: Request, resp: Response, run_id: str, after: int, show: Show) -> None:
        resp.set_headers(STREAM_HEADERS)
        if req.method == "HEAD":
            await read(self._backend.store, run_id)
            resp.content_type, resp.stream = STREAM, _nothing()
            return
        watched = Watched(self._backend.store, run_id)
        events = watched.events()
        coming = self._backend.waiters.until_stopped(events)
        resp.sse = _stream(run_id, after, await _beginning(watched, events), coming, show)


async def _nothing() -> AsyncGenerator[bytes]:
    """An empty stream, which is never read: with it, the framework does not give a Content-Length in the response to
    HEAD."""
    return
    yield b""


async def page(store: Store, run_id: str, wanted: EventFilter, show: Show) -> EventsPage:
    """The events that are wanted, as many as fit. Raises NotFound, Unavailable."""
    events: list[bytes] = []
    size = last = 0
    async with aclosing(_pages(store, run_id, wanted.after)) as pages:
        async for stored in pages:
            for one in stored:
                if size >= EVENTS_BYTES_MAX or len(events) == wanted.limit:
                    return EventsPage(events, last)
                last = one.seq
                if event := _event(one):
                    shown = show(one, event)
                    size += len(shown)
                    events.append(b'{"seq":%d,%b' % (one.seq, shown.lstrip()[1:]))
    return EventsPage(events, None)


async def _pages(store: Store, run_id: str, after: int) -> AsyncGenerator[list[Stored]]:
    """The events after a sequence: of an imported run, that of the log from which it comes. Raises NotFound."""
    begun = False
    async with aclosing(store.history.pages(run_id, after)) as pages:
        async for page in pages:
            if not begun and mark_in(page[0].data) is not None:
                break
            begun = True
            yield page
    if not begun and (imported := await _imported(store, run_id)) is not None:
        async for page in imported.pages(run_id, after):
            yield page


async def _imported(store: Store, run_id: str) -> ImportedEvents | None:
    """The events of an imported run; None for any other run. Raises NotFound."""
    loaded = await load(store, run_id)
    imported = None if loaded.mark is None else await read_import(store, loaded.mark)
    if loaded.run is None and imported is None:
        raise NotFound(f"run {run_id} does not exist")
    return imported


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
    run_id: str, after: int, read: list[Stored], coming: AsyncGenerator[Stored | None], show: Show
) -> AsyncGenerator[SSEvent]:
    """Ends with the run; also when the process stops, or the broker is unavailable: the client reconnects, and then
    gets an error."""
    yield COMMENT  # the headers leave with it
    for stored in read:
        if stored.seq > after:
            yield _message(stored, show)
    try:
        async with aclosing(coming):
            async for new in coming:
                if new is None or new.seq > after:
                    yield COMMENT if new is None else _message(new, show)
    except Unavailable as error:
        log.info("event_stream_ended", run_id=run_id, error=str(error))


def _message(stored: Stored, show: Show) -> SSEvent:
    event = _event(stored)
    if event is None:
        return COMMENT
    # Line ends in JSON stand between its tokens only.
    line = show(stored, event).replace(b"\n", b" ").replace(b"\r", b" ")
    return SSEvent(data=line, event=event_type(event), event_id=str(stored.seq))


def _written(stored: Stored, event: Event) -> bytes:
    """The stored JSON of the event, with its times in UTC, and without fields that are null."""
    at, began = utc(event.timestamp, stored.at), _start_to_show(stored, event)
    if at is event.timestamp and began is None and b"null" not in stored.data:
        return stored.data
    fields = {**_FIELDS.decode(stored.data), "timestamp": Raw(msgspec.json.encode(at))}
    if began is not None:
        fields["started_at"] = Raw(msgspec.json.encode(began))
    return msgspec.json.encode(
        {name: value for name, value in fields.items() if name == "payload" or bytes(value) != b"null"}
    )


def _start_to_show(stored: Stored, event: Event) -> str | None:
    """When the worker began, if the event is an answer that says so, and not as it is shown: in UTC, before its end."""
    if not has_its_start(event):
        return None
    answer = replace(event, timestamp=utc(event.timestamp, stored.at))
    began = start_in(Record(stored.seq, stored.at, answer)).event.timestamp
    return None if began == began_at(event) else began


def _trimmed(data: bytes, most: int) -> bytes:
    """The event with the size of its payload in place of one that is larger."""
    fields = _FIELDS.decode(data)
    size = memoryview(fields.get("payload", NULL)).nbytes
    if size <= most:
        return data
    del fields["payload"]
    return msgspec.json.encode({**fields, "payload_bytes": size})


def _event(stored: Stored) -> Event | None:
    """None for a malformed message in the history: the engine has dead-lettered it."""
    try:
        stored.data.decode()
        return decode(stored.data)
    except (Malformed, UnicodeDecodeError):
        return None
