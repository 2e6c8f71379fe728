"""Tasks in memory: queued, delivered to the one worker that there is, and reported as workers report them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, assert_never

from msgspec import Raw

from penstock.broker.worker_messages import NON_RETRIABLE, TaskPayload
from penstock.broker.worker_protocol import reports
from penstock.config.limits import ACK_WAIT_S, DELIVERIES_MAX
from penstock.engine.run.commands import (
    CancelTask,
    DispatchTask,
    WithdrawQueued,
    WithdrawSticky,
    WithdrawTask,
    is_within,
)
from penstock.engine.run.event_payloads import Failure
from penstock.engine.run.events import Event
from penstock.testing.memory.calling import Calls
from penstock.testing.memory.engine import EngineInMemory, RunInMemory
from penstock.testing.memory.outcomes import called
from penstock.testing.memory.script import AnswerTask, DelayTask, FailTask, LoseTask, RepeatTask, Script
from penstock.worker.functions import TaskFunction
from penstock.worker.outcomes import Outcome, TaskCompleted, TaskContinued, TaskPaused

WORKER_ID = "test-worker"
NEVER_ANSWERED = f"delivered {DELIVERIES_MAX} times without an answer"
ExecutionKey: TypeAlias = tuple[str, int, int]


class TaskInMemory:
    """One task, from its dispatch until it is reported, or not wanted any more. `begun`: a worker has it. `started_at`:
    when it was begun, as long as nothing has said so. `withdrawn`: it is not delivered any more. `reason`: why its
    result is not wanted."""

    __slots__ = (
        "begun",
        "command",
        "deliveries",
        "lost",
        "names",
        "payload",
        "reason",
        "run_id",
        "started_at",
        "withdrawn",
    )

    def __init__(self, of: RunInMemory, command: DispatchTask) -> None:
        assert isinstance(command.input, Raw)
        self.run_id, self.command = of.run_id, command
        map_id = command.step_id.rpartition(".")[0] if command.item is not None else ""
        self.names = [name for name in (command.step_id, map_id, command.task) if name]
        self.payload = TaskPayload(
            task_id=f"{of.run_id}.{command.step_id}",
            run_id=of.run_id,
            step_id=command.step_id,
            iteration=command.iteration,
            attempt=command.attempt,
            input=command.input,
            workflow_name=of.known.workflow_id,
            metadata=command.metadata,
            step_type=command.step_type,
            item=command.item,
            previous_error=command.previous_error,
        )
        self.deliveries = self.lost = 0
        self.begun = self.withdrawn = False
        self.reason: str | None = None
        self.started_at: str | None = None

    @property
    def key(self) -> ExecutionKey:
        return self.command.step_id, self.command.iteration, self.command.attempt


class TasksInMemory:
    """Owned by a service in memory. `functions` are by task type; `waiting` are tasks that no function carries out."""

    def __init__(
        self, engine: EngineInMemory, calls: Calls, script: Script, functions: Mapping[str, TaskFunction]
    ) -> None:
        self._engine, self._calls, self._script, self._functions = engine, calls, script, functions
        self._tasks: dict[str, dict[ExecutionKey, TaskInMemory]] = {}
        self.waiting: list[TaskInMemory] = []

    def dispatch(self, of: RunInMemory, command: DispatchTask) -> None:
        """Queue a task, unless it is queued and is ordered once more."""
        task = TaskInMemory(of, command)
        tasks = self._tasks.setdefault(of.run_id, {})
        if command.again and (known := tasks.get(task.key)) is not None and not known.withdrawn:
            return
        tasks[task.key] = task
        self._deliver_soon(task)

    def deliver_waiting(self) -> None:
        """There may be a function, or an answer, for tasks that waited for one."""
        waiting, self.waiting = self.waiting, []
        for task in waiting:
            self._deliver_soon(task)

    def without_function(self, run_id: str | None = None) -> list[tuple[str, str]]:
        """Steps and task types of tasks that wait for a function, of one run or of all."""
        return [
            (task.command.step_id, task.command.task)
            for task in self.waiting
            if run_id in (None, task.run_id) and not task.withdrawn
        ]

    def cancel(self, run_id: str, command: CancelTask) -> None:
        """The result of this execution is not wanted any more."""
        task = self._tasks.get(run_id, {}).get((command.step_id, command.iteration, command.attempt))
        if task is not None and task.begun and task.reason is None:
            task.reason = command.reason
            self._calls.cancel(task, command.reason)

    def withdraw(self, run_id: str, command: WithdrawTask) -> None:
        for task in self._of(run_id, command.task, command.group, command.worker):
            if command.of_step is None or is_within(task.command.step_id, command.of_step):
                self._withdraw(task)

    def withdraw_queued(self, run_id: str, command: WithdrawQueued) -> None:
        for task in self._of(run_id, command.task, command.group, command.worker):
            if not task.begun:
                self._withdraw(task)

    def withdraw_sticky(self, run_id: str, command: WithdrawSticky) -> None:
        task = self._tasks.get(run_id, {}).get((command.step_id, command.iteration, command.attempt))
        if task is not None and task.command.worker == command.worker:
            self._withdraw(task)

    def _of(self, run_id: str, task_type: str, group: str | None, worker: str | None) -> list[TaskInMemory]:
        return [
            task
            for task in self._tasks.get(run_id, {}).values()
            if (task.command.task, task.command.worker) == (task_type, worker)
            and (worker is not None or task.command.group == group)
        ]

    def _withdraw(self, task: TaskInMemory) -> None:
        task.withdrawn = True
        if not task.begun:
            self._forget(task)

    def _forget(self, task: TaskInMemory) -> None:
        tasks = self._tasks.get(task.run_id, {})
        if tasks.get(task.key) is task:
            del tasks[task.key]
            if not tasks:
                del self._tasks[task.run_id]

    def _deliver_soon(self, task: TaskInMemory, delay_s: float = 0.0) -> None:
        self._engine.timeline.after(delay_s, lambda: self._deliver(task))

    def _deliver(self, task: TaskInMemory) -> None:
        if task.withdrawn or task.reason is not None:
            return
        if task.command.task not in self._functions and not self._script.answers(task.names):
            self.waiting.append(task)
            return
        task.deliveries += 1
        task.begun = True
        if task.lost >= DELIVERIES_MAX:
            self._report(task, Failure(error=NEVER_ANSWERED, failure_type=NON_RETRIABLE))
            return
        task.started_at = self._engine.timeline.stamp
        self._carry_out(task)  # as a worker, whose answer says when it began if it comes at once
        self._report_start(task)

    def _report_start(self, task: TaskInMemory) -> None:
        if task.started_at is not None:
            started = reports.started(task.payload, self._worker(task), task.started_at, delivery=task.deliveries)
            task.started_at = None
            self._engine.append(started)

    def _carry_out(self, task: TaskInMemory) -> None:
        scripted = self._script.take(task.names, (FailTask, AnswerTask, LoseTask))
        if isinstance(scripted, LoseTask):
            task.lost += 1
            function = self._functions.get(task.command.task) if scripted.after_call else None
            if function is not None:
                self._calls.call(function, task, lambda _: self._deliver_soon(task, ACK_WAIT_S))
            else:
                self._deliver_soon(task, ACK_WAIT_S)
            return
        delayed = self._script.take(task.names, (DelayTask,))
        delay_s = 0.0 if delayed is None else delayed.delay_s
        if isinstance(scripted, FailTask):
            self._report_after(task, scripted.failure, delay_s)
        elif isinstance(scripted, AnswerTask):
            self._report_after(task, called(task.command.task, scripted.value, task.payload), delay_s)
        elif (function := self._functions.get(task.command.task)) is None:
            self._deliver_soon(task)  # what was said about it is used up: it waits
        else:
            self._calls.call(function, task, lambda outcome: self._report_after(task, outcome, delay_s))

    def _report_after(self, task: TaskInMemory, outcome: Outcome, delay_s: float) -> None:
        if delay_s:
            self._engine.timeline.after(delay_s, lambda: self._report(task, outcome))
        else:
            self._report(task, outcome)

    def _report(self, task: TaskInMemory, outcome: Outcome) -> None:
        """Report the outcome, unless the execution was cancelled."""
        if task.reason is not None:
            task.started_at = None
            self._forget(task)
            return
        if isinstance(outcome, TaskPaused):
            self._report_start(task)
            if outcome.checkpoint is not None:
                self._calls.checkpoints[task.run_id, task.command.step_id] = outcome.checkpoint
            self._engine.append(self._event(task, outcome))
            self._deliver_soon(task, outcome.delay_s)
            return
        self._engine.append(self._event(task, outcome))
        repeat = self._script.take(task.names, (RepeatTask,))
        if repeat is None:
            self._forget(task)
        else:
            self._deliver_soon(task, repeat.after_s)

    def _event(self, task: TaskInMemory, outcome: Outcome) -> Event:
        at, worker, delivery = self._engine.timeline.stamp, self._worker(task), task.deliveries
        began, task.started_at = task.started_at, None
        match outcome:
            case TaskCompleted():
                value = outcome.output
                return reports.completed(task.payload, worker, value, at, started_at=began, delivery=delivery)
            case TaskContinued():
                value = outcome.value
                return reports.continued(task.payload, worker, value, at, started_at=began, delivery=delivery)
            case TaskPaused():
                return reports.paused(task.payload, worker, outcome.delay_s, outcome.name, delivery=delivery, at=at)
            case Failure():
                return reports.failed(task.payload, worker, outcome, at, started_at=began, delivery=delivery)
            case _:
                assert_never(outcome)

    def _worker(self, task: TaskInMemory) -> str:
        return task.command.worker or WORKER_ID
