"""What requests of the worker bridge may contain. Every reader raises Invalid that names all offenders, or TooLarge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from falcon.asgi import Request
from msgspec import UNSET, Raw, UnsetType

from penstock.broker.records.leases import Lease
from penstock.broker.worker_messages import WorkerRegistration
from penstock.broker.worker_protocol.bridge_messages import ConnectWorker, PollTasks, ResolveTask
from penstock.config.limits import (
    NAME_CHARS_MAX,
    PAUSE_MS_MAX,
    POLL_MS_MAX,
    POLL_TASKS_MAX,
    TASK_TYPES_MAX,
)
from penstock.engine.definition import values
from penstock.engine.definition.http_requests import BUILTIN as HTTP_WORKER
from penstock.engine.definition.http_requests import TASK as HTTP_TASK
from penstock.engine.definition.identifiers import shown
from penstock.engine.definition.report import Report
from penstock.engine.errors import Invalid
from penstock.engine.run.event_payloads import Failure
from penstock.engine.texts import last_part, shortened
from penstock.http.bridge.live import live_requests
from penstock.http.bridge.live.live_requests import LiveAction
from penstock.http.messages import bodies, fields

TRANSPORT = "bridge"
ACTIONS = ("complete", "fail", "pause", "checkpoint", "continue", "heartbeat", "log", "stream", "progress")
RETRY_AFTER_MS_MAX = 2**53
PID_MAX = 2**32 - 1
ATTEMPT_MAX = 2**31

CONNECT: fields.Fields = {
    "worker_id": values.name,
    "task_types": fields.task_types(TASK_TYPES_MAX),
    "worker_group": values.name,
    "max_tasks": values.whole_number(2**31, least=1),
    "pid": values.whole_number(PID_MAX),
}
POLL: fields.Fields = {
    "task_types": fields.task_types(TASK_TYPES_MAX),
    "worker_id": values.name,
    "worker_group": values.name,
    "max_tasks": values.whole_number(POLL_TASKS_MAX, least=1),
    "timeout_ms": values.whole_number(POLL_MS_MAX),
    "builtin": values.one_of(HTTP_WORKER).annotated(
        description=f"What asks for the reserved task type {HTTP_TASK}: "
        "`penstock worker http`, or what stands in for it."
    ),
}
# A worker that asks for no task ends its waiting polls.
WORKERS_POLL: fields.Fields = {**POLL, "max_tasks": values.whole_number(POLL_TASKS_MAX)}
ACTION = values.one_of(*ACTIONS)
FAIL: fields.Fields = {
    "retry_after_ms": values.whole_number(RETRY_AFTER_MS_MAX).annotated(
        description="fail: when to try again, for retry_after."
    ),
    "attempt": values.whole_number(ATTEMPT_MAX, least=1).annotated(
        description="fail: 404 if the worker holds another attempt of the step by now. Without it: any."
    ),
    "iteration": values.whole_number(ATTEMPT_MAX).annotated(description="fail: with attempt; 0 if absent."),
}
PAUSE: fields.Fields = {
    "duration_ms": values.whole_number(PAUSE_MS_MAX).annotated(description="pause: required."),
    "name": fields.characters(NAME_CHARS_MAX).annotated(description="pause: a label."),
}
# Fields of all actions; those of one are read for this one only.
RESOLUTION: fields.Fields = {"action": ACTION, **FAIL, **PAUSE, **live_requests.SAID}


class CompleteAction(NamedTuple):
    output: bytes | None


class ContinueAction(NamedTuple):
    value: bytes | None


class FailAction(NamedTuple):
    """With an attempt it is for a task of this attempt and iteration only: another may have taken its place."""

    failure: Failure
    attempt: int | None = None
    iteration: int = 0

    def is_for(self, lease: Lease) -> bool:
        return self.attempt is None or (self.attempt, self.iteration) == (lease.attempt, lease.iteration)


class PauseAction(NamedTuple):
    delay_s: float
    checkpoint: bytes | None
    name: str | None


class CheckpointAction(NamedTuple):
    data: bytes


class HeartbeatAction(NamedTuple):
    pass


Action: TypeAlias = (
    CompleteAction | ContinueAction | FailAction | PauseAction | CheckpointAction | HeartbeatAction | LiveAction
)


async def connection(req: Request) -> WorkerRegistration:
    """The registration in a connect request."""
    request = bodies.decode(await bodies.read(req), ConnectWorker)
    fields.check_fields(request, CONNECT)
    _check_reserved(request.task_types, request.metadata.get("builtin"))
    return WorkerRegistration(
        worker_id=request.worker_id,
        task_types=tuple(request.task_types),
        language=request.language,
        transport=TRANSPORT,
        max_tasks=request.max_tasks,
        metadata=request.metadata,
        hostname=request.hostname,
        pid=request.pid,
        version=request.version,
        worker_group=UNSET if request.worker_group is None else request.worker_group,
    )


async def poll(req: Request) -> PollTasks:
    request = bodies.decode(await bodies.read(req), PollTasks)
    return checked_poll(request, POLL if request.worker_id is None else WORKERS_POLL)


def checked_poll(request: PollTasks, rules: fields.Fields) -> PollTasks:
    """The poll. Raises Invalid for what these rules refuse, and for a reserved task type."""
    fields.check_fields(request, rules)
    _check_reserved(request.task_types, request.builtin)
    return request


def _check_reserved(task_types: Sequence[str], builtin: str | None) -> None:
    """Requests of http steps are not for a worker that does not say that it is made for them."""
    if HTTP_TASK in task_types and builtin != HTTP_WORKER:
        raise Invalid(f'task type "{HTTP_TASK}" is reserved: `penstock worker http` serves it')


def action_in(body: bytes) -> Action:
    """The action that a worker requests for its task."""
    return action_of(bodies.decode(body, ResolveTask))


def action_of(request: ResolveTask) -> Action:
    report = Report()
    ACTION.read("action", request.action, report)
    fields.raise_problems(report)
    action = _ACTIONS[request.action](request, report)
    fields.raise_problems(report)
    return action


def _complete(request: ResolveTask, report: Report) -> Action:
    if request.error:  # whoever gives one means that the attempt failed: it must not pass for done
        report.add("error must be empty for complete: a failed attempt is reported by fail")
    return CompleteAction(_json("output", request.output))


def _continue(request: ResolveTask, report: Report) -> Action:
    return ContinueAction(_json("output", request.output))


def _fail(request: ResolveTask, report: Report) -> Action:
    if request.error is None:
        report.add("error is required")
    fields.read_fields(request, FAIL, report)
    kind = Failure().failure_type if request.failure_type is None else shown(request.failure_type)
    failure = Failure(
        shortened(request.error or ""), kind, request.retry_after_ms or 0, last_part(request.traceback or "")
    )
    return FailAction(failure, request.attempt, request.iteration or 0)


def _pause(request: ResolveTask, report: Report) -> Action:
    if request.duration_ms is None:
        report.add("duration_ms is required")
    fields.read_fields(request, PAUSE, report)
    return PauseAction((request.duration_ms or 0) / 1000, _json("checkpoint", request.checkpoint), request.name)


def _checkpoint(request: ResolveTask, report: Report) -> Action:
    if isinstance(request.data, UnsetType):
        report.add("data is required")
        return HeartbeatAction()
    bodies.check_payload("data", request.data)
    return CheckpointAction(bytes(request.data))


def _heartbeat(request: ResolveTask, report: Report) -> Action:
    return HeartbeatAction()


_ACTIONS = {
    "complete": _complete,
    "fail": _fail,
    "pause": _pause,
    "checkpoint": _checkpoint,
    "continue": _continue,
    "heartbeat": _heartbeat,
    "log": live_requests.log,
    "stream": live_requests.stream,
    "progress": live_requests.progress_of,
}


def _json(name: str, value: Raw | UnsetType) -> bytes | None:
    """A payload; null means absent. Raises TooLarge."""
    if isinstance(value, UnsetType):
        return None
    bodies.check_payload(name, value)
    body = bytes(value)
    return None if body == b"null" else body
