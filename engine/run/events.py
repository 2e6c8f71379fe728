"""The events of a run's history: past facts, in their stored form.

Each event is one JSON object: `{type, run_id, step_id?, timestamp, payload?, worker_id?, attempt_number?, iteration?,
trace_parent?, v?}`; `type` selects the class. Unknown fields are ignored, so that older readers accept events of newer
writers. Where that would mislead older readers, `v` is the lowest version that they must support (formats.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, get_args

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from penstock.engine import formats
from penstock.engine.definition.nulls import without_nulls

NULL = Raw(b"null")


class TriggerRef(Struct, frozen=True, omit_defaults=True):
    """What started the run: name and kind of the trigger, and the time of the trigger event (RFC 3339).

    `headers` are the headers that the dialect of a webhook defines beside its signature, with names in lower case:
    `x-github-event`, `webhook-id`, …
    """

    name: str
    kind: str
    at: str = ""
    headers: dict[str, str] = {}


class ParentRef(Struct, frozen=True, omit_defaults=True):
    """The step that started the run as its child, and the attempt of it; `item` is the number of a map's element.

    `depth` counts the runs in the chain from the first one to the parent. A detached child's end is not reported.
    """

    run_id: str
    step_id: str
    attempt: int = 1
    item: int | None = None
    depth: int = 1
    detached: bool = False


def parent_run_id(parent: ParentRef | str | None) -> str | None:
    """The id of the run that has started this one; None for a run without a parent."""
    return parent.run_id if isinstance(parent, ParentRef) else parent


class Started(Struct, frozen=True, omit_defaults=True):
    """`digest` identifies the definition that the run uses until its end; an absent input is null.

    `parent` is text in events that other tools wrote. `failure_of` is the run whose failure has started this one.
    """

    workflow: str
    version: str
    digest: str
    input: Raw = NULL
    trigger: TriggerRef | None = None
    rerun_of: str | None = None
    parent: ParentRef | str | None = None
    failure_of: str | None = None


class Scheduled(Struct, frozen=True, omit_defaults=True):
    workflow: str
    version: str
    digest: str
    run_at: str
    input: Raw = NULL


class Failure(Struct, frozen=True, omit_defaults=True):
    """`failure_type` is retriable (also for any unknown value), non_retriable or retry_after. `traceback` has the last
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
    """`timer` is `workflow` or `<kind>.<step_id>`; then `~<iteration>` in later iterations of a loop, then `+<pauses>`
    after pauses.

    The kinds: timeout, retry (also a loop's delay), loop (its maximum duration), approval (expiry), sticky (end of the
    wait for the bound worker), lost (that worker began the task and has left; maintenance appends it). `attempt` is the
    attempt that the timer was set for; for workflow and loop, the number of resumptions.
    """

    timer: str
    step_id: str | None = None
    attempt: int | None = None


class Reply(Struct, frozen=True, omit_defaults=True):
    """What a step answers to the caller of its run; an absent body is null."""

    status: int = 200
    headers: dict[str, str] = {}
    body: Raw = NULL


class Correlation(Struct, frozen=True):
    """`value` is what an event has at the dot path `field` of its body."""

    field: str
    value: Raw


class EventWait(Struct, frozen=True, omit_defaults=True):
    """What a step waits for: an event of this name, stored from `since` to `until` (s since the epoch, broker time;
    None: for ever). Those with the sequences `passed` have completed steps before it."""

    event: str
    since: float
    until: float | None = None
    correlate: Correlation | None = None
    passed: tuple[int, ...] = ()


class StepFacts(Struct, frozen=True, omit_defaults=True):
    """What the engine has worked out for a step that no worker begins.

    `wake_at` (RFC 3339): when a sleep ends. `items`: how many elements a map has. `child_run_id`: the run that this
    attempt has started. `reply`: the response of a step that responds, which completes it. `event`, `correlate`: what a
    step waits for; events count that are stored from `since` to `until` (RFC 3339; without one, for ever).
    """

    wake_at: str | None = None
    items: int | None = None
    child_run_id: str | None = None
    reply: Reply | None = None
    event: str | None = None
    correlate: Correlation | None = None
    since: str | None = None
    until: str | None = None


class ChildEnd(Struct, frozen=True, omit_defaults=True):
    """How the child `run_id` has ended: `status` is that of the run. `output_bytes` replaces an output that is too
    large for an event."""

    run_id: str
    status: str
    output: Raw | UnsetType = UNSET
    output_bytes: int = 0
    error: str | None = None


class ReceivedEvent(Struct, frozen=True, omit_defaults=True):
    """An event that a step has waited for: its name, its sequence in the stream of events, its body."""

    event: str
    seq: int
    body: Raw = NULL


class PauseRef(Struct, frozen=True, omit_defaults=True):
    """How long the worker asked the broker to hold the task back, and a label: both are only shown to people. The pause
    ends with the `step.started` of the next delivery."""

    duration_ms: int = 0
    name: str | None = None


class SignalRef(Struct, frozen=True, omit_defaults=True):
    name: str
    size: int = 0


