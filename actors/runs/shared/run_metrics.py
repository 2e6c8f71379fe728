"""Run metrics: counters and durations of the runs in a shard, and the spans of those that are traced.

They are derived from each fold, which they do not change, and after what the fold ordered has left for the broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from penstock.actors.runs.shared.spans import is_sampled, span_of_run, spans, trace_of
from penstock.broker.store import Store
from penstock.config.logging import get_logger
from penstock.engine.run.events import (
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRejected,
    ApprovalRequested,
    Event,
    Record,
    StepCompleted,
    StepContinue,
    StepFailed,
    StepOverridden,
    StepPaused,
    StepSkipped,
    StepStarted,
    WorkflowCancelled,
    WorkflowCompensating,
    WorkflowCompleted,
    WorkflowFailed,
    WorkflowResumed,
    WorkflowScheduled,
    WorkflowStarted,
)
from penstock.engine.run.execution.deliveries import ANSWERS, Answer
from penstock.engine.run.state import Run, StepStatus
from penstock.engine.run.workflow import StepPlan, Workflow

RUN_EVENTS: Mapping[type[Event], str] = {
    WorkflowScheduled: "scheduled",
    WorkflowStarted: "started",
    WorkflowCompleted: "completed",
    WorkflowFailed: "failed",
    WorkflowCancelled: "cancelled",
    WorkflowCompensating: "compensating",
    WorkflowResumed: "resumed",
}
STEP_EVENTS: Mapping[type[Event], str] = {
    StepStarted: "started",
    StepCompleted: "completed",
    StepFailed: "failed",
    StepPaused: "paused",
    StepSkipped: "skipped",
    StepOverridden: "overridden",
    StepContinue: "continued",
    ApprovalRequested: "requested",
    ApprovalGranted: "granted",
    ApprovalRejected: "rejected",
    ApprovalExpired: "expired",
}
ENDS = frozenset({WorkflowCompleted, WorkflowFailed, WorkflowCancelled})
MINUTE = len("2026-11-22T06:03:")
APPROVAL = "approval"  # stands for the task type of steps that have none

log = get_logger()


class _Fold(NamedTuple):
    workflow: Workflow
    before: Run | None
    run: Run | None
    record: Record
    traced: bool


class RunMetrics:
    """Owned by a shard."""

    def __init__(self, store: Store, sample_ratio: float) -> None:
        meters = store.meters
        self._telemetry, self._ratio = store.telemetry, sample_ratio
        self._runs = meters.counter("penstock_run_events_total")
        self._steps = meters.counter("penstock_step_events_total")
        self._ignored = 0
        self.dead_lettered = 0
        meters.reading("penstock_events_ignored_total", lambda: self._ignored)
        meters.reading("penstock_events_dead_lettered_total", lambda: self.dead_lettered)
        self._run_durations = meters.histograms("penstock_run_duration_seconds")
        self._step_durations = meters.histograms("penstock_step_duration_seconds")
        self._queue_waits = meters.histograms("penstock_queue_wait_seconds")
        self.handling = meters.histogram("penstock_event_handling_seconds")
        self.commit = meters.histogram("penstock_event_commit_seconds")
        self._loop = asyncio.get_running_loop()
        self._folds: list[_Fold] = []

    def traces(self, run_id: str) -> bool:
        """Whether spans of this run are written or, as far as its id says, exported."""
        return self._is_written(run_id) or self._telemetry.otlp is not None

    def _is_written(self, run_id: str) -> bool:
        return self._ratio > 0 and is_sampled(run_id, self._ratio)

    def folded(self, workflow: Workflow, before: Run | None, run: Run | None, record: Record, traced: bool) -> None:
        """Count an event that turned `before` into `run`; the same object means that it changed nothing. That is done
        two passes of the event loop later: by then, what the event ordered is written."""
        self._folds.append(_Fold(workflow, before, run, record, traced))
        if len(self._folds) == 1:
            self._loop.call_soon(self._loop.call_soon, self._count_all)

    def _count_all(self) -> None:
        folds, self._folds = self._folds, []
        for fold in folds:
            try:
                self._count(*fold)
            except Exception:  # a bug: the run goes on
                log.exception("event_not_counted", seq=fold.record.seq)

    def _count(self, workflow: Workflow, before: Run | None, run: Run | None, record: Record, traced: bool) -> None:
        if run is None or run is before:
            self._ignored += 1
            return
        event = record.event
        kind = type(event)
        if kind in STEP_EVENTS:
            step_id: str = event.step_id  # type: ignore[union-attr]
            plan = workflow.plan_of(step_id)
            task = APPROVAL if plan is None else plan.task or APPROVAL
            self._steps.add(task, STEP_EVENTS[kind])
            if kind is StepFailed and run.step(step_id).status is StepStatus.QUEUED:
                self._steps.add(task, "retried")
            if before is not None:
                if kind is StepStarted:
                    self._observe_wait(before, plan, task, event.timestamp)
                elif kind in ANSWERS:
                    self._observe_answer(before, plan, task, event)  # type: ignore[arg-type]
        elif kind in RUN_EVENTS:
            if kind not in ENDS or run.ended:  # else it begins to undo its steps, which has an event of its own
                self._runs.add(workflow.name, RUN_EVENTS[kind])
            if kind in ENDS and run.started_at and run.finished_at:
                self._run_durations.observe(seconds(run.started_at, run.finished_at), workflow.name, run.status)
        if traced and before is not None:
            self._trace(workflow, before, run, record)

    def _observe_answer(self, before: Run, plan: StepPlan | None, task: str, event: Answer) -> None:
        """Observe how long the execution took; of one whose start only its answer has, this is its start, too."""
        step, began = before.step(event.step_id), event.started_at
        if step.status is StepStatus.RUNNING:
            began = step.started_at
        elif began is not None:
            self._steps.add(task, STEP_EVENTS[StepStarted])
            self._observe_wait(before, plan, task, began)
        if began:
            self._step_durations.observe(seconds(began, event.timestamp), task)

    def _observe_wait(self, before: Run, plan: StepPlan | None, task: str, begun: str) -> None:
        """Observe the wait of a step's first execution: the times of later dispatches are not stored."""
        # An element may have waited for others of its map, and a handler has waited for its step.
        if plan is None or plan.item is not None or plan.handles is not None:
            return
        step = before.step(plan.id)
        if step.attempts == 1 and not step.iteration:
            dependencies = plan.depends_on
            since = before.started_at if not dependencies else _last_done(before, dependencies)
            if since:
                self._queue_waits.observe(seconds(since, begun), task)

    def _trace(self, workflow: Workflow, before: Run, run: Run, record: Record) -> None:
        otlp = self._telemetry.otlp
        exported, written = otlp is not None and otlp.samples(*trace_of(run)), self._is_written(run.run_id)
        if not (exported or written):
            return
        if exported and otlp is not None and run.trace_parent is not None:
            otlp.run_of_caller(run.run_id, span_of_run(otlp, run))
        for span in spans(workflow, before, run, record):
            if written:
                self._telemetry.offer(span)
            if exported and otlp is not None:
                otlp.span(span)


def _last_done(run: Run, dependencies: tuple[str, ...]) -> str | None:
    if len(dependencies) == 1:
        return run.steps[dependencies[0]].finished_at
    return max(run.steps[other].finished_at or "" for other in dependencies)


def seconds(begin: str, end: str) -> float:
    """The seconds between two RFC 3339 times, 0 at least: they may come from different clocks.

    Two of the same minute, as most are, take a faster way.
    """
    try:
        if begin[:MINUTE] == end[:MINUTE] and begin[-1] == end[-1] == "Z":
            passed = float(end[MINUTE:-1]) - float(begin[MINUTE:-1])
            return passed if passed > 0 else 0.0
        return max(0.0, (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds())
    except (ValueError, TypeError, IndexError):  # of a version that did not check timestamps
        return 0.0
