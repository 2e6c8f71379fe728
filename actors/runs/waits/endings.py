"""The events that end a wait."""

from __future__ import annotations

from msgspec import Raw

from penstock.actors.runs.waits.wait_index import FoundEvent
from penstock.broker import message_ids
from penstock.broker.records.event_waits import WaitRecord
from penstock.config.limits import PAYLOAD_BYTES_MAX
from penstock.engine.run.event_payloads import Failure, ReceivedEvent, TimerRef
from penstock.engine.run.events import EventReceived, StepFailed, TimerFired
from penstock.engine.run.state import StepState
from penstock.engine.run.timers import TimerKind, timer_name
from penstock.engine.times import rfc3339

EVENT_FORMAT = 2  # of `event.received`: older versions do not know it


def received(record: WaitRecord, event: FoundEvent, now: float) -> EventReceived | StepFailed:
    """What the event does to its run: one that is too large for an output fails the step. It happens when the event was
    stored, but `now` if that was before the wait began."""
    timestamp = rfc3339(event.at if event.at >= record.began else max(now, record.began))
    if (size := len(event.body)) > PAYLOAD_BYTES_MAX:
        error = f"event {record.wait.event} {event.seq} has {size} bytes, {PAYLOAD_BYTES_MAX} is the most: send less"
        return StepFailed(
            run_id=record.run_id,
            step_id=record.step_id,
            timestamp=timestamp,
            attempt_number=record.attempt,
            payload=Failure(error=error, failure_type="non_retriable"),
        )
    return EventReceived(
        run_id=record.run_id,
        step_id=record.step_id,
        timestamp=timestamp,
        attempt_number=record.attempt,
        payload=ReceivedEvent(record.wait.event, event.seq, Raw(event.body)),
        v=EVENT_FORMAT,
    )


def timed_out(record: WaitRecord) -> tuple[TimerFired, str]:
    """The event that nothing came in time, with its message id."""
    name = timer_name(TimerKind.WAIT, record.step_id, StepState())
    fired = TimerRef(timer=name, step_id=record.step_id, attempt=record.attempt)
    event = TimerFired(run_id=record.run_id, timestamp=rfc3339(record.wait.until or 0.0), payload=fired)
    return event, message_ids.of_timer(record.run_id, name, record.attempt)
