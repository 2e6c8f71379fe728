"""The events that are reported about one execution of a step, made from its task or its lease.

`at` is the time of the report (RFC 3339), by default now. An answer with `started_at` (RFC 3339) also reports that the
execution began then, as the given delivery of its task: no `step.started` is sent.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from msgspec import UNSET, Raw, UnsetType

from penstock.engine.run.event_payloads import Failure, PauseRef
from penstock.engine.run.events import StepCompleted, StepContinue, StepFailed, StepPaused, StepStarted
from penstock.engine.times import rfc3339_ns

if TYPE_CHECKING:
    from penstock.broker.records.pauses import Execution  # it loads the broker's client


def now() -> str:
    """The current time, RFC 3339, UTC."""
    return rfc3339_ns(time.time_ns())


def started(task: Execution, worker_id: str | None, at: str | None = None, *, delivery: int = 1) -> StepStarted:
    """`at` is the time of the start (RFC 3339), by default now; `delivery` the number of the task's delivery."""
    return StepStarted(
        run_id=task.run_id,
        step_id=task.step_id,
        timestamp=at or now(),
        worker_id=worker_id,
        attempt_number=task.attempt,
        iteration=task.iteration or None,
        item=task.item,
        delivery=delivery,
    )


def paused(
    task: Execution, worker_id: str | None, delay_s: float, name: str | None, *, delivery: int, at: str | None = None
) -> StepPaused:
    """The worker of this delivery has put the task aside, and requests it again after the delay."""
    return StepPaused(
        run_id=task.run_id,
        step_id=task.step_id,
        timestamp=at or now(),
        worker_id=worker_id,
        attempt_number=task.attempt,
        iteration=task.iteration or None,
        item=task.item,
        delivery=delivery,
        payload=PauseRef(round(delay_s * 1000), name),
    )


def completed(
    task: Execution,
    worker_id: str | None,
    output: bytes | None,
    at: str | None = None,
    *,
    started_at: str | None = None,
    delivery: int = 1,
) -> StepCompleted:
    """`output` is JSON; None: the step has no output."""
    return StepCompleted(
        run_id=task.run_id,
        step_id=task.step_id,
        timestamp=at or now(),
        worker_id=worker_id,
        attempt_number=task.attempt,
        iteration=task.iteration or None,
        item=task.item,
        started_at=started_at,
        delivery=1 if started_at is None else delivery,
        payload=_payload(output),
    )


def continued(
    task: Execution,
    worker_id: str | None,
    value: bytes | None,
    at: str | None = None,
    *,
    started_at: str | None = None,
    delivery: int = 1,
) -> StepContinue:
    """`value` is JSON, the input of the next iteration; None: it has no input."""
    return StepContinue(
        run_id=task.run_id,
        step_id=task.step_id,
        timestamp=at or now(),
        worker_id=worker_id,
        attempt_number=task.attempt,
        iteration=task.iteration or None,
        item=task.item,
        started_at=started_at,
        delivery=1 if started_at is None else delivery,
        payload=_payload(value),
    )


def failed(
    task: Execution,
    worker_id: str | None,
    failure: Failure,
    at: str | None = None,
    *,
    started_at: str | None = None,
    delivery: int = 1,
) -> StepFailed:
    return StepFailed(
        run_id=task.run_id,
        step_id=task.step_id,
        timestamp=at or now(),
        worker_id=worker_id,
        attempt_number=task.attempt,
        iteration=task.iteration or None,
        item=task.item,
        started_at=started_at,
        delivery=1 if started_at is None else delivery,
        payload=failure,
    )


def failed_unread(run_id: str, step_id: str, worker_id: str | None, failure: Failure) -> StepFailed:
    """The failure of a task of which only the ids can be decoded: it refers to the current attempt."""
    return StepFailed(run_id=run_id, step_id=step_id, timestamp=now(), worker_id=worker_id, payload=failure)


def _payload(body: bytes | None) -> Raw | UnsetType:
    return UNSET if body is None else Raw(body)
