"""Archived runs: a run that ended long ago as one compressed message, and the marks that lead to it from a history.

A message begins with the number of its dictionary. It has what the run index needs of the run, and all its events as
they were stored, with their sequences and times.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TypeAlias

import msgspec
from msgspec import Struct

from penstock.broker import names
from penstock.broker.archive.dictionary import DICTIONARIES, NEWEST
from penstock.broker.nats.direct import Stored
from penstock.engine import formats
from penstock.engine.errors import NeedsUpgrade
from penstock.engine.run.event_payloads import TriggerRef
from penstock.engine.run.state import RunStatus

FORMAT = 4  # of the marks: older versions leave such a run alone
ARCHIVE_SEQ = b"Archive-Seq: "
RAW = -zlib.MAX_WBITS  # without a checksum: the broker has its own
BEGINNINGS = (b'{"type":"workflow.started"', b'{"type":"workflow.scheduled"', b'{"type":"workflow.imported"')


class ArchivedHead(Struct, frozen=True, array_like=True):
    """What lists need of an archived run. `started_us` and `took_us` are as in a row of the run index."""

    workflow: str
    status: RunStatus
    created_us: int
    started_us: int | None = None
    took_us: int | None = None
    rerun_of: str | None = None
    parent: str | None = None
    labels: dict[str, str] | None = None
    trigger: TriggerRef | None = None


class _Document(Struct, frozen=True, array_like=True):
    """Sequences and times (us) are differences to the one before."""

    run_id: str
    head: ArchivedHead
    seqs: list[int]
    times: list[int]
    bodies: list[bytes]


class ArchivedRun(Struct, frozen=True):
    """A run as the archive has it, in the message `seq`."""

    run_id: str
    head: ArchivedHead
    events: Sequence[Stored]
    seq: int = 0

    @property
    def last_seq(self) -> int:
        return self.events[-1].seq

    def after(self, seq: int) -> Sequence[Stored]:
        """The events after a sequence of the history."""
        return self.events[bisect_right(self.events, seq, key=lambda event: event.seq) :]

    def at(self, seq: int) -> Stored | None:
        """The event with this sequence of the history, or None."""
        found = self.after(seq - 1)
        return found[0] if found and found[0].seq == seq else None


class ArchivedAt(Struct, frozen=True, omit_defaults=True):
    """A message of the archive. `former` are those that had less of the run, and go before its history does. `events`
    are the sequences of what the history has before the mark, if it may be removed by them."""

    seq: int
    former: tuple[int, ...] = ()
    events: tuple[int, ...] = ()


class _AnyMark(Struct, frozen=True, kw_only=True, tag_field="type"):
    run_id: str
    timestamp: str
    payload: ArchivedAt
    v: int = FORMAT


class RunArchived(_AnyMark, frozen=True, kw_only=True, tag="workflow.archived"):
    """All that is before it in the history is in the archive: it goes, and this mark with it."""


class RunRestored(_AnyMark, frozen=True, kw_only=True, tag="workflow.restored"):
    """The history goes on here: what comes before is in the archive."""


ArchiveMark: TypeAlias = RunArchived | RunRestored

ARCHIVED_START = b'{"type":"workflow.archived"'
MARK_STARTS = (ARCHIVED_START, b'{"type":"workflow.restored"')

_MARK: msgspec.json.Decoder[ArchiveMark] = msgspec.json.Decoder(ArchiveMark)
_JSON = msgspec.json.Encoder()
_PACKED = msgspec.msgpack.Encoder()
_DOCUMENT = msgspec.msgpack.Decoder(_Document)


def encode_archived(run: ArchivedRun) -> bytes:
    """The message of the archive."""
    document = _Document(
        run.run_id,
        run.head,
        _differences([event.seq for event in run.events]),
        _differences([round(event.at * 1e6) for event in run.events]),
        [event.data for event in run.events],
    )
    packer = zlib.compressobj(9, zlib.DEFLATED, RAW, 9, zlib.Z_DEFAULT_STRATEGY, DICTIONARIES[NEWEST])
    return bytes([NEWEST]) + packer.compress(_PACKED.encode(document)) + packer.flush()


def decode_archived(body: bytes, seq: int) -> ArchivedRun:
    """The run in a message of the archive, whose sequence is `seq`. Raises NeedsUpgrade for one of a newer version,
    zlib.error or msgspec.MsgspecError for what is none."""
    dictionary = DICTIONARIES.get(body[0] if body else 0)
    if dictionary is None:
        raise NeedsUpgrade(f"message {seq} of the archive is of a newer version")
    document = _DOCUMENT.decode(zlib.decompressobj(RAW, dictionary).decompress(body[1:]))
    subject, headers = names.stored_subject(document.run_id), archived_headers(seq)
    places = zip(accumulate(document.seqs), accumulate(document.times), document.bodies, strict=True)
    events = [Stored(subject, at, us / 1e6, data, headers=headers) for at, us, data in places]
    return ArchivedRun(document.run_id, document.head, events, seq)


def encode_archive_mark(mark: ArchiveMark) -> bytes:
    return _JSON.encode(mark)


def is_archive_mark(body: bytes) -> bool:
    return body.startswith(MARK_STARTS)


def archive_mark_in(body: bytes) -> ArchiveMark | None:
    """The mark in a message of a history; None for any other message. Raises NeedsUpgrade for one of a newer
    version."""
    if not body.startswith(MARK_STARTS):
        return None
    formats.check(body)
    try:
        return _MARK.decode(body)
    except msgspec.MsgspecError:
        return None


def archived_in(page: Sequence[Stored], before: int) -> int:
    """Where the archive has a run after these messages of its history, if nobody has brought it back since; `before`:
    where it had it until then."""
    for stored in page:
        if is_archive_mark(stored.data) and (mark := archive_mark_in(stored.data)) is not None:
            before = mark.payload.seq if isinstance(mark, RunArchived) else 0
    return before


def _differences(numbers: Sequence[int]) -> list[int]:
    return [*numbers[:1], *(later - former for former, later in pairwise(numbers))]


def archived_headers(seq: int) -> bytes:
    """The headers of an event that was read from this message of the archive."""
    return b"%b%d" % (ARCHIVE_SEQ, seq)


def archive_seq(event: Stored) -> int:
    """The message of the archive from which an event was read; 0: it stands in the history itself."""
    return int(event.headers[len(ARCHIVE_SEQ) :]) if event.headers.startswith(ARCHIVE_SEQ) else 0
