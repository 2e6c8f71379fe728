"""/runs/{run_id}/export: a run with its definition and all its events, as one document."""

from __future__ import annotations

from contextlib import ExitStack

import msgspec
from falcon.asgi import Request, Response
from msgspec import Raw

from penstock.actors.imports.reading import read_import, read_loaded
from penstock.broker.nats.direct import Stored
from penstock.broker.records.imports import ImportMark
from penstock.broker.store import Store
from penstock.client.history.views import ExportView
from penstock.config.limits import EXPORT_BYTES_MAX, OUTPUTS_SHOWN_BYTES_MAX
from penstock.config.process.byte_gate import Share
from penstock.engine.definition.definitions import to_json
from penstock.engine.errors import NotFound, TooLarge
from penstock.engine.run.events import Malformed, decode
from penstock.engine.times import rfc3339
from penstock.http.backend import Backend
from penstock.http.messages import params, responses
from penstock.http.messages.large_bodies import kept_unless_failed, ok_large
from penstock.http.messages.masking import masked, shows_tokens

_FIELDS = msgspec.json.Decoder(dict[str, Raw])


class ExportResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response, run_id: str) -> None:
        """The run with its definition and all its events."""
        store, found = self._backend.store, params.run_id(run_id)
        loaded = await read_loaded(store, found)
        run = loaded.run
        if run is None:
            raise NotFound(f"run {found} not found")
        if loaded.mark is not None:
            responses.ok(resp, await _imported(store, loaded.mark, shows_tokens(req)))
            return
        definition = await store.definitions.exact(run.workflow_id, run.digest)
        events, share = await self._events(found, shows_tokens(req))
        with kept_unless_failed(share):
            document = ExportView(found, Raw(to_json(definition)), events)
            ok_large(req, resp, msgspec.json.encode(document), share)

    async def _events(self, run_id: str, tokens: bool) -> tuple[list[Raw], Share | None]:
        """All events of the run, and what was taken for them if they are many."""
        events: list[Raw] = []
        share, size = None, 0
        with ExitStack() as failed:
            async for page in self._backend.store.history.pages(run_id):
                found = [event for stored in page if (event := _event(stored, tokens)) is not None]
                events += found
                size += sum(memoryview(event).nbytes for event in found)
                if size > EXPORT_BYTES_MAX:
                    raise TooLarge(
                        f"run {run_id} has more than {EXPORT_BYTES_MAX} bytes of events: read them page by page"
                    )
                if share is None and size > OUTPUTS_SHOWN_BYTES_MAX:
                    share = await self._backend.large.take_all()
                    failed.enter_context(kept_unless_failed(share))
        return events, share


async def _imported(store: Store, mark: ImportMark, tokens: bool) -> ExportView:
    """The document as it was imported, byte for byte, but for tokens that the caller may not see."""
    imported = await read_import(store, mark)
    if imported is None:
        raise NotFound(f"run {mark.run_id} not found")
    document, events = imported.document, imported.document.events
    if not tokens:
        events = [
            Raw(masked(decode(stored.data), bytes(event)))
            for stored, event in zip(imported.events, events, strict=True)
        ]
    return ExportView(document.run_id, document.definition, events)


def _event(stored: Stored, tokens: bool) -> Raw | None:
    """The stored event, with its sequence and the time at which it was stored; None for what is no event."""
    try:
        stored.data.decode()
        event = decode(stored.data)
    except (Malformed, UnicodeDecodeError):
        return None
    fields = _FIELDS.decode(stored.data if tokens else masked(event, stored.data))
    about = {"seq": Raw(b"%d" % stored.seq), "stored_at": Raw(msgspec.json.encode(rfc3339(stored.at)))}
    return Raw(msgspec.json.encode(about | fields))
