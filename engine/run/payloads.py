"""Payloads that a run carries, and those that it leaves in its history.

What is small stands in the run's state, and so in its snapshot. What is larger than OUTPUT_INLINE_BYTES_MAX stays where
it is, in the event that brought it, and the state keeps its place: so a state has a bounded size whatever its steps
give back. The engine never needs such bytes; who carries its commands out, or shows the run, reads them from the
history.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec
import orjson
from msgspec import UNSET, Raw, Struct, UnsetType

from penstock.config.limits import OUTPUT_INLINE_BYTES_MAX, PAYLOAD_BYTES_MAX
from penstock.engine.run.events import (
    NULL,
    ApprovalGranted,
    Event,
    StepCompleted,
    StepContinue,
    WorkflowScheduled,
    WorkflowStarted,
)


class Kept(Struct, frozen=True):
    """A payload of `size` bytes that only the history holds, in the event with this stream sequence."""

    seq: int
    size: int


Payload: TypeAlias = Raw | Kept
Value: TypeAlias = Payload | Mapping[str, Payload]
"""What a step receives or a run gives back: one payload, or an object from step id to payload that nobody has put
together yet."""


def given(event: Event) -> Raw | UnsetType:
    """What the event brings its run or step: the run's input, a step's output, what a loop hands on, a decision."""
    match event:
        case WorkflowStarted() | WorkflowScheduled():
            return event.payload.input
        case StepCompleted():
            return event.payload
        case StepContinue():
            return NULL if isinstance(event.payload, UnsetType) else event.payload
        case ApprovalGranted():
            return Raw(msgspec.json.encode(event.payload))
        case _:
            return UNSET


def too_large(what: str, payload: Raw | UnsetType) -> str | None:
    """A sentence for a payload over its limit, whoever sent it; None when it is none."""
    size = 0 if isinstance(payload, UnsetType) else memoryview(payload).nbytes
    return f"{what} has {size} bytes, {PAYLOAD_BYTES_MAX} is the most" if size > PAYLOAD_BYTES_MAX else None


def laid_down(payload: Raw | UnsetType, seq: int) -> tuple[Raw | UnsetType, Kept | None]:
    """How a state keeps what the event with this sequence brought: as a copy, or as its place."""
    if isinstance(payload, UnsetType):
        return UNSET, None
    size = memoryview(payload).nbytes
    return (payload.copy(), None) if size <= OUTPUT_INLINE_BYTES_MAX else (UNSET, Kept(seq, size))


def size_of(value: Value) -> int:
    """Bytes of the value when it is put together."""
    if isinstance(value, Raw):
        return memoryview(value).nbytes
    if isinstance(value, Kept):
        return value.size
    return 1 + sum(len(key) + len('"":,') + size_of(part) for key, part in value.items())


def joined(parts: Mapping[str, Raw]) -> Raw:
    """One JSON object of them."""
    return Raw(orjson.dumps({key: orjson.Fragment(bytes(part)) for key, part in parts.items()}))
