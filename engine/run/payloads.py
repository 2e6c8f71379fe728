"""Payloads in the state of a run, and references to those that stay in its history.

A small payload is part of the run's state and of its snapshot. A payload larger than OUTPUT_INLINE_BYTES_MAX stays in
the event that brought it, and the state has a reference to that event. So the size of a state is bounded whatever its
steps return. The engine never needs these bytes; the code that carries out its commands or shows the run reads them
from the history.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec
import orjson
from msgspec import UNSET, Raw, Struct, UnsetType

from penstock.config.limits import OUTPUT_INLINE_BYTES_MAX, PAYLOAD_BYTES_MAX
from penstock.engine.run.event_payloads import NULL, ChildEnd, Reply, StepFacts, TakenStep
from penstock.engine.run.events import (
    ApprovalGranted,
    ChildEnded,
    Event,
    EventReceived,
    StepCompleted,
    StepContinue,
    StepFailed,
    StepOverridden,
    StepStarted,
    StepTakenOver,
    WorkflowScheduled,
    WorkflowStarted,
    event_type,
)
from penstock.engine.run.items import Items
from penstock.engine.texts import shortened


class PayloadRef(Struct, frozen=True):
    """A reference to a payload of `size` bytes in the event with this stream sequence."""

    seq: int
    size: int


class Gathered(Struct, frozen=True):
    """The array of a map's outputs, of `size` bytes, which only the events of its elements hold."""

    items: Items
    size: int


class Parts(Struct, frozen=True):
    """An object of `size` bytes, whose values are payloads of their own."""

    parts: Mapping[str, Payload]
    size: int


Payload: TypeAlias = Raw | PayloadRef | Gathered | Parts
Value: TypeAlias = Payload | Mapping[str, Payload]
"""What a step receives or a run returns: one payload, or the parts of an object from step id to payload."""


def payload_of(event: Event) -> Raw | UnsetType:
    """The payload that the event brings: the run's input, a step's output, the input of a loop's next iteration, a
    decision, a response."""
    match event:
        case WorkflowStarted() | WorkflowScheduled():
            return event.payload.input
        case StepCompleted():
            return event.payload
        case ChildEnded():
            return event.payload.output
        case EventReceived():
            return event.payload.body
        case StepContinue():
            return NULL if isinstance(event.payload, UnsetType) else event.payload
        case StepStarted(payload=StepFacts(reply=Reply() as reply)):
            return reply.body
        case StepOverridden() | StepTakenOver():
            return event.payload.output
        case ApprovalGranted():
            return Raw(msgspec.json.encode(event.payload))
        case _:
            return UNSET


def too_large(what: str, payload: Raw | UnsetType) -> str | None:
    """A sentence for a payload over its limit, from any sender; None for a smaller one."""
    size = 0 if isinstance(payload, UnsetType) else memoryview(payload).nbytes
    return f"{what} has {size} bytes, {PAYLOAD_BYTES_MAX} is the most" if size > PAYLOAD_BYTES_MAX else None


def inline_or_ref(payload: Raw | UnsetType, seq: int) -> tuple[Raw | UnsetType, PayloadRef | None]:
    """A payload of the event with this sequence as the state stores it: a copy, or a reference when it is large."""
    if isinstance(payload, UnsetType):
        return UNSET, None
    size = memoryview(payload).nbytes
    return (payload.copy(), None) if size <= OUTPUT_INLINE_BYTES_MAX else (UNSET, PayloadRef(seq, size))


def size_of(value: Value) -> int:
    """Size of the value in bytes, as one JSON text."""
    if isinstance(value, Raw):
        return memoryview(value).nbytes
    if isinstance(value, PayloadRef | Gathered | Parts):
        return value.size
    return 1 + sum(len(key) + len('"":,') + size_of(part) for key, part in value.items())


def succeeded(output: Raw) -> Raw:
    """What stands for an element that completed, in the array of a map that goes on after failures."""
    return Raw(b'{"ok":true,"output":%b}' % bytes(output))


def failed_with(error: str) -> Raw:
    """What stands there for an element that failed for good."""
    return Raw(orjson.dumps({"ok": False, "error": error}))


def element_result(event: Event, wraps: bool) -> Raw:
    """What the event that ended an element of a map adds to the array."""
    match event:
        case StepFailed():
            return failed_with(shortened(event.payload.error))
        case StepCompleted():
            output = NULL if isinstance(event.payload, UnsetType) else event.payload
            if problem := too_large("the output", output):
                return failed_with(problem)
            return succeeded(output) if wraps else output
        case StepTakenOver(payload=TakenStep(error=str() as error)):
            return failed_with(error)
        case StepTakenOver(payload=taken):
            output = NULL if isinstance(taken.output, UnsetType) else taken.output
            return succeeded(output) if wraps else output
        case ChildEnded():
            if problem := child_problem(event.payload):
                return failed_with(shortened(problem))
            output = NULL if isinstance(event.payload.output, UnsetType) else event.payload.output
            return succeeded(output) if wraps else output
        case _:
            return failed_with(f"ended by {event_type(event)}")


def detached(child_run_id: str) -> Raw:
    """The output of a step that does not wait for its child."""
    return Raw(orjson.dumps({"run_id": child_run_id}))


def child_problem(ended: ChildEnd) -> str | None:
    """Why the step has no output of its child, naming the child; None if it has."""
    child = f"child run {ended.run_id}"
    match ended.status:
        case "completed" if ended.output_bytes:
            return f"the output of {child} has {ended.output_bytes} bytes, {PAYLOAD_BYTES_MAX} is the most"
        case "completed":
            return too_large(f"the output of {child}", ended.output)
        case "cancelled":
            return f"{child} was cancelled" + (f": {ended.error}" if ended.error else "")
        case _:
            return f"{child} failed: {ended.error or ended.status}"


def joined(parts: Mapping[str, Raw]) -> Raw:
    """One JSON object of these parts."""
    return Raw(orjson.dumps({key: orjson.Fragment(bytes(part)) for key, part in parts.items()}))
