"""Log lines of a step: one line, and a message of several.

Subject: `log.<run_id>.<step_id>`. Any client may write such messages; what cannot be read is passed over.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import orjson
from msgspec import UNSET, Raw, Struct, UnsetType

from penstock.config.limits import ENTRIES_MAX, LOG_LINE_BYTES_MAX
from penstock.engine.texts import cut_utf8

LEVELS = ("debug", "info", "warning", "error", "critical")
"""From the least to the worst."""

# Words of other languages and libraries for the same.
ALIASES = {"trace": "debug", "notice": "info", "warn": "warning", "err": "error", "exception": "error"} | dict.fromkeys(
    ("fatal", "panic", "alert", "emergency", "crit"), "critical"
)
RANKS = {level: rank for rank, level in enumerate(LEVELS)}
CUT = "…"


class LogLine(Struct, frozen=True, omit_defaults=True):
    """One line as it is stored. `at` is RFC 3339; without it the line was written when its message was stored. `fields`
    is a JSON object."""

    text: str
    level: str = "info"
    at: str | None = None
    fields: Raw | UnsetType = UNSET


class LogBatch(Struct, frozen=True, omit_defaults=True):
    """The body of a message: lines of one attempt, each the JSON of a LogLine."""

    lines: list[Raw]
    attempt: int = 1
    worker_id: str | None = None
    delivery: int = 1


class LineSeq(Struct, frozen=True):
    """The place of a line or a chunk: the sequence of its message in the stream, and its number in the message."""

    message: int
    entry: int

    def __int__(self) -> int:
        """One number that grows from entry to entry."""
        return self.message * ENTRIES_MAX + self.entry


_LINE = msgspec.json.Decoder(LogLine)
_BATCH = msgspec.json.Decoder(LogBatch)
_FIELDS = msgspec.json.Decoder(dict[str, Raw])
_ENCODER = msgspec.json.Encoder()


def level_of(word: str) -> str | None:
    """The level that a word stands for, in any case; None for an unknown one."""
    lower = word.lower()
    return lower if lower in RANKS else ALIASES.get(lower)


def line(text: str, level: str, at: str | None, fields: bytes | None = None) -> bytes:
    """The JSON of a line, cut to LOG_LINE_BYTES_MAX; `fields` is the JSON of an object. Fields that find no room beside
    the text are replaced by their size."""
    kept = cut_utf8(text, LOG_LINE_BYTES_MAX, CUT)
    room = LOG_LINE_BYTES_MAX - len(kept.encode())
    if fields is not None and len(fields) > room:
        fields = b'{"dropped_bytes":%d}' % len(fields)
    return _ENCODER.encode(LogLine(kept, level, at, UNSET if fields is None else Raw(fields)))


def dropped(count: int, at: str) -> bytes:
    """The line that stands for so many lines that were dropped."""
    return line(f"… {count} lines dropped", "warning", at, b'{"dropped":%d}' % count)


def batch(lines: Sequence[bytes], attempt: int, worker_id: str | None, *, delivery: int = 1) -> bytes:
    """The body of a message with these lines, at most ENTRIES_MAX. `delivery` is the number of the task's delivery."""
    return _ENCODER.encode(LogBatch([Raw(one) for one in lines], attempt, worker_id, delivery))


def read(body: bytes) -> LogBatch | None:
    """The batch in a message; None for what is none."""
    try:
        return _BATCH.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def read_line(body: Raw) -> LogLine | None:
    """The line in a batch, with a known level; None for what is none."""
    try:
        found = _LINE.decode(body)
        if not isinstance(found.fields, UnsetType):
            _FIELDS.decode(found.fields)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if found.level in RANKS and len(body) <= LOG_LINE_BYTES_MAX:
        return found
    return msgspec.structs.replace(
        found, level=level_of(found.level) or "info", text=cut_utf8(found.text, LOG_LINE_BYTES_MAX, CUT)
    )


def as_fields(values: object) -> bytes | None:
    """The JSON of the fields of a line: values that are no JSON as text; None for no fields."""
    if not values:
        return None
    try:
        return orjson.dumps(values, default=repr, option=orjson.OPT_NON_STR_KEYS)
    except (TypeError, ValueError, RecursionError):  # such as text that is no UTF-8, or a list that holds itself
        return orjson.dumps({"fields": repr(values)[:LOG_LINE_BYTES_MAX].encode(errors="replace").decode()})
