"""What may happen to a run while it is paused: what runs finishes, and nothing new begins. Told of every run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.broker.worker_messages import TaskPayload
from penstock.engine.definition.definitions import WorkflowDef
from penstock.engine.definition.durations import parse
from penstock.engine.run.events import (
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRejected,
    Record,
    StepStarted,
    TimerFired,
    WorkflowCancelled,
    WorkflowPaused,
    WorkflowResumed,
    WorkflowScheduled,
    WorkflowStarted,
    WorkflowUnpaused,
)
from penstock.engine.run.state import Run, RunStatus, StepStatus
from tests.simulation.broken import Broken
from tests.simulation.retold.told import begun_with, is_timeout
from tests.simulation.streams import Message, Stream

ROUNDED_S = 0.001
GO_ON = ("timeout", "loop", "workflow")  # the timers of what runs; that of the run is withdrawn
KEPT = ("retry", "approval", "sleep", "wait", "sticky", "lost", "restored")  # until the run goes on

_Execution = tuple[str, int, int]


class Pauses:
    """Those of one run, by its log alone. `count`: how many there were."""

    def __init__(self, definition: WorkflowDef, run_id: str) -> None:
        self._definition, self._run_id = definition, run_id
        self.count = 0
        self.since: float | None = None
        self._ordered: set[_Execution] = set()
        self._began_at = 0.0
        self._stood_s = 0.0
        self._tasks: list[tuple[Message, TaskPayload]] = []
        self._unwanted: list[tuple[Message, TaskPayload]] = []

    def take(self, before: Run | None, run: Run, record: Record) -> None:
        """An event has changed the run. Raises Broken."""
        event = record.event
        if isinstance(event, WorkflowScheduled | WorkflowStarted | WorkflowResumed) and self.since is None:
            self._began_at, self._stood_s = record.at, 0.0
        if before is None:
            return
        self._check_timeout(before, record)
        match event:
            case WorkflowPaused() if self.since is None:
                self.count += 1
                self.since, self._ordered = record.at, set(_queued(before))
                self._unwanted, self._tasks = self._tasks, []
            case WorkflowUnpaused() if self.since is not None:
                self._over(record)
            case WorkflowCancelled() if before.status is not RunStatus.COMPENSATING and self.since is not None:
                self._over(record)
            case _ if run.ended:
                self.since = None
            case _ if self.since is not None:
                self._check(before, run, record)

    def queued(self, message: Message, task: TaskPayload) -> None:
        """A task was put into its queue."""
        self._tasks.append((message, task))

    def saved(self, run: Run, streams: Mapping[str, Stream], last: Run) -> None:
        """A snapshot was stored that is the last state: the tasks that were there before the pause were
        withdrawn. Raises Broken."""
        if self.since is None or run.seq != last.seq:
            return
        for message, task in self._unwanted:
            step = run.find(task.step_id)
            execution = None if step is None else (step.status, step.attempts, step.iteration)
            there = streams[message.stream].messages.get(message.seq) is message
            if there and execution == (StepStatus.QUEUED, task.attempt, task.iteration):
                raise self._broken(f"the task {task.step_id} waits for a worker")

    def _over(self, record: Record) -> None:
        assert self.since is not None
        self._stood_s += record.at - max(self.since, self._began_at)
        self.since = None

    def _check(self, before: Run, run: Run, record: Record) -> None:
        match record.event:
            case StepStarted(step_id=step_id, payload=None):
                was = before.step(step_id)
                begins = was.status is StepStatus.QUEUED and run.step(step_id).status is StepStatus.RUNNING
                if begins and (step_id, was.attempts, was.iteration) not in self._ordered:
                    raise self._broken(f"{step_id} begins")
            case _ if begun_with(record) is not None:
                step_id = record.event.step_id  # type: ignore[union-attr]
                was = before.step(step_id)
                begins = was.status is StepStatus.QUEUED
                if begins and (step_id, was.attempts, was.iteration) not in self._ordered:
                    raise self._broken(f"{step_id} begins")
            case TimerFired(payload=fired):
                kind = fired.timer.partition(".")[0].partition("+")[0]
                if kind not in GO_ON and (kind not in KEPT or before.steps != run.steps):
                    raise self._broken(f"{fired.timer} goes off")
            case ApprovalGranted() | ApprovalRejected() | ApprovalExpired() if before.steps != run.steps:
                raise self._broken("a decision takes effect")

    def _check_timeout(self, before: Run, record: Record) -> None:
        """The time of a pause is no part of the workflow's timeout."""
        event, timeout = record.event, self._definition.timeout
        if not is_timeout(event) or before.due is None or timeout is None:
            return
        if self.since is not None:
            raise self._broken("its timeout goes off")
        lasted_s = record.at - self._began_at - self._stood_s
        if lasted_s < parse(timeout) - ROUNDED_S:
            raise Broken(f"retold: its timeout of {timeout} is over after {lasted_s:.3f} s of its own", self._run_id)

    def _broken(self, what: str) -> Broken:
        return Broken(f"retold: {what}, and the run is paused", self._run_id)


def _queued(run: Run) -> Iterator[_Execution]:
    """What a worker may have taken, with what a pause withdraws."""
    for step_id, step in run.steps.items():
        if step.status is StepStatus.QUEUED and step.due is None:
            yield step_id, step.attempts, step.iteration
        if step.items is not None:
            for number, _ in step.items.numbered():
                item = run.step(f"{step_id}.{number}")
                if item.status is StepStatus.QUEUED:
                    yield f"{step_id}.{number}", item.attempts, item.iteration
