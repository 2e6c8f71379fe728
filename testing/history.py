"""A run's history as a test reads it: its events, and the text that a failed assertion shows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson
from msgspec import Struct

from penstock.engine.definition.durations import text
from penstock.engine.run.events import Event, Record, encode
from penstock.engine.times import instant

DETAIL_CHARS_MAX = 100


class HistoryEvent(Struct, frozen=True):
    """One event of a run's history, as the log has it: `type` is for example `step.completed`. `attempt` and
    `iteration` are None where the event does not say. `payload` is decoded JSON, None without one. `started_at`: when
    the execution began, in an answer that came at once and therefore has no `step.started` before it."""

    seq: int
    type: str
    timestamp: str
    step_id: str | None = None
    attempt: int | None = None
    iteration: int | None = None
    item: int | None = None
    delivery: int = 1
    worker_id: str | None = None
    payload: Any = None
    started_at: str | None = None

    @property
    def about(self) -> str:
        """What assertions call it: `step.completed charge`, `workflow.completed`; a timer by its name."""
        if self.type == "timer.fired":
            return f"{self.type} {self.payload['timer']}"
        return self.type if self.step_id is None else f"{self.type} {self.step_id}"


def event_of(record: Record) -> HistoryEvent:
    """The event of a record."""
    stored = document_of(record.event)
    return HistoryEvent(
        seq=record.seq,
        type=stored["type"],
        timestamp=stored.get("timestamp", ""),
        step_id=stored.get("step_id"),
        attempt=stored.get("attempt_number"),
        iteration=stored.get("iteration"),
        item=stored.get("item"),
        delivery=stored.get("delivery", 1),
        worker_id=stored.get("worker_id"),
        payload=stored.get("payload"),
        started_at=stored.get("started_at"),
    )


def document_of(event: Event) -> dict[str, Any]:
    """The event as its JSON has it."""
    found: dict[str, Any] = orjson.loads(encode(event))
    return found


def shown(events: Iterable[HistoryEvent]) -> str:
    """The history as text, one event a line, with the time since the first."""
    lines, began = [], None
    for event in events:
        at = instant(event.timestamp) if event.timestamp else began or 0.0
        began = at if began is None else began
        attempt = f" attempt {event.attempt}" if event.attempt is not None and event.attempt > 1 else ""
        passed = text(round(max(0.0, at - began), 6))
        lines.append(f"  +{passed:<10} {event.about}{attempt}{_detail(event)}")
    return "\n".join(lines)


def _detail(event: HistoryEvent) -> str:
    """What is worth knowing of its payload, in short."""
    payload = event.payload
    if payload is None or event.type in ("timer.fired", "workflow.scheduled"):
        return ""
    if isinstance(payload, dict) and "error" in payload:
        said = f'"{payload["error"]}"'
    else:
        fields = {"workflow.started": "input", "workflow.completed": "output"}
        field = fields.get(event.type)
        body = payload.get(field) if field is not None and isinstance(payload, dict) else payload
        said = orjson.dumps(body).decode()
    return f": {said if len(said) <= DETAIL_CHARS_MAX else said[: DETAIL_CHARS_MAX - 1] + '…'}"
