"""What the messages of the log change in the run index, as news of rows (rows.py). Pure.

Malformed events change nothing; those of a newer version are read by that version, which builds the index again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from penstock.actors.index.instants import instant_us
from penstock.actors.index.rows import IMPORTED_TEXT, MOVES, PAUSED_TEXT, Change, News, Row, label_texts
from penstock.broker import names
from penstock.broker.nats.tail import Read
from penstock.broker.records.imports import mark_in
from penstock.engine.errors import NeedsUpgrade
from penstock.engine.run.event_payloads import parent_run_id
from penstock.engine.run.events import (
    IN_BETWEEN,
    Event,
    LimitGranted,
    Malformed,
    WorkflowCancelled,
    WorkflowCompleted,
    WorkflowFailed,
    WorkflowResumed,
    WorkflowScheduled,
    WorkflowStarted,
    decode,
)

UNWANTED = IN_BETWEEN
"""First bytes of messages that change nothing."""

Maker: TypeAlias = Callable[[Any, Read, str, int], Change | None]


def changes(reads: Iterable[Read]) -> list[News]:
    """The news in these messages, in their order."""
    return [news for read in reads if (news := _news(read)) is not None]


def _news(read: Read) -> News | None:
    if not read.subject.startswith(b"history."):
        return None
    run_id, seq = read.subject[read.subject.rindex(b".") + 1 :].decode(), read.seq
    try:
        event = decode(read.data)
    except Malformed:
        return _imported(read, run_id, seq)
    except NeedsUpgrade:
        return None
    make = MAKERS.get(type(event))
    return None if make is None or event.run_id != run_id else make(event, read, run_id, seq)


def _scheduled(event: WorkflowScheduled, read: Read, run_id: str, seq: int) -> Change:
    labels = label_texts(event.payload.labels, None)
    return Change(run_id, WorkflowScheduled, seq, event.payload.workflow, _at_us(event, read), labels=labels)


def _started(event: WorkflowStarted, read: Read, run_id: str, seq: int) -> Change:
    begun, at_us = event.payload, _at_us(event, read)
    parent = None if begun.parent is None else parent_run_id(begun.parent)
    labels = label_texts(begun.labels, begun.trigger) if begun.labels or begun.trigger else ()
    first = (run_id, WorkflowStarted, seq, begun.workflow, at_us, begun.rerun_of, parent, labels)
    return Change(*first, None, False, at_us, begun.waits)


def _granted(event: LimitGranted, read: Read, run_id: str, seq: int) -> Change | None:
    """Of the run itself: a grant for one of its executions changes nothing."""
    if event.payload.step_id is not None:
        return None
    return Change(run_id, LimitGranted, seq, at_us=_at_us(event, read), waits=event.payload.more)


def _ended(event: WorkflowCompleted | WorkflowFailed | WorkflowCancelled, read: Read, run_id: str, seq: int) -> Change:
    undoes = isinstance(event, WorkflowCancelled) and event.payload.compensate
    at_us = instant_us(event.timestamp)
    return Change(run_id, type(event), seq, "", 0, None, None, (), names.owner_seq(read.headers), undoes, at_us)


def _moved(event: Event, read: Read, run_id: str, seq: int) -> Change:
    waits = event.payload.waits if isinstance(event, WorkflowResumed) else 0
    return Change(run_id, type(event), seq, folded=names.owner_seq(read.headers), waits=waits)


MAKERS: Mapping[type[Event], Maker] = {
    **dict.fromkeys(MOVES, _moved),
    WorkflowScheduled: _scheduled,
    WorkflowStarted: _started,
    LimitGranted: _granted,
    WorkflowCompleted: _ended,
    WorkflowFailed: _ended,
    WorkflowCancelled: _ended,
}


def _at_us(event: Event, read: Read) -> int:
    """The time of the event, or that at which the broker has stored it."""
    found = instant_us(event.timestamp)
    return int(read.at * 1e6) if found is None else found


def _imported(read: Read, run_id: str, seq: int) -> Row | None:
    """The row of an imported run, if the message is the mark of one."""
    try:
        mark = mark_in(read.data)
    except NeedsUpgrade:
        return None
    if mark is None or mark.run_id != run_id:
        return None
    head = mark.payload
    labels = (*label_texts(head.labels, head.trigger), IMPORTED_TEXT, *([PAUSED_TEXT] if head.paused else []))
    created_us = instant_us(head.created_at)
    known = (head.workflow, head.status, int(read.at * 1e6) if created_us is None else created_us, 0, seq)
    return Row(run_id, *known, head.rerun_of, parent_run_id(head.parent), labels)