class Cancellation(Struct, frozen=True, omit_defaults=True):
    """`compensate`: the run undoes its steps before it ends. When it has, the engine appends a second cancellation, and
    `compensation`, completed or failed, says whether all of them were undone."""

    reason: str | None = None
    compensate: bool = False
    compensation: str | None = None


class Compensating(Struct, frozen=True, omit_defaults=True):
    """`error` is why the run fails; without one it is cancelled. `steps` are those that are undone, the first one
    first, as far as they are known; a map stands for its elements."""

    error: str | None = None
    steps: tuple[str, ...] = ()


class Resumed(Struct, frozen=True, omit_defaults=True):
    """`dead_letters` is the sequence of the newest dead letter at that moment: those of the steps up to there are
    removed, later ones are not. Its stored name is `letters`."""

    steps: tuple[str, ...] = ()
    dead_letters: int = field(name="letters", default=0)


class Completed(Struct, frozen=True, omit_defaults=True):
    """`resumes` is the number of resumptions so far: an end from before a resumption is ignored.

    `size` replaces an output over the limit of a payload: such an output is that of the terminal steps, in their own
    events.
    """

    output: Raw = NULL
    resumes: int = 0
    output_bytes: int = 0


class RunFailure(Struct, frozen=True, omit_defaults=True):
    """`compensation`, completed or failed: the run has undone its steps, or not all of them."""

    error: str = ""
    step_id: str | None = None
    resumes: int = 0
    compensation: str | None = None


class _Event(Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="type"):
    run_id: str
    timestamp: str = ""
    trace_parent: str | None = None
    v: int = 1


class _StepEvent(_Event, frozen=True, omit_defaults=True, kw_only=True):
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
    """A payload only from the engine, for a step without a worker."""

    payload: StepFacts | None = None


class StepPaused(_DeliveryEvent, frozen=True, omit_defaults=True, kw_only=True, tag="step.paused"):
    """From here to the `step.started` of a later delivery, the step's timeout does not run."""

    payload: PauseRef = PauseRef()


class StepCompleted(_StepEvent, frozen=True, omit_defaults=True, kw_only=True, tag="step.completed"):
    payload: Raw | UnsetType = UNSET


class StepFailed(_StepEvent, frozen=True, omit_defaults=True, kw_only=True, tag="step.failed"):
    payload: Failure = Failure()


class StepContinue(_StepEvent, frozen=True, omit_defaults=True, kw_only=True, tag="step.continue"):
    payload: Raw | UnsetType = UNSET


class StepSkipped(_StepEvent, frozen=True, omit_defaults=True, kw_only=True, tag="step.skipped"):
    """No payload."""


class Fragment(Struct, frozen=True):
    """The valid steps of a planner's plan, as definitions have them, with the ids that the plan gave them."""

    steps: Raw = Raw(b"[]")


class PlannerExpanded(_StepEvent, frozen=True, omit_defaults=True, kw_only=True, tag="planner.expanded"):
    """Only from the engine: the plan that a planner's worker returned is valid, and its steps are now part of the
    run."""

    payload: Fragment = Fragment()


class ApprovalRequested(_StepEvent, frozen=True, omit_defaults=True, kw_only=True, tag="approval.requested"):
    payload: ApprovalRequest


class ApprovalGranted(_StepEvent, frozen=True, omit_defaults=True, kw_only=True, tag="approval.granted"):
    payload: Decision = Decision()


class ApprovalRejected(_StepEvent, frozen=True, omit_defaults=True, kw_only=True, tag="approval.rejected"):
    payload: Decision = Decision()


class ApprovalExpired(_StepEvent, frozen=True, omit_defaults=True, kw_only=True, tag="approval.expired"):
    payload: TimerRef | None = None


class ChildEnded(_StepEvent, frozen=True, omit_defaults=True, kw_only=True, tag="child.ended"):
    """A child run of the step has ended, and with it this attempt: no `step.completed` follows."""

    payload: ChildEnd


class EventReceived(_StepEvent, frozen=True, omit_defaults=True, kw_only=True, tag="event.received"):
    """From the engine only. It ends the step that waited for the event."""

    payload: ReceivedEvent


class TimerFired(_Event, frozen=True, omit_defaults=True, kw_only=True, tag="timer.fired"):
    payload: TimerRef


class SignalReceived(_Event, frozen=True, omit_defaults=True, kw_only=True, tag="signal.received"):
    payload: SignalRef


Event: TypeAlias = (
    WorkflowScheduled
    | WorkflowStarted
    | WorkflowCancelled
    | WorkflowCompensating
    | WorkflowResumed
    | WorkflowCompleted
    | WorkflowFailed
    | StepStarted
    | StepPaused
    | StepCompleted
    | StepFailed
    | StepContinue
    | StepSkipped
    | PlannerExpanded
    | ApprovalRequested
    | ApprovalGranted
    | ApprovalRejected
    | ApprovalExpired
    | ChildEnded
    | EventReceived
    | TimerFired
    | SignalReceived
)


class Record(Struct, frozen=True):
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


def event_type(event: Event) -> str:
    """The wire name, for example `step.completed`."""
    tag = event.__struct_config__.tag
    assert isinstance(tag, str)
    return tag
