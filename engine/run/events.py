"""The events of a run's history: past facts, in their stored form.

Each event is one JSON object: `{type, run_id, step_id?, timestamp, payload?, worker_id?, attempt_number?, iteration?,
trace_parent?, v?}`; `type` selects the class. Unknown fields are ignored, so that older readers accept events of newer
writers. Where that would mislead older readers, `v` is the lowest version that they must support (formats.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, get_args

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from penstock.engine import formats
from penstock.engine.definition.nulls import without_nulls
from penstock.engine.run.event_payloads import (
    ApprovalRequest,
    Cancellation,
    ChildEnd,
    Compensating,
    Completed,
    Decision,
    Failure,
    Fragment,
    Override,
    PauseRef,
    PauseScope,
    ReceivedEvent,
    Resumed,
    RunFailure,
    Scheduled,
    SignalRef,
    SlotGrant,
    SlotRefusal,
    Started,
    StepFacts,
    TakenStep,
    TimerRef,
)


class _Event(Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="type"):
    run_id: str
    timestamp: str = ""
    trace_parent: str | None = None
    v: int = 1


class StepEvent(_Event, frozen=True, omit_defaults=True, kw_only=True):
    """`attempt_number` None means the current attempt; `iteration` None means the current iteration.

    `item` is the number of a map's element, whose `step_id` is `<map>.<item>`.
    """

    step_id: str
    worker_id: str | None = None
    attempt_number: int | None = None
    iteration: int | None = None
    item: int | None = None


class WorkflowScheduled(_Event, frozen=True, omit_defaults=True, kw_only=True, tag="workflow.scheduled"):
    payload: Scheduled


class WorkflowStarted(_Event, frozen=True, omit_defaults=True, kw_only=True, tag="workflow.started"):
    payload: Started


class WorkflowCancelled(_Event, frozen=True, omit_defaults=True, kw_only=True, tag="workflow.cancelled"):
    payload: Cancellation = Cancellation()


class WorkflowCompensating(_Event, frozen=True, omit_defaults=True, kw_only=True, tag="workflow.compensating"):
    """From the engine only, for readers of the log: from here on the run undoes its steps."""

    payload: Compensating = Compensating()


class WorkflowPaused(_Event, frozen=True, omit_defaults=True, kw_only=True, tag="workflow.paused"):
    """From here to `workflow.unpaused` nothing new begins in the run; what runs goes on."""

    payload: PauseScope = PauseScope()


class WorkflowUnpaused(_Event, frozen=True, omit_defaults=True, kw_only=True, tag="workflow.unpaused"):
    """The run goes on."""

    payload: PauseScope = PauseScope()


class WorkflowResumed(_Event, frozen=True, omit_defaults=True, kw_only=True, tag="workflow.resumed"):
    payload: Resumed = Resumed()


class WorkflowCompleted(_Event, frozen=True, omit_defaults=True, kw_only=True, tag="workflow.completed"):
    payload: Completed = Completed()


class WorkflowFailed(_Event, frozen=True, omit_defaults=True, kw_only=True, tag="workflow.failed"):
    payload: RunFailure = RunFailure()


class WorkflowRemoved(_Event, frozen=True, omit_defaults=True, kw_only=True, tag="workflow.removed"):
    """From here on the run, which has ended, is not there any more: what is stored of it goes. Nothing follows.
    `archived` are the messages of the archive that have it."""

    archived: tuple[int, ...] = ()


class _DeliveryEvent(StepEvent, frozen=True, omit_defaults=True, kw_only=True):
    """`delivery` counts how often the task of this attempt was delivered."""

    delivery: int = 1


class StepStarted(_DeliveryEvent, frozen=True, omit_defaults=True, kw_only=True, tag="step.started"):
    """A payload only from the engine, for a step without a worker."""

    payload: StepFacts | None = None


class StepPaused(_DeliveryEvent, frozen=True, omit_defaults=True, kw_only=True, tag="step.paused"):
    """From here to the `step.started` of a later delivery, the step's timeout does not run."""

    payload: PauseRef = PauseRef()


class _AnswerEvent(_DeliveryEvent, frozen=True, omit_defaults=True, kw_only=True):
    """`started_at` (RFC 3339) says when the worker began, where no `step.started` does: the answer stands for both."""

    started_at: str | None = None


class StepCompleted(_AnswerEvent, frozen=True, omit_defaults=True, kw_only=True, tag="step.completed"):
    payload: Raw | UnsetType = UNSET


class StepFailed(_AnswerEvent, frozen=True, omit_defaults=True, kw_only=True, tag="step.failed"):
    payload: Failure = Failure()


class StepContinue(_AnswerEvent, frozen=True, omit_defaults=True, kw_only=True, tag="step.continue"):
    payload: Raw | UnsetType = UNSET


class StepSkipped(StepEvent, frozen=True, omit_defaults=True, kw_only=True, tag="step.skipped"):
    """No payload."""


class StepOverridden(StepEvent, frozen=True, omit_defaults=True, kw_only=True, tag="step.overridden"):
    """Somebody has completed the step by hand; the attempt that was out is given up."""

    payload: Override = Override()


