"""Stored messages as JSON and as server-sent events. What no reader can use is left out."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import UNSET, Raw

from penstock.broker.live import chunks, lines
from penstock.broker.names import said_by
from penstock.broker.nats.direct import Stored
from penstock.client.views import LogLineView
from penstock.config.limits import CHUNK_BYTES_MAX, ENTRIES_MAX
from penstock.engine.times import utc
from penstock.http.messages.params import LogFilter

COMMENT = b": \n\n"

_ENCODER = msgspec.json.Encoder()


def lines_in(stored: Stored, wanted: LogFilter) -> Iterator[LogLineView]:
    """The lines of a message that are wanted, after `wanted.after`."""
    batch = lines.read(stored.data)
    if batch is None:
        return
    _, step_id = said_by(stored.subject)
    first = stored.seq * ENTRIES_MAX
    for seq, body in enumerate(batch.lines[:ENTRIES_MAX], first):
        line = lines.read_line(body) if seq > wanted.after else None
        if line is not None and _is_wanted(line, wanted):
            at = utc(line.at or "", stored.at)
            said_by_whom = step_id, batch.attempt, batch.worker_id
            yield LogLineView(seq, at, line.level, line.text, *said_by_whom, line.fields, batch.delivery)


def log_events(stored: Stored, wanted: LogFilter) -> bytes:
    """The lines of a message that are wanted, as server-sent events."""
    return b"".join(_event(b"log", line.seq, _ENCODER.encode(line)) for line in lines_in(stored, wanted))


def chunk_events(stored: Stored, after: int) -> bytes:
    """The chunks of a message after this place, as server-sent events; before them, how many were dropped."""
    batch = chunks.read(stored.data)
    if batch is None:
        return b""
    _, step_id = said_by(stored.subject)
    first = stored.seq * ENTRIES_MAX
    head = b'{"step_id":%b,"attempt":%d,' % (_ENCODER.encode(step_id), batch.attempt)
    if batch.delivery > 1:
        head += b'"delivery":%d,' % batch.delivery
    events = [
        _event(b"chunk", seq, head + b'"data":' + bytes(body) + b"}") for seq, body in _chunks(batch, first, after)
    ]
    if batch.dropped and first > after:
        events.insert(0, _event(b"dropped", None, head + b'"count":%d}' % batch.dropped))
    return b"".join(events)


def end_event(status: str) -> bytes:
    """The event after which nothing more comes: the status of the step, or of the run."""
    return _event(b"end", None, b'{"status":%b}' % _ENCODER.encode(status))


def _chunks(batch: chunks.ChunkBatch, first: int, after: int) -> Iterator[tuple[int, Raw]]:
    for seq, body in enumerate(batch.chunks[:ENTRIES_MAX], first):
        if seq > after and len(body) <= CHUNK_BYTES_MAX:
            yield seq, body


def _is_wanted(line: lines.LogLine, wanted: LogFilter) -> bool:
    if wanted.rank and lines.RANKS[line.level] < wanted.rank:
        return False
    if not wanted.text:
        return True
    fields = "" if line.fields is UNSET else bytes(line.fields).decode()
    return wanted.text in line.text.casefold() or wanted.text in fields.casefold()


def _event(name: bytes, seq: int | None, data: bytes) -> bytes:
    place = b"" if seq is None else b"id: %d\n" % seq
    # Line ends in JSON stand between its tokens only.
    data = data if b"\n" not in data and b"\r" not in data else data.replace(b"\n", b" ").replace(b"\r", b" ")
    return b"%bevent: %b\ndata: %b\n\n" % (place, name, data)
