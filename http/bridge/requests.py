"""What requests of the worker bridge may hold. Every reader raises Invalid that names all offenders, or TooLarge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from falcon.asgi import Request
from msgspec import UNSET, Raw, UnsetType

from penstock.broker.worker_messages import WorkerRegistration
from penstock.broker.worker_protocol.bridge_messages import ConnectWorker, PollTasks, ResolveTask
from penstock.config.limits import (
    NAME_CHARS_MAX,
    PAUSE_MS_MAX,
    POLL_MS_MAX,
    POLL_TASKS_MAX,
    TASK_TYPES_MAX,
)
from penstock.engine.definition.identifiers import problem_with, quoted, shown
from penstock.engine.definition.report import Report
from penstock.engine.errors import Invalid
from penstock.engine.run.events import Failure
from penstock.engine.texts import last_part, shortened
from penstock.http.messages import bodies

TRANSPORT = "bridge"
ACTIONS = ("complete", "fail", "pause", "checkpoint", "continue", "heartbeat")
RETRY_AFTER_MS_MAX = 2**53
PID_MAX = 2**32 - 1


class CompleteAction(NamedTuple):
    output: bytes | None


class ContinueAction(NamedTuple):
    value: bytes | None


class FailAction(NamedTuple):
    failure: Failure


class PauseAction(NamedTuple):
    delay_s: float
    checkpoint: bytes | None
    name: str | None


class CheckpointAction(NamedTuple):
    data: bytes


class HeartbeatAction(NamedTuple):
    pass


Action: TypeAlias = CompleteAction | ContinueAction | FailAction | PauseAction | CheckpointAction | HeartbeatAction


async def connection(req: Request) -> WorkerRegistration:
    """The registration in a connect request."""
    request = bodies.decode(await bodies.read(req), ConnectWorker)
    report = Report()
    _check_name(report, "worker_id", request.worker_id)
    _check_types(report, request.task_types)
    _check_name(report, "worker_group", request.worker_group)
    _check_number(report, "max_tasks", request.max_tasks, 1, 2**31)
    _check_number(report, "pid", request.pid, 0, PID_MAX)
    _raise(report)
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
    return check_poll(request, 1 if request.worker_id is None else 0)


def check_poll(request: PollTasks, least: int = 1) -> PollTasks:
    """The poll, if it asks for at least so many tasks, and all else is right."""
    report = Report()
    _check_types(report, request.task_types)
    _check_name(report, "worker_id", request.worker_id)
    _check_name(report, "worker_group", request.worker_group)
    _check_number(report, "max_tasks", request.max_tasks, least, POLL_TASKS_MAX)
    _check_number(report, "timeout_ms", request.timeout_ms, 0, POLL_MS_MAX)
    _raise(report)
    return request


def action_in(body: bytes) -> Action:
    """What a worker wants to be done with its task."""
    return action_of(bodies.decode(body, ResolveTask))


def action_of(request: ResolveTask) -> Action:
    report = Report()
    action = _ACTIONS[request.action](request, report) if request.action in _ACTIONS else None
    if action is None:
        report.add(f"action must be one of {' '.join(ACTIONS)}, not {quoted(request.action)}")
    _raise(report)
    assert action is not None
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
    after_ms = request.retry_after_ms or 0
    _check_number(report, "retry_after_ms", after_ms, 0, RETRY_AFTER_MS_MAX)
    kind = Failure().failure_type if request.failure_type is None else shown(request.failure_type)
    return FailAction(Failure(shortened(request.error or ""), kind, after_ms, last_part(request.traceback or "")))


def _pause(request: ResolveTask, report: Report) -> Action:
    if request.duration_ms is None:
        report.add("duration_ms is required")
    _check_number(report, "duration_ms", request.duration_ms or 0, 0, PAUSE_MS_MAX)
    if request.name is not None and len(request.name) > NAME_CHARS_MAX:
        report.add(f"name has {len(request.name)} characters, {NAME_CHARS_MAX} is the most")
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
}


def _json(name: str, value: Raw | UnsetType) -> bytes | None:
    """A payload; null is as good as none. Raises TooLarge."""
    if isinstance(value, UnsetType):
        return None
    bodies.check_payload(name, value)
    body = bytes(value)
    return None if body == b"null" else body


def _check_types(report: Report, task_types: Sequence[str]) -> None:
    if not task_types:
        report.add("task_types is empty")
    if len(task_types) > TASK_TYPES_MAX:
        report.add(f"task_types has {len(task_types)} entries, {TASK_TYPES_MAX} is the most")
    for at, task in enumerate(task_types[:TASK_TYPES_MAX]):
        _check_name(report, f"task_types[{at}]", task)


def _check_name(report: Report, field: str, name: str | None) -> None:
    if name is not None and (problem := problem_with(field, name)):
        report.add(problem)


def _check_number(report: Report, field: str, number: int, least: int, most: int) -> None:
    if not least <= number <= most:
        report.add(f"{field} must be a whole number from {least} to {most}, not {number}")


def _raise(report: Report) -> None:
    if problems := report.problems():
        raise Invalid(*problems)
