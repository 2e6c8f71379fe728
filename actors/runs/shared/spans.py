"""Spans for tracing: the time of a run and of each execution of its steps. Derived from the fold, for a share of the
runs.

A trace is the run's own, with the run id as its trace id, unless the event that began the run (or the one that ends a
step) names a parent (`trace_parent`, W3C Trace Context). Span ids are derived: an event that is folded twice gives the
same span, and what an execution begins can name its span before that has ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from penstock.engine.definition.identifiers import is_run_id
from penstock.engine.run.events import (
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRejected,
    ChildEnded,
    EventReceived,
    Record,
    StepCompleted,
    StepContinue,
    StepFailed,
    StepOverridden,
    TimerFired,
)
from penstock.engine.run.execution.deliveries import began_at
from penstock.engine.run.state import Run, RunStatus, StepState, StepStatus
from penstock.engine.run.workflow import Workflow
from penstock.telemetry.tracing import NO_TRACE, Span, TraceParent, trace_parent

if TYPE_CHECKING:
    from penstock.telemetry.otlp.export import OtlpExport

ENDS = StepCompleted | StepFailed | StepContinue | ApprovalGranted | ApprovalRejected | ApprovalExpired
MAY_END = ChildEnded | EventReceived | StepOverridden | TimerFired
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
        given = _parent(event.trace_parent) or _parent_of(before, event.step_id)
        failed = isinstance(event, StepFailed | ApprovalRejected | ApprovalExpired)
        yield _step(workflow, before, event.step_id, record, given, "error" if failed else "ok")
        yield from _around(workflow, before, run, event.step_id, record)
        return
    ended = _ended_by(before, run, record) if isinstance(event, MAY_END) else None
    if ended is not None:
        yield _step(workflow, before, ended, record, _parent_of(before, ended), _status(run, ended))
        yield from _around(workflow, before, run, ended, record)
    if run.ended and not before.ended:
        for step_id, step in before.steps.items():
            if step.status is StepStatus.RUNNING and step_id != ended:
                yield _step(workflow, before, step_id, record, _parent_of(before, step_id), "error")
        yield _run(run, record)


def trace_of(run: Run) -> tuple[str, TraceParent | None]:
    """The trace that the run belongs to, and the span in which it began, if any. Without one the trace is the run's
    own; only a run id of an unusual form needs another trace id then."""
    given = trace_parent(run.trace_parent)
    if given is not None:
        return given.trace_id, given
    usual = is_run_id(run.run_id) and run.run_id != NO_TRACE
    return run.run_id if usual else sha256(run.run_id.encode()).hexdigest()[:32], None


def span_of_run(export: OtlpExport, run: Run) -> TraceParent:
    """The span of the run, as the parent of what the run begins by itself."""
    trace_id, given = trace_of(run)
    return TraceParent(trace_id, _run_span_id(run), export.samples(trace_id, given))


def header_of_step(export: OtlpExport, run: Run, step_id: str, attempt: int, iteration: int = 0) -> str:
    """The `traceparent` of what this execution of a step begins: a task, or a child run."""
    trace_id, given = trace_of(run)
    span_id = _step_span_id(run.run_id, step_id, attempt, iteration)
    return TraceParent(trace_id, span_id, export.samples(trace_id, given)).text


def _ended_by(before: Run, run: Run, record: Record) -> str | None:
    """The step that slept, waited or had a child run, of which an execution ends by this event; None: no step."""
    event = record.event
    step_id = event.payload.step_id if isinstance(event, TimerFired) else getattr(event, "step_id", None)
    was, now = (None, None) if step_id is None else (before.find(step_id), run.find(step_id))
    if was is None or now is None or was.status is not StepStatus.RUNNING:
        return None
    return step_id if now.status is not StepStatus.RUNNING or now.attempts != was.attempts else None


def _around(workflow: Workflow, before: Run, run: Run, step_id: str, record: Record) -> Iterator[Span]:
    """The maps and planners that end with this step of theirs."""
    for outer in _outer(step_id):
        was, now = before.steps.get(outer), run.steps.get(outer)
        if was and now and was.status is StepStatus.RUNNING and now.status is not StepStatus.RUNNING:
            yield _step(workflow, before, outer, record, _parent_of(before, outer), _status(run, outer))


def _outer(step_id: str) -> Iterator[str]:
    """What may be the map or the planner that the step belongs to, the innermost first."""
    while "." in step_id:
        step_id = step_id.rpartition(".")[0]
        yield step_id


def _status(run: Run, step_id: str) -> str:
    return "ok" if run.step(step_id).status is StepStatus.COMPLETED else "error"


def _run(run: Run, record: Record) -> Span:
    trace_id, given = trace_of(run)
    attributes: dict[str, str | int] = {
        "penstock.run_id": run.run_id,
        "penstock.workflow": run.workflow_id,
        "penstock.version": run.version,
        "penstock.status": run.status,
    }
    start, end = _between(run.started_at or run.created_at, record)
    status = "error" if run.status in BAD else "ok"
    parent = None if given is None else given.span_id
    return Span(trace_id, _run_span_id(run), f"run {run.workflow_id}", start, end, parent, status, attributes)


def _step(workflow: Workflow, before: Run, step_id: str, record: Record, parent: _Parent, status: str) -> Span:
    step, plan = before.step(step_id), workflow.plan_of(step_id)
    assert plan is not None, "its event has changed the run"
    began, worker_id = step.started_at, step.worker_id
    if step.status is StepStatus.QUEUED and (told := began_at(record.event)) is not None:
        began, worker_id = told, getattr(record.event, "worker_id", None)
    start, end = _between(began, record)
    span_id = _step_span_id(before.run_id, step_id, step.attempts, step.iteration)
    return Span(
        parent.trace_id,
        span_id,
        f"step {step_id}",
        start,
        end,
        parent.span_id,
        status,
        _about(before, step_id, step, plan.task, worker_id),
    )


def _about(run: Run, step_id: str, step: StepState, task: str, worker_id: str | None) -> dict[str, str | int]:
    found: dict[str, str | int] = {
        "penstock.run_id": run.run_id,
        "penstock.workflow": run.workflow_id,
        "penstock.step_id": step_id,
        "penstock.task": task,
        "penstock.attempt": step.attempts,
        "penstock.iteration": step.iteration,
    }
    return found if worker_id is None else {**found, "penstock.worker_id": worker_id}


def _parent(header: str | None) -> _Parent | None:
    found = trace_parent(header)
    return None if found is None else _Parent(found.trace_id, found.span_id)


def _parent_of(run: Run, step_id: str) -> _Parent:
    """The span of the map or planner that is under way around the step, or else that of the run."""
    trace_id = trace_of(run)[0]
    for outer in _outer(step_id):
        around = run.steps.get(outer)
        if around is not None and around.status is StepStatus.RUNNING:
            return _Parent(trace_id, _step_span_id(run.run_id, outer, around.attempts, around.iteration))
    return _Parent(trace_id, _run_span_id(run))


def _run_span_id(run: Run) -> str:
    """The id of the run's current span: each resumption begins another one."""
    return _span_id(f"{run.run_id}.{run.resumes}")


def _step_span_id(run_id: str, step_id: str, attempt: int, iteration: int) -> str:
    return _span_id(f"{run_id}.{step_id}.{attempt}.{iteration}")


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
