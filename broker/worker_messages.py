"""The messages between workers and the service, over both transports: tasks, registrations, and the failure type for no
further attempt.

It does not need the broker's client: a worker inside an application imports it long before it connects to anything.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import orjson
from msgspec import UNSET, Raw, Struct, UnsetType

from penstock.config.limits import WORKER_TASKS_DEFAULT
from penstock.engine.run.event_payloads import NULL

NON_RETRIABLE = "non_retriable"


class TaskPayload(Struct, frozen=True, omit_defaults=True):
    """What a worker receives. `attempt` counts from 1, `iteration` from 0; `metadata` is the step's own.

    `step_type` is agent_loop for a step that may go on with another iteration. `item` is the number of a map's element,
    from 0. `previous_error` is why a planner's attempt before this one has failed. `trace_parent` (W3C Trace
    Context) is the span of this execution, where the service exports its telemetry.
    """

    task_id: str
    run_id: str
    step_id: str
    iteration: int = 0
    attempt: int = 1
    input: Raw = NULL
    workflow_name: str = ""
    metadata: dict[str, str] = {}
    step_type: str = "normal"
    item: int | None = None
    previous_error: str | None = None
    trace_parent: str | None = None


class CancelledTask(Struct, frozen=True, omit_defaults=True):
    """The result of this execution is not wanted any more: `reason` says why, for people. Sent to the worker that
    carries it out; it may come late, more than once, or never."""

    task_id: str
    run_id: str
    step_id: str = ""
    attempt: int = 1
    iteration: int = 0
    reason: str = ""


class WorkerRegistration(Struct, frozen=True, kw_only=True):
    """A registration as it is stored. Workers in other languages may omit all but the first two fields. With
    `worker_group`, the worker takes only tasks of steps with this group."""

    worker_id: str
    task_types: tuple[str, ...]
    language: str = ""
    transport: str = ""
    max_tasks: int = WORKER_TASKS_DEFAULT
    metadata: Mapping[str, str] = {}
    hostname: str = ""
    pid: int = 0
    version: str = ""
    last_seen: str = ""
    worker_group: str | UnsetType = UNSET


_DECODER = msgspec.json.Decoder(TaskPayload)


def decode(body: bytes) -> TaskPayload:
    """The task in `body`. Raises msgspec.MsgspecError for anything else."""
    return _DECODER.decode(body)


def decode_input(task: TaskPayload) -> object:
    """The task's input as Python values."""
    return orjson.loads(bytes(task.input))
