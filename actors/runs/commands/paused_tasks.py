"""The queued tasks of runs that are paused: withdrawn, and queued again when the run goes on."""

from __future__ import annotations

from typing import TypeAlias

from penstock.actors.runs.shared.lease import ShardLease
from penstock.broker.store import Store
from penstock.broker.worker_messages import TaskPayload
from penstock.config.process.crash_points import reached
from penstock.engine.run.commands import BeginStep, Command, DispatchTask, WithdrawQueued
from penstock.engine.run.state import Run, StepStatus

REMEMBERED_MAX = 64  # runs that go on in this moment

_Queue: TypeAlias = tuple[str, str | None, str | None]
_Executions: TypeAlias = set[tuple[str, int, int]]


class PausedTasks:
    """Owned by a shard."""

    def __init__(self, store: Store, lease: ShardLease) -> None:
        self._store, self._lease = store, lease
        self._queued: dict[str, dict[_Queue, _Executions]] = {}

    def forget(self, run_id: str) -> None:
        """Look anew for what is queued of the run: commands that failed may be repeated."""
        self._queued.pop(run_id, None)

    def looks(self, run: Run, command: Command) -> bool:
        """Whether carrying out the command looks for the run's tasks among those that are stored."""
        match command:
            case WithdrawQueued():
                return True
            case DispatchTask() | BeginStep() if command.again:
                return run.run_id not in self._queued
            case _:
                return False

    async def withdraw(self, run: Run, command: WithdrawQueued) -> None:
        """Withdraw the tasks of the run that no worker has taken. Raises Unavailable."""

        def waits(task: TaskPayload) -> bool:
            step = run.find(task.step_id)
            if step is None or step.status is not StepStatus.QUEUED:
                return False
            return (step.attempts, step.iteration) == (task.attempt, task.iteration)

        await self._store.tasks.withdraw_queued(run.run_id, command, waits, self._lease.check)
        self.forget(run.run_id)
        reached("pause.withdrawn")

    async def is_queued(self, run: Run, command: DispatchTask) -> bool:
        """Whether the task is in its queue, or a worker has it: then it need not be queued again. A queue is read once
        for all its tasks that are ordered together. Raises Unavailable."""
        queue = (command.task, command.group, command.worker)
        found = self._queued.get(run.run_id, {}).get(queue)
        if found is None:
            found = await self._store.tasks.queued(run.run_id, command)
            self._lease.check()
            self._remember(run.run_id, queue, found)
        execution = (command.step_id, command.attempt, command.iteration)
        if execution in found:
            return True
        found.add(execution)  # the caller sends it now
        return False

    def _remember(self, run_id: str, queue: _Queue, found: _Executions) -> None:
        self._queued.setdefault(run_id, {})[queue] = found
        if len(self._queued) > REMEMBERED_MAX:
            del self._queued[next(iter(self._queued))]
