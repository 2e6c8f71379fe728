"""The JSON bodies of the worker bridge: requests of a worker over HTTP, and the service's responses.

Both sides use these structs. The service checks more than their types when it reads a request
(http/bridge/requests.py).
"""

from __future__ import annotations

from msgspec import UNSET, Raw, Struct, UnsetType

from penstock.broker.worker_messages import TaskPayload
from penstock.config.limits import WORKER_TASKS_DEFAULT


class ConnectWorker(Struct, frozen=True, forbid_unknown_fields=True):
    """POST /v1/workers/connect: what a worker says about itself."""

    worker_id: str
    task_types: list[str]
    max_tasks: int = WORKER_TASKS_DEFAULT
    language: str = ""
    metadata: dict[str, str] = {}
    hostname: str = ""
    pid: int = 0
    version: str = ""
    worker_group: str | None = None


class PollTasks(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """POST /v1/tasks/poll. `max_tasks` 0 ends the waiting polls of this `worker_id`. `builtin`: what the worker is,
    which asks for a reserved task type."""

    task_types: list[str]
    max_tasks: int
    timeout_ms: int
    worker_id: str | None = None
    worker_group: str | None = None
    builtin: str | None = None


class PolledTask(Struct, frozen=True):
    """A TaskPayload with what the bridge adds: the task type, the number of deliveries of this attempt, the step's last
    checkpoint."""

    task_id: str
    run_id: str
    step_id: str
    iteration: int
    attempt: int
    input: Raw
    workflow_name: str
    task: str
    metadata: dict[str, str] | UnsetType = UNSET
    step_type: str | UnsetType = UNSET
    deliveries: int | UnsetType = UNSET
    checkpoint: Raw | UnsetType = UNSET
    item: int | UnsetType = UNSET
    previous_error: str | UnsetType = UNSET
    trace_parent: str | UnsetType = UNSET


class ResolveTask(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """POST /v1/tasks/{task_id}/resolve. Each action reads some of the fields; the others are ignored."""

    action: str
    output: Raw | UnsetType = UNSET
    error: str | None = None
    failure_type: str | None = None
    retry_after_ms: int | None = None
    name: str | None = None
    duration_ms: int | None = None
    checkpoint: Raw | UnsetType = UNSET
    data: Raw | UnsetType = UNSET
    traceback: str | None = None
    id: str | None = None
    dropped: int | None = None
    attempt: int | None = None
    iteration: int | None = None


class BridgeLine(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One entry of `data` of the action log. `fields` is a JSON object."""

    text: str
    level: str = "info"
    at: str | None = None
    fields: Raw | UnsetType = UNSET


class BridgeProgress(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """`data` of the action progress."""

    done: float
    total: float | None = None
    text: str = ""


class TaskAnswer(ResolveTask, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """As ResolveTask, with the task's id."""

    task_id: str


class NextPoll(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The poll of an exchange; its worker is that of the exchange."""

    task_types: list[str]
    max_tasks: int
    timeout_ms: int
    worker_group: str | None = None
    builtin: str | None = None


class ExchangeTasks(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """POST /v1/tasks/exchange: answers to polled tasks and the next poll, in one request."""

    resolve: list[TaskAnswer]
    poll: NextPoll | None = None
    worker_id: str | None = None


class ResolvedTask(Struct, frozen=True, omit_defaults=True):
    """`status` is ok or error; `code` and `error` are those of the response that /v1/tasks/{task_id}/resolve would have
    given."""

    task_id: str
    status: str
    code: int | UnsetType = UNSET
    error: str | UnsetType = UNSET


class Exchanged(Struct, frozen=True):
    """The answer to ExchangeTasks: one entry for each of `resolve`, in the same order, and the tasks of the poll."""

    resolved: list[ResolvedTask]
    tasks: list[PolledTask]


def polled_task(task: TaskPayload, task_type: str, *, deliveries: int, checkpoint: bytes | None) -> PolledTask:
    """The task as the service assigns it; fields with default values are omitted."""
    return PolledTask(
        task.task_id,
        task.run_id,
        task.step_id,
        task.iteration,
        task.attempt,
        task.input,
        task.workflow_name,
        task_type,
        task.metadata or UNSET,
        UNSET if task.step_type == "normal" else task.step_type,
        UNSET if deliveries == 1 else deliveries,
        UNSET if checkpoint is None else Raw(checkpoint),
        UNSET if task.item is None else task.item,
        UNSET if task.previous_error is None else task.previous_error,
        UNSET if task.trace_parent is None else task.trace_parent,
    )


def task_payload(polled: PolledTask) -> TaskPayload:
    """The task as it was dispatched."""
    return TaskPayload(
        polled.task_id,
        polled.run_id,
        polled.step_id,
        polled.iteration,
        polled.attempt,
        polled.input,
        polled.workflow_name,
        polled.metadata or {},
        polled.step_type or "normal",
        None if polled.item is UNSET else polled.item,
        None if polled.previous_error is UNSET else polled.previous_error,
        None if polled.trace_parent is UNSET else polled.trace_parent,
    )
