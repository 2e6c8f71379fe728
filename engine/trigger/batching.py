"""Triggers that start one run for several events: `debounce` with the last of them, `batch` with all of them.

Here is what a document says, by which key events belong together, and when a batch ends. An open batch, of either kind,
is a fact of the broker (broker/triggers/batches.py); its time is the broker's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import TypeAlias

import orjson
from msgspec import Raw, Struct, structs

from penstock.config.limits import PAYLOAD_BYTES_MAX
from penstock.engine.definition import durations, values
from penstock.engine.definition.forms import Document, Form
from penstock.engine.definition.identifiers import quoted
from penstock.engine.definition.report import Report
from penstock.engine.errors import ExpressionFailed, Invalid, TooLarge
from penstock.engine.expressions.evaluation.values import Values
from penstock.engine.expressions.expression import Expression, compile_expression
from penstock.engine.expressions.scope import Scope

SIZE_MAX = 1000
PERIOD_S_MAX = 7 * 86_400.0
SCOPE = Scope(names=frozenset({"event"}))
KEYS_CACHED = 256


class Debounce(Struct, frozen=True, omit_defaults=True):
    """One run with the last event, once none has come for `period`, and `max_wait` after the first at the latest."""

    period: str
    max_wait: str
    key: str | None = None


class Batch(Struct, frozen=True, omit_defaults=True):
    """One run with an array of events, as soon as there are `size` of them, and `period` after the first at the
    latest."""

    size: int
    period: str
    key: str | None = None


Batching: TypeAlias = Debounce | Batch


class BatchState(Struct, frozen=True, omit_defaults=True):
    """An open batch after its last event. `first` and `seq` are the places of its first and last event in their stream;
    `since` is when the first was taken up (s since the epoch, the broker's time; 0: it is the last one, whose record
    has the time). `bytes` is the length of the array so far, without its brackets. `at` is when the last event came.
    A `closed` one gets no more events.
    """

    first: int
    seq: int
    count: int
    bytes: int
    at: float
    since: float = 0.0
    closed: bool = False

    def since_when(self, stored_at: float) -> float:
        """When the batch began, given when this state was stored."""
        return self.since or stored_at


def key_text(batching: Batching, event: Raw) -> str:
    """The key of an event, as text: empty without `key`.

    Raises Invalid for an expression that fails on the event, or may take more than some 10 ms over it, and for a key
    that is an object or an array.
    """
    if batching.key is None:
        return ""
    expression, given = _compiled(batching.key), Values({"event": event})
    if expression.is_heavy(given):
        raise Invalid("key: its expression may take too long over an event of this size")
    try:
        value = expression.evaluate(given)
    except ExpressionFailed as error:
        raise Invalid(f"key: {error}") from error
    if isinstance(value, dict | list):
        raise Invalid(f"key: expression {quoted(batching.key)} must not give an object or an array")
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def key_token(key: str) -> str:
    """The key as one token of a subject: 32 hexadecimal characters."""
    return sha256(key.encode(errors="surrogatepass")).hexdigest()[:32]


def extended(
    batching: Batching, open_batch: BatchState | None, stored_at: float, *, seq: int, size: int, at: float
) -> BatchState:
    """The batch with one more event of `size` bytes, or a new one of this event. `stored_at`: when `open_batch` was.

    Raises TooLarge for an event that no run can have.
    """
    most = PAYLOAD_BYTES_MAX - 2 if isinstance(batching, Batch) else PAYLOAD_BYTES_MAX
    if size > most:
        raise TooLarge(f"the event has {size} bytes, {most} is the most")
    if open_batch is None:
        return BatchState(seq, seq, 1, size, at)
    length = open_batch.bytes + 1 + size if isinstance(batching, Batch) else size
    return BatchState(open_batch.first, seq, open_batch.count + 1, length, at, open_batch.since_when(stored_at))


def is_full(batching: Batching, state: BatchState, more: int = 0) -> bool:
    """Whether the batch ends now; with `more`: before another event of so many bytes."""
    if not isinstance(batching, Batch):
        return False
    return state.count >= batching.size or (more > 0 and state.bytes + 1 + more > PAYLOAD_BYTES_MAX - 2)


def due_at(batching: Batching, since: float, last_at: float) -> float:
    """When a batch ends that began at `since` and got its last event at `last_at`, if no other one comes."""
    period_s = durations.parse(batching.period)
    if isinstance(batching, Debounce):
        return min(last_at + period_s, since + durations.parse(batching.max_wait))
    return since + period_s


def run_value(batching: Batching, events: Sequence[bytes]) -> Raw:
    """What a run gets: the last of these events, or an array of all."""
    return Raw(b"[" + b",".join(events) + b"]") if isinstance(batching, Batch) else Raw(events[-1])


def in_words(batching: Batching) -> str:
    """When a run starts, for people."""
    if isinstance(batching, Debounce):
        return f"{batching.period} after the last event, {batching.max_wait} after the first at the latest"
    return f"with {batching.size} events, {batching.period} after the first at the latest"


@lru_cache(KEYS_CACHED)
def _compiled(text: str) -> Expression:
    return compile_expression(text, SCOPE)


def _read_key(path: str, value: object, report: Report) -> object:
    read = values.expression.read(path, value, report)
    if isinstance(read, str):
        try:
            compile_expression(read, SCOPE)
        except Invalid as invalid:
            report.add(*(f"{path} {problem}" for problem in invalid.problems))
    return read


def _read_period(path: str, value: object, report: Report) -> object:
    read = values.timeout.read(path, value, report)
    if isinstance(read, str) and _seconds(read) > PERIOD_S_MAX:
        report.add(f"{path} {quoted(read)} is too long, {durations.text(PERIOD_S_MAX)} is the most")
    return read


def _debounce_problems(document: Document) -> Iterator[str]:
    period, max_wait = document.get("period"), document.get("max_wait")
    if isinstance(period, str) and isinstance(max_wait, str) and 0 < _seconds(max_wait) < _seconds(period):
        yield f"max_wait {max_wait} must not be shorter than period {period}"


def _seconds(text: str) -> float:
    try:
        return durations.parse(text)
    except ValueError:
        return 0.0


_key = structs.replace(values.expression, read=_read_key).annotated(
    description="An expression over `event`: events with the same value belong together. All do, without it."
)
_period = structs.replace(values.timeout, read=_read_period)

DEBOUNCE = Form(
    component="TriggerDebounce",
    fields={"period": _period, "max_wait": _period, "key": _key},
    required=("period", "max_wait"),
    also=_debounce_problems,
    schema={"description": "One run with the last event, once none has come for `period`."},
)
BATCH = Form(
    component="TriggerBatch",
    fields={"size": values.whole_number(SIZE_MAX, least=1), "period": _period, "key": _key},
    required=("size", "period"),
    schema={"description": "One run with an array of events."},
)
