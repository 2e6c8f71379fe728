"""What the HTTP API shows of runs, events and workers, as its client reads it. Unknown fields are ignored."""

from __future__ import annotations

from msgspec import UNSET, Raw, Struct, UnsetType

from penstock.engine.state import RUN_ENDED


class StepView(Struct, frozen=True, kw_only=True):
    """A step's state as the service shows it; what is absent there is UNSET here."""

    status: str
    attempts: int
    output: Raw | UnsetType = UNSET
    error: str | UnsetType = UNSET
    iteration: int | UnsetType = UNSET
    started_at: str | UnsetType = UNSET
    finished_at: str | UnsetType = UNSET
    worker_id: str | UnsetType = UNSET


class RunView(Struct, frozen=True, kw_only=True):
    """A run snapshot. Spec: Run snapshot; Protocol: Status."""

    run_id: str
    workflow_id: str
    status: str
    created_at: str
    steps: dict[str, StepView]
    version: str | UnsetType = UNSET
    input: Raw | UnsetType = UNSET
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
    """One event of a run's history; `seq` is its stream sequence."""

    seq: int
    type: str
    run_id: str
    timestamp: str | UnsetType = UNSET
    step_id: str | UnsetType = UNSET
    payload: Raw | UnsetType = UNSET
    worker_id: str | UnsetType = UNSET
    attempt_number: int | UnsetType = UNSET
    iteration: int | UnsetType = UNSET
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
    last_seen: str | UnsetType = UNSET


class Registered(Struct, frozen=True):
    status: str
    name: str


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
