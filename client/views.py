"""What the HTTP API shows of runs, events and workers, as its client reads it. Unknown fields are ignored."""

from __future__ import annotations

from msgspec import UNSET, Raw, Struct, UnsetType

from penstock.engine.run.state import RUN_ENDED
from penstock.engine.trigger.trigger import CronSource, EventSource, SubjectSource


class StepView(Struct, frozen=True, kw_only=True):
    """A step's state as the service shows it; what is absent there is UNSET here.

    Where there is `output_bytes`, the output is so large that it has to be asked for on its own.
    """

    status: str
    attempts: int
    output: Raw | UnsetType = UNSET
    output_bytes: int | UnsetType = UNSET
    error: str | UnsetType = UNSET
    iteration: int | UnsetType = UNSET
    started_at: str | UnsetType = UNSET
    finished_at: str | UnsetType = UNSET
    worker_id: str | UnsetType = UNSET
    traceback: str | UnsetType = UNSET


class RunView(Struct, frozen=True, kw_only=True):
    """A run snapshot. Spec: Run snapshot; Protocol: Status. `input_bytes` as `output_bytes` of a step."""

    run_id: str
    workflow_id: str
    status: str
    created_at: str
    steps: dict[str, StepView]
    version: str | UnsetType = UNSET
    input: Raw | UnsetType = UNSET
    input_bytes: int | UnsetType = UNSET
    output: Raw | UnsetType = UNSET
    error: str | UnsetType = UNSET
    started_at: str | UnsetType = UNSET
    finished_at: str | UnsetType = UNSET
    run_at: str | UnsetType = UNSET
    parent: str | UnsetType = UNSET
    rerun_of: str | UnsetType = UNSET
    trigger: Raw | UnsetType = UNSET

    @property
    def ended(self) -> bool:
        return self.status in RUN_ENDED


class EventView(Struct, frozen=True, kw_only=True):
    """One event of a run's history; `seq` is its stream sequence. `delivery` is there from a task's second delivery
    on."""

    seq: int
    type: str
    run_id: str
    timestamp: str | UnsetType = UNSET
    step_id: str | UnsetType = UNSET
    payload: Raw | UnsetType = UNSET
    worker_id: str | UnsetType = UNSET
    attempt_number: int | UnsetType = UNSET
    iteration: int | UnsetType = UNSET
    delivery: int | UnsetType = UNSET
    trace_parent: str | UnsetType = UNSET


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


class TaskQueueView(Struct, frozen=True, kw_only=True):
    """Tasks of one type (and group): waiting for a worker, and with one."""

    task: str
    waiting: int
    in_hand: int
    workers: int
    worker_group: str | UnsetType = UNSET
    oldest_at: str | UnsetType = UNSET


class ApprovalView(Struct, frozen=True, kw_only=True):
    """A step that waits for a decision."""

    run_id: str
    workflow_id: str
    step_id: str
    requested_at: str
    expires_at: str
    description: str | UnsetType = UNSET
    subject: str | UnsetType = UNSET
    metadata: dict[str, str] | UnsetType = UNSET


class WebhookView(Struct, frozen=True, omit_defaults=True):
    """`secret`: whether the trigger has one of its own."""

    secret: bool = False


class TriggerView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A trigger. Protocol: Webhooks and triggers. Exactly one of `cron`, `subject`, `event` and `webhook` is there."""

    name: str
    workflow: str
    enabled: bool
    created_at: str
    input: Raw | UnsetType = UNSET
    cron: CronSource | None = None
    subject: SubjectSource | None = None
    event: EventSource | None = None
    webhook: WebhookView | None = None
    next_at: str | None = None


class TrialView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a trigger would do; `problems` say why it would start nothing."""

    would_start: bool
    workflow: str
    version: str | None = None
    input: Raw | UnsetType = UNSET
    problems: list[str] = []
    next: list[str] = []


class Registered(Struct, frozen=True):
    status: str
    name: str


class DecidedApproval(Struct, frozen=True):
    """`status` is approved or rejected."""

    status: str
    run_id: str
    step: str


class StartedRun(Struct, frozen=True):
    """`status` is there for a scheduled run only."""

    run_id: str
    status: str | UnsetType = UNSET


class StartedRuns(Struct, frozen=True):
    run_ids: list[str]
    total: int


class CancelledRun(Struct, frozen=True):
    status: str
    run_id: str


class ScheduledRun(Struct, frozen=True):
    """A run that waits for its time."""

    run_id: str
    workflow_id: str
    status: str
    run_at: str
    created_at: str
    input: Raw | UnsetType = UNSET


class Status(Struct, frozen=True):
    """What became of what was asked, where nothing else is to tell."""

    status: str


class SentSignal(Struct, frozen=True):
    status: str
    run_id: str
    signal: str


class SkippedRun(Struct, frozen=True):
    run_id: str
    reason: str


class CancelledRuns(Struct, frozen=True):
    cancelled: list[str]
    skipped: list[SkippedRun]
    total: int
    dry_run: bool
    next: str | UnsetType = UNSET
    remaining: int | UnsetType = UNSET


class RetriedRun(Struct, frozen=True):
    """`new_run_id` is there when a new run was started."""

    original_run_id: str
    new_run_id: str | UnsetType = UNSET


class RetriedRuns(Struct, frozen=True):
    retried: list[RetriedRun]
    skipped: list[SkippedRun]
    total: int
    dry_run: bool
    next: str | UnsetType = UNSET
    remaining: int | UnsetType = UNSET


class LetterView(Struct, frozen=True, kw_only=True):
    """A dead letter; which fields are there depends on its kind, and payloads only when it is looked at alone."""

    seq: int
    kind: str
    at: str
    error: str
    subject: str | UnsetType = UNSET
    run_id: str | UnsetType = UNSET
    step_id: str | UnsetType = UNSET
    task: str | UnsetType = UNSET
    attempts: int | UnsetType = UNSET
    trigger: str | UnsetType = UNSET
    payload: Raw | UnsetType = UNSET
    payload_base64: str | UnsetType = UNSET


class ReplayedLetter(Struct, frozen=True):
    status: str
    run_id: str


class DiscardedLetter(Struct, frozen=True):
    status: str
    seq: int
