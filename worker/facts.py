"""The facts that a worker reports: the events of one execution of a step, out of its task."""

from __future__ import annotations

import time
from functools import lru_cache

from msgspec import UNSET, Raw, UnsetType

from penstock.broker.tasks import TaskPayload
from penstock.engine.events import Failure, StepCompleted, StepFailed, StepStarted


def now() -> str:
    """This moment, RFC 3339, UTC. Twice a task: hence not by way of datetime, which takes three times as long."""
    seconds, rest_ns = divmod(time.time_ns(), 10**9)
    return f"{_second(seconds)}.{rest_ns // 1000:06d}Z"


def started(task: TaskPayload, worker_id: str) -> StepStarted:
    return StepStarted(
        run_id=task.run_id,
        step_id=task.step_id,
        timestamp=now(),
        worker_id=worker_id,
        attempt_number=task.attempt,
        iteration=task.iteration or None,
    )


def completed(task: TaskPayload, worker_id: str, output: bytes | None) -> StepCompleted:
    """`output` is JSON; None: the step has none."""
    payload: Raw | UnsetType = UNSET if output is None else Raw(output)
    return StepCompleted(
        run_id=task.run_id,
        step_id=task.step_id,
        timestamp=now(),
        worker_id=worker_id,
        attempt_number=task.attempt,
        iteration=task.iteration or None,
        payload=payload,
    )


def failed(task: TaskPayload, worker_id: str, failure: Failure) -> StepFailed:
    return StepFailed(
        run_id=task.run_id,
        step_id=task.step_id,
        timestamp=now(),
        worker_id=worker_id,
        attempt_number=task.attempt,
        iteration=task.iteration or None,
        payload=failure,
    )


def failed_unread(run_id: str, step_id: str, worker_id: str, failure: Failure) -> StepFailed:
    """For a task of which only the ids can be read: it speaks of the current attempt."""
    return StepFailed(run_id=run_id, step_id=step_id, timestamp=now(), worker_id=worker_id, payload=failure)


@lru_cache(2)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
