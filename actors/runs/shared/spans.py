"""Spans for tracing: the time of a run and of each execution of its steps. Derived from the fold, for a share of the
runs.

A trace is the run's own, with the run id as its trace id, unless the event that began the run (or the one that ends a
step) names a parent (`trace_parent`, W3C Trace Context). Span ids are derived: an event that is folded twice gives the
same span.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from hashlib import sha256
from typing import NamedTuple
from zlib import crc32

from penstock.broker.streams.telemetry import Span
from penstock.engine.definition.identifiers import is_run_id
from penstock.engine.run.events import (
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRejected,
    Record,
    StepCompleted,
    StepContinue,
    StepFailed,
)
from penstock.engine.run.state import Run, RunStatus, StepState, StepStatus
from penstock.engine.run.workflow import Workflow

TRACE_PARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(?:-.*)?")
NO_TRACE, NO_SPAN = "0" * 32, "0" * 16
ENDS = StepCompleted | StepFailed | StepContinue | ApprovalGranted | ApprovalRejected | ApprovalExpired
BAD = frozenset({RunStatus.FAILED, RunStatus.CANCELLED})


class _Parent(NamedTuple):
    trace_id: str
    span_id: str | None


def is_sampled(run_id: str, ratio: float) -> bool:
    """Whether the run is in this share of all runs, the same in every process."""
    return crc32(run_id.encode()) < ratio * 2**32


def spans(workflow: Workflow, before: Run, run: Run, record: Record) -> Iterator[Span]:
    """The spans that end with this event, which turned `before` into `run`: of one execution of a step, or of the run
    and all its running steps."""
    event = record.event
    if isinstance(event, ENDS):
        given = _parent(event.trace_parent) or _Parent(_trace(run).trace_id, _run_span_id(run))
        failed = isinstance(event, StepFailed | ApprovalRejected | ApprovalExpired)
        yield _step(workflow, before, event.step_id, record, given, "error" if failed else "ok")
    elif run.ended and not before.ended:
        for step_id, step in before.steps.items():
            if step.status is StepStatus.RUNNING:
                yield _step(
                    workflow, before, step_id, record, _Parent(_trace(run).trace_id, _run_span_id(run)), "error"
                )
        yield _run(run, record)


def _run(run: Run, record: Record) -> Span:
    trace_id, parent = _trace(run)
    attributes: dict[str, str | int] = {
        "penstock.run_id": run.run_id,
        "penstock.workflow": run.workflow_id,
        "penstock.version": run.version,
        "penstock.status": run.status,
    }
    start, end = _between(run.started_at or run.created_at, record)
    status = "error" if run.status in BAD else "ok"
    return Span(trace_id, _run_span_id(run), f"run {run.workflow_id}", start, end, parent, status, attributes)


def _step(workflow: Workflow, before: Run, step_id: str, record: Record, parent: _Parent, status: str) -> Span:
    step, plan = before.step(step_id), workflow.plan_of(step_id)
    assert plan is not None, "its event has changed the run"
    start, end = _between(step.started_at, record)
    span_id = _span_id(f"{before.run_id}.{step_id}.{step.attempts}.{step.iteration}")
    return Span(
        parent.trace_id,
        span_id,
        f"step {step_id}",
        start,
        end,
        parent.span_id,
        status,
        _about(before, step_id, step, plan.task),
    )


def _about(run: Run, step_id: str, step: StepState, task: str) -> dict[str, str | int]:
    found: dict[str, str | int] = {
        "penstock.run_id": run.run_id,
        "penstock.workflow": run.workflow_id,
        "penstock.step_id": step_id,
        "penstock.task": task,
        "penstock.attempt": step.attempts,
        "penstock.iteration": step.iteration,
    }
    return found if step.worker_id is None else {**found, "penstock.worker_id": step.worker_id}


def _trace(run: Run) -> _Parent:
    """The run's trace, and the span in which it began, if any. Only a run id of an unusual form needs another trace
    id."""
    own = (
        run.run_id if is_run_id(run.run_id) and run.run_id != NO_TRACE else sha256(run.run_id.encode()).hexdigest()[:32]
    )
    return _parent(run.trace_parent) or _Parent(own, None)


def _parent(header: str | None) -> _Parent | None:
    found = header and TRACE_PARENT.fullmatch(header)
    if not found or found[1] == NO_TRACE or found[2] == NO_SPAN:
        return None
    return _Parent(found[1], found[2])


def _run_span_id(run: Run) -> str:
    """The id of the run's current span: each resumption begins another one."""
    return _span_id(f"{run.run_id}.{run.resumes}")


def _span_id(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


def _between(started: str | None, record: Record) -> tuple[int, int]:
    """Start and end in nanoseconds since the epoch. Clocks differ: a span that would end before its start has no
    duration."""
    end = _nanoseconds(record.event.timestamp) or int(record.at * 1e9)
    start = _nanoseconds(started) or end
    return min(start, end), end


def _nanoseconds(text: str | None) -> int | None:
    """Nanoseconds since the epoch; None for a text that is no RFC 3339 time, as other writers may set it."""
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return None if found.tzinfo is None else int(found.timestamp() * 1e6) * 1000
