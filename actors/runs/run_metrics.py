"""What a shard counts of the runs in it, and the spans of those that are traced. It looks at each fold and changes
nothing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from penstock.actors.runs.spans import is_sampled, spans
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
    StepPaused,
    StepSkipped,
    StepStarted,
    WorkflowCancelled,
    WorkflowCompleted,
    WorkflowFailed,
    WorkflowResumed,
    WorkflowScheduled,
    WorkflowStarted,
)
from penstock.engine.run.state import Run, StepStatus
from penstock.engine.run.workflow import Workflow

if TYPE_CHECKING:
    from penstock.actors.runs.shard import Shard
    from penstock.broker.store import Store

RUN_EVENTS: Mapping[type[Event], str] = {
    WorkflowScheduled: "scheduled",
    WorkflowStarted: "started",
    WorkflowCompleted: "completed",
    WorkflowFailed: "failed",
    WorkflowCancelled: "cancelled",
    WorkflowResumed: "resumed",
}
STEP_EVENTS: Mapping[type[Event], str] = {
    StepStarted: "started",
    StepCompleted: "completed",
    StepFailed: "failed",
    StepPaused: "paused",
    StepSkipped: "skipped",
    StepContinue: "continued",
    ApprovalRequested: "requested",
    ApprovalGranted: "granted",
    ApprovalRejected: "rejected",
    ApprovalExpired: "expired",
}
ENDS = frozenset({WorkflowCompleted, WorkflowFailed, WorkflowCancelled})
ANSWERS = frozenset({StepCompleted, StepFailed, StepContinue})
MINUTE = len("2026-11-22T06:03:")
APPROVAL = "approval"  # stands for the task type of steps that have none


class Tally:
    """Owned by a shard."""

    def __init__(self, store: Store, sample_ratio: float) -> None:
        meters = store.meters
        self._telemetry, self._ratio = store.telemetry, sample_ratio
        self._runs = meters.counter("penstock_run_events_total")
        self._steps = meters.counter("penstock_step_events_total")
        self._ignored = 0
        self.buried = 0
        meters.reading("penstock_events_ignored_total", lambda: self._ignored)
        meters.reading("penstock_events_buried_total", lambda: self.buried)
        self._run_durations = meters.histograms("penstock_run_duration_seconds")
        self._step_durations = meters.histograms("penstock_step_duration_seconds")
        self._queue_waits = meters.histograms("penstock_queue_wait_seconds")
        self.handling = meters.histogram("penstock_event_handling_seconds")
        self.commit = meters.histogram("penstock_event_commit_seconds")

    def traces(self, run_id: str) -> bool:
        """Whether spans are made of this run."""
        return self._ratio > 0 and is_sampled(run_id, self._ratio)

    def folded(self, workflow: Workflow, before: Run | None, run: Run | None, record: Record, traced: bool) -> None:
        """An event made `run` of `before`; the very same one means that it changed nothing."""
        if run is None or run is before:
            self._ignored += 1
            return
        event = record.event
        kind = type(event)
        if kind in STEP_EVENTS:
            step_id: str = event.step_id  # type: ignore[union-attr]
            task = workflow.steps[step_id].task or APPROVAL
            self._steps.add(task, STEP_EVENTS[kind])
            if kind is StepFailed and run.steps[step_id].status is StepStatus.QUEUED:
                self._steps.add(task, "retried")
            if before is not None:
                if kind is StepStarted:
                    self._observe_wait(workflow, before, step_id, task, event.timestamp)
                elif (
                    kind in ANSWERS
                    and (begun := before.steps[step_id].started_at)
                    and before.steps[step_id].status is StepStatus.RUNNING
                ):
                    self._step_durations.observe(seconds(begun, event.timestamp), task)
        elif kind in RUN_EVENTS:
            self._runs.add(workflow.name, RUN_EVENTS[kind])
            if kind in ENDS and run.started_at and run.finished_at:
                self._run_durations.observe(seconds(run.started_at, run.finished_at), workflow.name, run.status)
        if traced and before is not None:
            self._trace(workflow, before, run, record)

    def _observe_wait(self, workflow: Workflow, before: Run, step_id: str, task: str, begun: str) -> None:
        """Of a step's first execution: for later ones, nobody has kept when they were ordered."""
        step = before.steps[step_id]
        if step.attempts == 1 and not step.iteration:
            dependencies = workflow.steps[step_id].depends_on
            since = before.started_at if not dependencies else _last_done(before, dependencies)
            if since:
                self._queue_waits.observe(seconds(since, begun), task)

    def _trace(self, workflow: Workflow, before: Run, run: Run, record: Record) -> None:
        for span in spans(workflow, before, run, record):
            self._telemetry.offer(span)


def _last_done(run: Run, dependencies: tuple[str, ...]) -> str | None:
    if len(dependencies) == 1:
        return run.steps[dependencies[0]].finished_at
    return max(run.steps[other].finished_at or "" for other in dependencies)


def seconds(begin: str, end: str) -> float:
    """Between two moments in RFC 3339, not less than 0, for they may be of different clocks. Most are of the same
    minute."""
    try:
        if begin[:MINUTE] == end[:MINUTE] and begin[-1] == end[-1] == "Z":
            passed = float(end[MINUTE:-1]) - float(begin[MINUTE:-1])
            return passed if passed > 0 else 0.0
        return max(0.0, (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds())
    except (ValueError, TypeError, IndexError):  # written before moments were checked
        return 0.0


def read_shard(shard: Shard) -> None:
    """Have the shard's own state read whenever somebody asks for numbers."""
    meters = shard.store.meters
    meters.reading("penstock_actors", lambda: len(shard.actors))
    meters.reading("penstock_mailbox_events", lambda: shard.waiting)
    meters.reading("penstock_unsaved_runs", lambda: len(shard.dirty))
    meters.reading("penstock_timers", lambda: shard.timers.in_memory)
    meters.readings("penstock_partition_owner", lambda: {(str(number),): 1 for number in shard.partitions})