class StepTakenOver(StepEvent, frozen=True, omit_defaults=True, kw_only=True, tag="step.taken_over"):
    """From the engine only: the run has this step, or element of a map, from the run that it repeats."""

    payload: TakenStep


class PlannerExpanded(StepEvent, frozen=True, omit_defaults=True, kw_only=True, tag="planner.expanded"):
    """Only from the engine: the plan that a planner's worker returned is valid, and its steps are now part of the
    run."""

    payload: Fragment = Fragment()


class ApprovalRequested(StepEvent, frozen=True, omit_defaults=True, kw_only=True, tag="approval.requested"):
    payload: ApprovalRequest


class ApprovalGranted(StepEvent, frozen=True, omit_defaults=True, kw_only=True, tag="approval.granted"):
    payload: Decision = Decision()


class ApprovalRejected(StepEvent, frozen=True, omit_defaults=True, kw_only=True, tag="approval.rejected"):
    payload: Decision = Decision()


class ApprovalExpired(StepEvent, frozen=True, omit_defaults=True, kw_only=True, tag="approval.expired"):
    payload: TimerRef | None = None


class ChildEnded(StepEvent, frozen=True, omit_defaults=True, kw_only=True, tag="child.ended"):
    """A child run of the step has ended, and with it this attempt: no `step.completed` follows."""

    payload: ChildEnd


class EventReceived(StepEvent, frozen=True, omit_defaults=True, kw_only=True, tag="event.received"):
    """From the engine only. It ends the step that waited for the event."""

    payload: ReceivedEvent


class TimerFired(_Event, frozen=True, omit_defaults=True, kw_only=True, tag="timer.fired"):
    payload: TimerRef


class SignalReceived(_Event, frozen=True, omit_defaults=True, kw_only=True, tag="signal.received"):
    payload: SignalRef


class LimitGranted(_Event, frozen=True, omit_defaults=True, kw_only=True, tag="limit.granted"):
    """From the engine only: the run, or an execution of it, has a slot of a limit."""

    payload: SlotGrant


class LimitRefused(_Event, frozen=True, omit_defaults=True, kw_only=True, tag="limit.refused"):
    """From the engine only: a limit lets the run not begin."""

    payload: SlotRefusal


Event: TypeAlias = (
    WorkflowScheduled
    | WorkflowStarted
    | WorkflowCancelled
    | WorkflowCompensating
    | WorkflowPaused
    | WorkflowUnpaused
    | WorkflowResumed
    | WorkflowCompleted
    | WorkflowFailed
    | WorkflowRemoved
    | StepStarted
    | StepPaused
    | StepCompleted
    | StepFailed
    | StepContinue
    | StepSkipped
    | StepOverridden
    | StepTakenOver
    | PlannerExpanded
    | ApprovalRequested
    | ApprovalGranted
    | ApprovalRejected
    | ApprovalExpired
    | ChildEnded
    | EventReceived
    | TimerFired
    | SignalReceived
    | LimitGranted
    | LimitRefused
)


class Record(Struct, frozen=True, gc=False):
    """An event in the log: `seq` is its stream sequence, `at` the time at which the broker stored it, in s since the
    epoch."""

    seq: int
    at: float
    event: Event


class Malformed(Exception):
    """The bytes are not an event that this version can decode; the text says why."""


# First bytes of events that neither begin nor end a run, as this service writes them.
FAMILIES = (b"step", b"signal", b"timer", b"approval", b"child", b"event", b"planner")
IN_BETWEEN = tuple(b'{"type":"%b.' % family for family in FAMILIES)
STARTED_RUN, STARTED_STEP = b'{"type":"workflow.started"', b'{"type":"step.started"'
REMOVED_RUN = b'{"type":"workflow.removed"'

_DECODER: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)
_ENCODER = msgspec.json.Encoder()


class _Type(Struct, frozen=True):
    type: str


_TYPE = msgspec.json.Decoder(_Type)
_KINDS: Mapping[object, type[Struct]] = {kind.__struct_config__.tag: kind for kind in get_args(Event)}


def decode(body: bytes) -> Event:
    """Decode an event. Payloads are views into `body`: copy what outlives the message (`Raw.copy`).

    Raises Malformed for an unknown type, wrong fields or broken JSON, NeedsUpgrade for an event of a newer version.
    """
    try:
        if not body.isascii():
            body.decode()  # the decoder does not check payloads, and a snapshot must be UTF-8
        try:
            event = _DECODER.decode(body)
        except msgspec.ValidationError:
            event = _without_nulls(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        formats.check(body)
        raise Malformed(str(error)) from error
    if event.v != 1:
        formats.check_number(event.v)
    return event


def _without_nulls(body: bytes) -> Event:
    """Decode again without nulls. Few writers send nulls, so they are removed only after the first decoding failed."""
    kind = _KINDS.get(_TYPE.decode(body).type)
    return _DECODER.decode(body if kind is None else without_nulls(body, kind))


def encode(event: Event) -> bytes:
    """The event as one JSON object."""
    return _ENCODER.encode(event)


def event_type(event: Event | StepEvent) -> str:
    """The wire name, for example `step.completed`."""
    tag = event.__struct_config__.tag
    assert isinstance(tag, str)
    return tag
