"""The bodies of the HTTP API's responses: http/ encodes these structs, and the client decodes them.

Times are RFC 3339 in UTC. Fields that are absent in a response are None or UNSET here; unknown fields are ignored.
"""

from __future__ import annotations

from msgspec import UNSET, Raw, Struct, UnsetType

from penstock.engine.run.event_payloads import Correlation, TriggerRef
from penstock.engine.run.state import RUN_ENDED, RunStatus
from penstock.engine.trigger.batching import Batch, Debounce
from penstock.engine.trigger.routes import HttpSource
from penstock.engine.trigger.trigger import CronSource, EventSource, SubjectSource


class ItemCounts(Struct, frozen=True):
    """How many elements a map has, and how far they are. What waits for `max_concurrency` is queued."""

    total: int
    queued: int
    running: int
    completed: int
    failed: int
    cancelled: int


class ParentView(Struct, frozen=True):
    """The run that has started this one as its child, and the step of it."""

    run_id: str
    step_id: str


class WaitView(Struct, frozen=True, omit_defaults=True):
    """The event that a step waits for, and the field and value by which it knows it."""

    event: str
    correlate: Correlation | UnsetType = UNSET


class MapItemView(Struct, frozen=True, omit_defaults=True):
    """An element of a map. What waits for `max_concurrency` is queued. `output_bytes` replaces an output over 4 KiB."""

    item: int
    status: str
    attempts: int = 0
    child_run_id: str | None = None
    worker_id: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    output: Raw | UnsetType = UNSET
    output_bytes: int | UnsetType = UNSET
    error: str | None = None


class ProgressView(Struct, frozen=True, omit_defaults=True):
    """How much of a step is done, in its worker's unit; without `total` it is not known how much there is."""

    done: float
    total: float | None = None
    text: str = ""


class StepView(Struct, frozen=True, omit_defaults=True):
    """`attempts` counts those that were begun. `output_bytes` replaces an output that is too large for this response.
    `wake_at` is when a sleep ends, `items` counts the elements of a map, `child_run_id` is the run that a sub_workflow
    has started last. `handles` is the step from whose failure this one follows, or that it undoes. `waits_for` is there
    while the step waits, `progress` while its worker reports it. `overridden`: completed by hand."""

    status: str
    attempts: int
    output: Raw | UnsetType = UNSET
    error: str | None = None
    iteration: int = 0
    started_at: str | None = None
    finished_at: str | None = None
    worker_id: str | None = None
    output_bytes: int | UnsetType = UNSET
    traceback: str | None = None
    wake_at: str | None = None
    items: ItemCounts | UnsetType = UNSET
    child_run_id: str | None = None
    handles: str | None = None
    waits_for: WaitView | UnsetType = UNSET
    progress: ProgressView | UnsetType = UNSET
    overridden: bool = False


class RunView(Struct, frozen=True, omit_defaults=True):
    """Fields with default values are left out of the response. The input is null when the run has none; `input_bytes`
    replaces one that is too large. `failure_of` is the run whose failure has started this one. `compensation` says of a
    run that has undone its steps whether that worked for all of them: completed or failed. `rerun_of` is the run that
    this one repeats, from the step `rerun_from` on. A run with
    `paused_at` is paused since then: nothing new begins until it is resumed. An `imported` run is a record of what
    happened elsewhere, and never changes."""

    run_id: str
    workflow_id: str
    version: str
    status: str
    created_at: str
    steps: dict[str, StepView]
    input: Raw | UnsetType = UNSET
    error: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    run_at: str | None = None
    parent: ParentView | str | None = None
    rerun_of: str | None = None
    trigger: TriggerRef | None = None
    input_bytes: int | UnsetType = UNSET
    failure_of: str | None = None
    compensation: str | None = None
    labels: dict[str, str] | None = None
    rerun_from: str | None = None
    paused_at: str | None = None
    imported: bool = False

    @property
    def ended(self) -> bool:
        """Whether the run has completed, failed or was cancelled."""
        return self.status in RUN_ENDED


class StatsBucket(Struct, frozen=True):
    """Numbers of runs by status, of those that were created from `at` (RFC 3339) on."""

    at: str
    counts: dict[str, int]


class DurationsView(Struct, frozen=True):
    """Of `runs` completed runs, from start to end: half of them took at most `p50_ms`, 99 of 100 at most `p99_ms`."""

    runs: int
    p50_ms: float
    p99_ms: float


