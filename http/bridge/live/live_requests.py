"""What a worker over HTTP says while it carries out a task: log lines, chunks, progress. Every reader adds all problems
to the report, or raises TooLarge."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct, UnsetType

from penstock.broker.live import lines
from penstock.broker.live.progress import StepProgress, progress
from penstock.broker.worker_protocol.bridge_messages import BridgeLine, BridgeProgress, ResolveTask
from penstock.config.limits import CHUNK_BYTES_MAX, ENTRIES_MAX, NAME_CHARS_MAX
from penstock.engine.definition import values
from penstock.engine.definition.identifiers import quoted
from penstock.engine.definition.report import Report
from penstock.engine.errors import Invalid, TooLarge
from penstock.engine.times import rfc3339
from penstock.http.messages import bodies, fields

P = TypeVar("P", bound=Struct)

_ARRAY = msgspec.json.Decoder(list[Raw])

SAID: fields.Fields = {
    "id": fields.characters(NAME_CHARS_MAX).annotated(
        description="log, stream: a repeat with the same id within 5 s is stored once."
    ),
    "dropped": values.whole_number(2**53).annotated(
        description="stream: so many chunks are missing before this one, or at the end, without data."
    ),
}


class LogAction(NamedTuple):
    """`lines` are the JSON of each, `id` the request's own."""

    lines: Sequence[bytes]
    id: str | None


class StreamAction(NamedTuple):
    """Without a chunk, something was dropped at the end."""

    chunk: bytes | None
    dropped: int
    id: str | None


class ProgressAction(NamedTuple):
    progress: StepProgress


LiveAction: TypeAlias = LogAction | StreamAction | ProgressAction


def log(request: ResolveTask, report: Report) -> LogAction:
    fields.read_fields(request, SAID, report)
    now = rfc3339(time.time())
    found = _array(request.data, report)
    if len(found) > ENTRIES_MAX:
        report.add(f"data has {len(found)} lines, {ENTRIES_MAX} is the most")
        found = []
    return LogAction([_line(f"data[{at}]", one, now, report) for at, one in enumerate(found)], request.id)


def stream(request: ResolveTask, report: Report) -> StreamAction:
    fields.read_fields(request, SAID, report)
    chunk = None if isinstance(request.data, UnsetType) else bytes(request.data)
    if chunk is None and not request.dropped:
        report.add("data is required")
    if chunk is not None and len(chunk) > CHUNK_BYTES_MAX:
        raise TooLarge(f"data has {len(chunk)} bytes, {CHUNK_BYTES_MAX} is the most")
    return StreamAction(chunk, request.dropped or 0, request.id)


def progress_of(request: ResolveTask, report: Report) -> ProgressAction:
    found = StepProgress()
    if isinstance(request.data, UnsetType):
        report.add("data is required")
    elif given := _part(request.data, BridgeProgress, "data", report):
        try:
            found = progress(given.done, given.total, given.text, 1)
        except Invalid as error:
            report.add(*(f"data: {problem}" for problem in error.problems))
    return ProgressAction(found)


def _array(data: Raw | UnsetType, report: Report) -> list[Raw]:
    if isinstance(data, UnsetType):
        report.add("data is required")
        return []
    try:
        return _ARRAY.decode(data)
    except msgspec.ValidationError:
        report.add("data must be an array of lines, each {text, level?, at?, fields?}")
        return []


def _part(body: Raw, kind: type[P], name: str, report: Report) -> P | None:
    try:
        return bodies.decode_part(body, kind, name)
    except Invalid as error:
        report.add(*(problem if problem.startswith(name) else f"{name}: {problem}" for problem in error.problems))
        return None


def _line(name: str, body: Raw, now: str, report: Report) -> bytes:
    one = _part(body, BridgeLine, name, report)
    if one is None:
        return b""
    level = lines.level_of(one.level)
    if level is None:
        report.add(f"{name}.level must be one of {' '.join(lines.LEVELS)}, not {quoted(one.level)}")
    if one.at is not None and fields.instant(one.at) is None:
        report.add(f"{name}.at must be a time such as 2025-01-31T12:00:00Z, not {quoted(one.at)}")
    given = None if isinstance(one.fields, UnsetType) else bytes(one.fields)
    if given is not None and not given.startswith(b"{"):
        report.add(f"{name}.fields must be an object")
    return lines.line(one.text, level or "info", one.at or now, given)
