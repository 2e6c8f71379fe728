"""Imported runs: the document of each one, in a bucket, and the mark in the run's history that leads to it.

The mark is the first and only message of such a history, so an id belongs to a run or to an import, never to both. It
is no event: whoever folds the history finds nothing. The document is stored before the mark, under an id of its own,
and counts from the mark on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from uuid import uuid4

import msgspec
from msgspec import Raw, Struct

from penstock.broker import names, record_keys
from penstock.broker.nats.buckets import Bucket, Entry
from penstock.broker.nats.direct import PAGE, Stored
from penstock.config.limits import MIB
from penstock.engine import formats
from penstock.engine.run.event_payloads import ParentRef, TriggerRef
from penstock.engine.run.state import RunStatus
from penstock.engine.times import instant

FORMAT = 2  # versions that read format 1 only leave the run alone
CACHED_BYTES_MAX = 16 * MIB  # of the documents that a process read last

_FIELDS = msgspec.json.Decoder(dict[str, Raw])
_ENCODER = msgspec.json.Encoder()


class ImportedHead(Struct, frozen=True, omit_defaults=True):
    """What lists need of an imported run, and the id of its document. `by` is the key with which it was imported;
    `paused`: it was paused when it was exported."""

    import_id: str
    workflow: str
    status: RunStatus
    created_at: str
    rerun_of: str | None = None
    parent: ParentRef | str | None = None
    trigger: TriggerRef | None = None
    labels: dict[str, str] | None = None
    by: str | None = None
    paused: bool = False


class ImportMark(Struct, frozen=True, kw_only=True, tag_field="type", tag="workflow.imported"):
    """The message in the history of an imported run."""

    run_id: str
    timestamp: str
    v: int
    payload: ImportedHead


class ImportDocument(Struct, frozen=True):
    """What was imported: as `GET /runs/{run_id}/export` gives it. Each event has `seq` and `stored_at`."""

    run_id: str
    definition: Raw
    events: list[Raw]


class ImportedPlace(Struct, frozen=True):
    """What an event of a document has beyond its stored form."""

    seq: int
    stored_at: str


MARK_START = b'{"type":"workflow.imported"'

_MARK = msgspec.json.Decoder(ImportMark)
_DOCUMENT = msgspec.json.Decoder(ImportDocument)
_PLACE = msgspec.json.Decoder(ImportedPlace)


class ImportedEvents:
    """The events of an imported run, read as those of a history. Belongs to whoever reads; the document is shared."""

    def __init__(self, document: ImportDocument, events: Sequence[Stored]) -> None:
        self.document, self.events = document, events
        self._seqs = [event.seq for event in events]

    async def at(self, run_id: str, seq: int) -> Stored | None:
        """The event with this sequence, or None."""
        place = bisect_right(self._seqs, seq) - 1
        return self.events[place] if place >= 0 and self._seqs[place] == seq else None

    async def pages(self, run_id: str, after: int = 0) -> AsyncGenerator[list[Stored]]:
        """The events after a sequence, in order, a page at a time."""
        for first in range(bisect_right(self._seqs, after), len(self.events), PAGE):
            yield list(self.events[first : first + PAGE])


class Imports:
    """The bucket of documents. Owned by a Store; the documents that were read last stay in memory."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._cached: OrderedDict[str, ImportedEvents] = OrderedDict()
        self._bytes: dict[str, int] = {}

    async def put(self, document: ImportDocument) -> str:
        """Store a document, which counts once a mark names it. Returns its id. Raises TooLarge for more than the broker
        takes in a message, Unavailable."""
        import_id = uuid4().hex
        await self._bucket.put(record_keys.import_key(document.run_id, import_id), _ENCODER.encode(document))
        return import_id

    async def get(self, run_id: str, import_id: str) -> ImportedEvents | None:
        """The events of the document; None when it is gone. Raises Unavailable."""
        found = self._cached.get(import_id)
        if found is None:
            entry = await self._bucket.get(record_keys.import_key(run_id, import_id))
            if entry is None:
                return None
            document = _DOCUMENT.decode(entry.value)
            found = ImportedEvents(document, [stored_event(run_id, event) for event in document.events])
            self._keep(import_id, found, len(entry.value))
        self._cached.move_to_end(import_id)
        return found

    async def remove(self, run_id: str, import_id: str | None = None) -> None:
        """Delete one document of the run, or all of them."""
        await self._bucket.purge(record_keys.import_key(run_id, import_id or "*"))

    async def keys(self) -> list[tuple[str, str]]:
        """Run and id of every document."""
        found = [key.partition(".") for key in await self._bucket.keys()]
        return [(run_id, import_id) for run_id, _, import_id in found]

    async def entry(self, run_id: str, import_id: str) -> Entry | None:
        """The document as it is stored."""
        return await self._bucket.get(record_keys.import_key(run_id, import_id))

    def _keep(self, import_id: str, found: ImportedEvents, size: int) -> None:
        self._cached[import_id], self._bytes[import_id] = found, size
        while sum(self._bytes.values()) > CACHED_BYTES_MAX and len(self._cached) > 1:
            oldest, _ = self._cached.popitem(last=False)
            del self._bytes[oldest]


def stored_event(run_id: str, event: Raw) -> Stored:
    """An event of a document as it was in its history. Raises msgspec.ValidationError for one without its place,
    ValueError for a time that is none."""
    place = _PLACE.decode(event)
    fields = _FIELDS.decode(event)
    del fields["seq"], fields["stored_at"]
    return Stored(names.stored_subject(run_id), place.seq, instant(place.stored_at), _ENCODER.encode(fields))


def encode_mark(mark: ImportMark) -> bytes:
    return _ENCODER.encode(mark)


def mark_in(body: bytes) -> ImportMark | None:
    """The mark in a message of a history; None for any other message. Raises NeedsUpgrade for one of a newer
    version."""
    if not body.startswith(MARK_START):
        return None
    formats.check(body)
    try:
        return _MARK.decode(body)
    except msgspec.MsgspecError:
        return None
