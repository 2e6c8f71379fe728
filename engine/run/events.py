"""The events of a run's history: past facts, as they stand on the wire.

One JSON object an event: `{type, run_id, step_id?, timestamp, payload?, worker_id?, attempt_number?, iteration?,
trace_parent?, v?}`; `type` picks the class. Fields that are unknown are ignored, so that newer writers do not stop
older readers; where that would mislead them, `v` says which version they must know at least (formats.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, get_args

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from penstock.engine import formats
from penstock.engine.definition.nulls import without_nulls

NULL = Raw(b"null")


class TriggerRef(Struct, frozen=True, omit_defaults=True):
    """What started the run: the trigger's name and kind, and the instant of the occurrence (RFC 3339).

    `headers` are those that a webhook's sender defines beside its signature, names in lower case: `x-github-event`,
    `webhook-id`, ….
    """

    name: str
    kind: str
    at: str = ""
    headers: dict[str, str] = {}


class Started(Struct, frozen=True, omit_defaults=True):
    """`digest` names the very definition that the run keeps; an absent input is null."""

    workflow: str
    version: str
    digest: str
    input: Raw = NULL
    trigger: TriggerRef | None = None
    rerun_of: str | None = None
    parent: str | None = None


class Scheduled(Struct, frozen=True, omit_defaults=True):
    workflow: str
    version: str
    digest: str
    run_at: str
    input: Raw = NULL


class Failure(Struct, frozen=True, omit_defaults=True):
    """`failure_type` is retriable (also for any unknown word), non_retriable or retry_after. `traceback` has the last
    frames."""

    error: str = ""
    failure_type: str = "retriable"
    retry_after_ms: int = 0
    traceback: str = ""


class ApprovalRequest(Struct, frozen=True, omit_defaults=True):
    token: str
    expires_at: str
    subject: str | None = None
    description: str | None = None
    metadata: dict[str, str] | None = None


class Decision(Struct, frozen=True, omit_defaults=True):
    comment: str | None = None
    approved_by: str | None = None


class TimerRef(Struct, frozen=True, omit_defaults=True):
    """`timer` is `workflow` or `<kind>.<step_id>`, in later iterations of a loop with `~<iteration>` behind it, then
    after pauses with `+<pauses>`.

    The kinds: timeout, retry (also a loop's delay), loop (its longest duration), approval (expiry), sticky (end of the
    wait for the bound worker), lost (that worker had begun, and is gone; nobody sets it). `attempt` is the one that it
    was set for; for workflow and loop, the number of resumptions.
    """

    timer: str
    step_id: str | None = None
    attempt: int | None = None


class PauseRef(Struct, frozen=True, omit_defaults=True):
    """For how long the worker asked to be left alone, and its label: for people. The task is begun again when that is
    told."""

    duration_ms: int = 0
    name: str | None = None


class SignalRef(Struct, frozen=True, omit_defaults=True):
    name: str
    size: int = 0


class Reason(Struct, frozen=True, omit_defaults=True):
    reason: str | None = None


class Resumed(Struct, frozen=True, omit_defaults=True):
    """`letters` is the newest dead letter's sequence of that moment: those of the steps up to there are done with,
    later ones are not."""

    steps: tuple[str, ...] = ()
    letters: int = 0


class Completed(Struct, frozen=True, omit_defaults=True):
    """`resumes` is how often the run had been resumed: an end from before does not end it again.

    Of an output over the limit of a payload there is only its size: it is that of the terminal steps, in their own
    events.
    """

    output: Raw = NULL
    resumes: int = 0
    output_bytes: int = 0


class RunFailure(Struct, frozen=True, omit_defaults=True):
    error: str = ""
    step_id: str | None = None
    resumes: int = 0


class _Event(Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="type"):
    run_id: str
    timestamp: str = ""
    trace_parent: str | None = None
    v: int = 1


class _StepEvent(_Event, frozen=True, omit_defaults=True, kw_only=True):
    """`attempt_number` None means the current attempt; `iteration` None means the current iteration."""

    step_id: str
    worker_id: str | None = None
    attempt_number: int | None = None
    iteration: int | None = None


class WorkflowScheduled(_Event, frozen=True, omit_defaults=True, kw_only=True, tag="workflow.scheduled"):
    payload: Scheduled


class WorkflowStarted(_Event, frozen=True, omit_defaults=True, kw_only=True, tag="workflow.started"):
    payload: Started


class WorkflowCancelled(_Event, frozen=True, omit_defaults=True, kw_only=True, tag="workflow.cancelled"):
    payload: Reason = Reason()


class WorkflowResumed(_Event, frozen=True, omit_defaults=True, kw_only=True, tag="workflow.resumed"):
    payload: Resumed = Resumed()


class WorkflowCompleted(_Event, frozen=True, omit_defaults=True, kw_only=True, tag="workflow.completed"):
    payload: Completed = Completed()


class WorkflowFailed(_Event, frozen=True, omit_defaults=True, kw_only=True, tag="workflow.failed"):
    payload: RunFailure = RunFailure()


class _DeliveryEvent(_StepEvent, frozen=True, omit_defaults=True, kw_only=True):
    """`delivery` counts how often the task of this attempt was delivered."""

    delivery: int = 1


class StepStarted(_DeliveryEvent, frozen=True, omit_defaults=True, kw_only=True, tag="step.started"):
    """No payload."""


class StepPaused(_DeliveryEvent, frozen=True, omit_defaults=True, kw_only=True, tag="step.paused"):
    """From here to the `step.started` of a later delivery, the step's timeout stands still."""

    payload: PauseRef = PauseRef()


