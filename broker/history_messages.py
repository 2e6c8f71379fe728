"""What is appended to histories: events as messages, and how to know them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.broker import message_ids, names
from penstock.broker.nats.batch import Message
from penstock.broker.nats.direct import Stored
from penstock.broker.nats.headers import SCHEDULE_NEXT, SCHEDULER
from penstock.engine.run.events import Event, WorkflowStarted, encode


def is_child(event: Event) -> bool:
    """Whether it begins a child, which its parent has started just now, or just before a crash."""
    return isinstance(event, WorkflowStarted) and event.payload.parent is not None


def is_among(mark: str, stored: Sequence[Stored]) -> bool:
    """Whether one of these messages has this id. Equal content is not enough: another client may have sent the same."""
    return any(mark.encode() in one.headers for one in stored)


def message(event: Event, batch: str | None = None, headers: Mapping[str, str] = {}) -> Message:
    """A message for `batch`, with an id of its own if the event is protected from repeats by other means."""
    message_id = message_ids.of_event(event) if batch is None else f"{message_ids.of_event(event)}.{batch}"
    return Message(names.history_subject(event.run_id), encode(event), message_id, headers)


def taking_back(run_id: str) -> dict[str, str]:
    """Headers of an event that remove the run's schedule, if there is one, as the broker does when it fires."""
    return {SCHEDULER: names.start_subject(run_id), SCHEDULE_NEXT: "purge"}