class StatsGroup(Struct, frozen=True, omit_defaults=True):
    """The numbers of one workflow or trigger; its newest run was created at `newest_at`."""

    name: str
    total: int
    newest_at: str
    buckets: list[StatsBucket]
    durations: DurationsView | None = None


class RunStats(Struct, frozen=True, omit_defaults=True):
    """Numbers of runs by status and time, the oldest first; buckets without runs are left out. `groups` and `durations`
    are there if they were asked for; `complete` if there was a limit of time. Where that has cut the answer, it is
    false, and all runs that were created from `since` (RFC 3339) on were counted."""

    total: int
    buckets: list[StatsBucket]
    durations: DurationsView | None = None
    groups: list[StatsGroup] | None = None
    complete: bool | None = None
    since: str | None = None


class EventView(Struct, frozen=True, kw_only=True):
    """One event of a run's history; `seq` is its stream sequence. `item` is the number of a map's element; `delivery`
    is present from a task's second delivery on. `started_at` is when the worker began, in an answer that stands for its
    `step.started`, too. `payload_bytes` replaces a payload over `payload_max`."""

    seq: int
    type: str
    run_id: str
    timestamp: str | UnsetType = UNSET
    step_id: str | UnsetType = UNSET
    payload: Raw | UnsetType = UNSET
    worker_id: str | UnsetType = UNSET
    attempt_number: int | UnsetType = UNSET
    iteration: int | UnsetType = UNSET
    item: int | UnsetType = UNSET
    delivery: int | UnsetType = UNSET
    started_at: str | UnsetType = UNSET
    trace_parent: str | UnsetType = UNSET
    payload_bytes: int | UnsetType = UNSET


class LogLineView(Struct, frozen=True, omit_defaults=True):
    """One log line of a step. `seq` grows from line to line; `level` is debug, info, warning, error or critical;
    `delivery` is there from a task's second delivery on."""

    seq: int
    at: str
    level: str
    text: str
    step_id: str
    attempt: int
    worker_id: str | None = None
    fields: Raw | UnsetType = UNSET
    delivery: int = 1


class ChunkView(Struct, frozen=True):
    """One chunk that a step has streamed, at the place `seq`; without `data`, so many were `dropped`."""

    seq: int
    step_id: str
    attempt: int
    data: Raw | UnsetType = UNSET
    dropped: int = 0
    delivery: int = 1


class CheckpointView(Struct, frozen=True, omit_defaults=True):
    """What the worker of a step has kept. `checkpoint` is left out where only the size was wanted, and of what is no
    JSON."""

    at: str
    checkpoint_bytes: int
    checkpoint: Raw | UnsetType = UNSET


class WorkerView(Struct, frozen=True, kw_only=True):
    """A worker's registration. Spec: WorkerRegistration; Protocol: Buckets."""

    worker_id: str
    task_types: list[str]
    max_tasks: int = 1
    language: str | UnsetType = UNSET
    transport: str | UnsetType = UNSET
    metadata: dict[str, str] | UnsetType = UNSET
    hostname: str | UnsetType = UNSET
    pid: int | UnsetType = UNSET
    version: str | UnsetType = UNSET
    worker_group: str | UnsetType = UNSET
    last_seen: str | UnsetType = UNSET


class TaskQueueView(Struct, frozen=True, omit_defaults=True):
    """`waiting` tasks are with no worker, `in_hand` ones are with a worker; `oldest_at` is when the oldest of both was
    queued. `workers` are registered for the type and group: with none, waiting tasks continue to wait."""

    task: str
    waiting: int
    in_hand: int
    workers: int
    worker_group: str | None = None
    oldest_at: str | None = None


class ApprovalView(Struct, frozen=True, omit_defaults=True):
    """A step that waits for its decision, with what its definition says about it."""

    run_id: str
    workflow_id: str
    step_id: str
    requested_at: str
    expires_at: str
    description: str | None = None
    subject: str | None = None
    metadata: dict[str, str] | None = None


class WebhookView(Struct, frozen=True, omit_defaults=True):
    """`secret` is true when the trigger has a secret of its own; a document with true keeps it."""

    secret: bool = False


class OpenBatchesView(Struct, frozen=True):
    """What a trigger with debounce or batch has taken up and not started a run with yet: so many events (of a debounce
    the last one of each key) in so many batches. The oldest batch began at `since`; it starts its run at `due_at`
    unless another event changes that. Times are RFC 3339."""

    batches: int
    events: int
    since: str
    due_at: str