class StepCompleted(_StepEvent, frozen=True, omit_defaults=True, kw_only=True, tag="step.completed"):
    payload: Raw | UnsetType = UNSET


class StepFailed(_StepEvent, frozen=True, omit_defaults=True, kw_only=True, tag="step.failed"):
    payload: Failure = Failure()


class StepContinue(_StepEvent, frozen=True, omit_defaults=True, kw_only=True, tag="step.continue"):
    payload: Raw | UnsetType = UNSET


class StepSkipped(_StepEvent, frozen=True, omit_defaults=True, kw_only=True, tag="step.skipped"):
    """No payload."""


class ApprovalRequested(_StepEvent, frozen=True, omit_defaults=True, kw_only=True, tag="approval.requested"):
    payload: ApprovalRequest


class ApprovalGranted(_StepEvent, frozen=True, omit_defaults=True, kw_only=True, tag="approval.granted"):
    payload: Decision = Decision()


class ApprovalRejected(_StepEvent, frozen=True, omit_defaults=True, kw_only=True, tag="approval.rejected"):
    payload: Decision = Decision()


class ApprovalExpired(_StepEvent, frozen=True, omit_defaults=True, kw_only=True, tag="approval.expired"):
    payload: TimerRef | None = None


class TimerFired(_Event, frozen=True, omit_defaults=True, kw_only=True, tag="timer.fired"):
    payload: TimerRef


class SignalReceived(_Event, frozen=True, omit_defaults=True, kw_only=True, tag="signal.received"):
    payload: SignalRef


Event: TypeAlias = (
    WorkflowScheduled
    | WorkflowStarted
    | WorkflowCancelled
    | WorkflowResumed
    | WorkflowCompleted
    | WorkflowFailed
    | StepStarted
    | StepPaused
    | StepCompleted
    | StepFailed
    | StepContinue
    | StepSkipped
    | ApprovalRequested
    | ApprovalGranted
    | ApprovalRejected
    | ApprovalExpired
    | TimerFired
    | SignalReceived
)


class Record(Struct, frozen=True):
    """An event as the log holds it: `seq` is its stream sequence, `at` the broker's time of storing it, in s since the
    epoch."""

    seq: int
    at: float
    event: Event


class Malformed(Exception):
    """The bytes are no event that this version knows; the text says why."""


# Beginnings of events that neither begin nor end a run, in the form in which this service writes them.
IN_BETWEEN = tuple(b'{"type":"%b.' % family for family in (b"step", b"signal", b"timer", b"approval"))

_DECODER: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)
_ENCODER = msgspec.json.Encoder()


class _Type(Struct, frozen=True):
    type: str


_TYPE = msgspec.json.Decoder(_Type)
_KINDS: Mapping[object, type[Struct]] = {kind.__struct_config__.tag: kind for kind in get_args(Event)}


def decode(body: bytes) -> Event:
    """The event in `body`; raises Malformed for an unknown type, wrong fields or broken JSON, NeedsUpgrade for one of a
    newer version.

    Payloads are views into `body`: what outlives the message must be copied (`Raw.copy`).
    """
    try:
        if not body.isascii():
            body.decode()  # the decoder passes payloads by unread, and a snapshot must stay UTF-8
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
    """For what cannot be read as it is: hardly any writer sends nulls, so they are only looked for here."""
    kind = _KINDS.get(_TYPE.decode(body).type)
    return _DECODER.decode(body if kind is None else without_nulls(body, kind))


def encode(event: Event) -> bytes:
    """The event as one JSON object."""
    return _ENCODER.encode(event)


def event_type(event: Event) -> str:
    """The wire name, for example `step.completed`."""
    tag = event.__struct_config__.tag
    assert isinstance(tag, str)
    return tag