class TriggerView(Struct, frozen=True, omit_defaults=True):
    """A trigger, also as a document for PUT. `next_at` is the next instant of a cron trigger. `open_batches` is only in
    the answer for one trigger, while there are any."""

    name: str
    workflow: str
    enabled: bool
    created_at: str
    input: Raw | UnsetType = UNSET
    cron: CronSource | None = None
    subject: SubjectSource | None = None
    event: EventSource | None = None
    webhook: WebhookView | None = None
    http: HttpSource | None = None
    next_at: str | None = None
    labels: dict[str, str] | None = None
    debounce: Debounce | None = None
    batch: Batch | None = None
    open_batches: OpenBatchesView | None = None


class TrialView(Struct, frozen=True, omit_defaults=True):
    """What a trigger event would start. `problems` are the reasons why nothing would start; `next` are the next
    instants of a cron trigger, `when` says when the run of a trigger with debounce or batch would start, and `key`
    which events it has."""

    would_start: bool
    workflow: str
    version: str | None = None
    input: Raw | UnsetType = UNSET
    problems: list[str] = []
    next: list[str] = []
    labels: dict[str, str] | None = None
    when: str | None = None
    key: str | None = None


class SentEvent(Struct, frozen=True):
    """`seq` is its sequence among all events."""

    seq: int


class Deleted(Struct, frozen=True):
    name: str
    status: str = "deleted"


class Registered(Struct, frozen=True):
    """`warnings` are about what may be as it should be: the definition is registered."""

    name: str
    status: str = "registered"
    warnings: list[str] | UnsetType = UNSET


class WorkflowSummary(Struct, frozen=True, omit_defaults=True):
    """A definition in short: the beginning of its description, the number of its steps, how many of its task types no
    worker serves now, and the first of these by name."""

    name: str
    version: str
    steps: int
    description: str | None = None
    unserved: int = 0
    unserved_task: str | None = None


class VersionView(Struct, frozen=True):
    """`digest` names the definition; `registered_at` is when it last became the latest one."""

    version: str
    digest: str
    registered_at: str


class DecidedApproval(Struct, frozen=True):
    """`status` is approved or rejected."""

    status: str
    run_id: str
    step: str


class StartedRun(Struct, frozen=True, omit_defaults=True):
    """`status` is scheduled, or absent for a run that has started. `warnings` are about task types that no worker
    serves now: the run waits there."""

    run_id: str
    status: str | None = None
    warnings: list[str] | UnsetType = UNSET


class FiredRun(Struct, frozen=True):
    run_id: str


OUTCOME = "Penstock-Outcome"  # the header that says where the answer to a call comes from


class CalledRun(Struct, frozen=True):
    """A run that gave no answer within the time; it goes on."""

    run_id: str


class BulkStarted(Struct, frozen=True):
    """`run_ids` stand in the order of the inputs."""

    run_ids: list[str]
    total: int


class CancelledRun(Struct, frozen=True):
    """`status` is compensating while the run undoes its steps first."""

    run_id: str
    status: str = RunStatus.CANCELLED


class ScheduledRun(Struct, frozen=True):
    run_id: str
    workflow_id: str
    status: str
    run_at: str
    created_at: str
    input: Raw


class Unscheduled(Struct, frozen=True):
    status: str = RunStatus.CANCELLED


class Sent(Struct, frozen=True):
    run_id: str
    signal: str
    status: str = "sent"


class SkippedRun(Struct, frozen=True):
    run_id: str
    reason: str


class BulkCancelled(Struct, frozen=True):
    """`total` runs matched; each is in one of the lists; those that undo their steps first are in `cancelled`. With a
    limit, more may have matched: `remaining` so many, from
    `next` on."""

    cancelled: list[str]
    skipped: list[SkippedRun]
    total: int
    dry_run: bool
    next: str | UnsetType = UNSET
    remaining: int | UnsetType = UNSET


class DeadLetterView(Struct, frozen=True, omit_defaults=True):
    """`kind` is task, history or trigger. A single one has `payload`, or `payload_base64` when that is not JSON;
    `payload_bytes` replaces one over `payload_max`."""

    seq: int
    kind: str
    at: str
    error: str
    subject: str | None = None
    run_id: str | None = None
    step_id: str | None = None
    task: str | None = None
    attempts: int | None = None
    trigger: str | None = None
    payload: Raw | UnsetType = UNSET
    payload_base64: str | None = None
    payload_bytes: int | UnsetType = UNSET


class Replayed(Struct, frozen=True):
    run_id: str
    status: str = RunStatus.RUNNING


class Discarded(Struct, frozen=True):
    seq: int
    status: str = "discarded"
