"""Unserved tasks: tasks of hard sticky runs whose worker asks for tasks of other types, but not for theirs.

They would wait for ever, so their steps fail. A worker that asks for no tasks at all is away, and is waited for. A
worker that starts or stops asks for some of its types for a moment, so a step fails after UNSERVED_S only. Every engine
checks for them; a step fails once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NoReturn

from penstock.actors.maintenance.rounds import Throttle, repeat_rounds
from penstock.actors.runs.loading import load_many
from penstock.broker.store import Store
from penstock.config.logging import get_logger
from penstock.engine.errors import NotFound
from penstock.engine.run.commands import WithdrawSticky
from penstock.engine.run.event_payloads import Failure
from penstock.engine.run.events import StepFailed
from penstock.engine.run.expansion import expanded
from penstock.engine.run.state import STEP_OUT, Run, StepState
from penstock.engine.run.workflow import Workflow
from penstock.engine.times import rfc3339

EVERY_S = 1.0
UNSERVED_S = 3.0
RUNS_MAX = 500  # that are read at a time, of one type and worker

log = get_logger()


async def watch_unserved_tasks(store: Store) -> NoReturn:
    """Fail unserved steps, for ever; the check is made every EVERY_S."""
    unserved = UnservedTasks(store)

    async def check(throttle: Throttle) -> None:
        await unserved.fail(time.monotonic())

    await repeat_rounds("unserved_tasks", check, EVERY_S)


class UnservedTasks:
    """Remembers since when a worker does not ask for a type of which it has tasks."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._since: dict[tuple[str, str], float] = {}

    async def fail(self, now: float) -> int:
        """Fail the steps that were unserved for UNSERVED_S at `now` (s, monotonic). Returns how many. Raises
        Unavailable."""
        waiting = await self._store.sticky_tasks.waiting()
        if not waiting:
            self._since = {}
            return 0
        taken = await self._store.sticky_tasks.taken()
        workers = taken.workers()
        unserved = [
            (task, worker_id) for task, worker_id in waiting if worker_id in workers and not taken.has(task, worker_id)
        ]
        self._since = {queue: self._since.get(queue, now) for queue in unserved}
        due = [queue for queue, since in self._since.items() if now - since >= UNSERVED_S]
        return sum([await self._fail(*queue, waiting[queue]) for queue in due])

    async def _fail(self, task: str, worker_id: str, run_ids: Sequence[str]) -> int:
        """Fail the steps of these runs that wait for this worker, and remove their tasks. Returns how many failed."""
        failed = 0
        for run in await load_many(self._store, sorted(run_ids)[:RUNS_MAX]):
            workflow = await self._workflow(run)
            for step_id, step in list(run.steps_and_items()):
                plan = None if workflow is None else workflow.plan_of(step_id)
                if workflow is not None and plan is not None and plan.task == task:
                    failed += await self._fail_step(run, workflow, step_id, step, worker_id)
        return failed

    async def _fail_step(self, run: Run, workflow: Workflow, step_id: str, step: StepState, worker_id: str) -> bool:
        """Fail the step if it is bound to this worker; remove its task then, and where it does not wait any more."""
        plan = workflow.plan_of(step_id)
        assert plan is not None, "it was found by its task"
        task = plan.task
        waits = step.status in STEP_OUT and not run.ended
        bound = waits and workflow.sticky == "hard" and step.sticky == worker_id
        if bound:
            log.warning("task_type_not_served", run_id=run.run_id, step_id=step_id, worker_id=worker_id, task=task)
            await self._store.history.append(_failure(run, step_id, step, _error(task, worker_id)))
        elif waits:  # of a softly sticky run: it does not wait for long
            return False
        withdrawal = WithdrawSticky(step_id, task, step.attempts, step.iteration, worker_id)
        await self._store.tasks.withdraw_sticky(run.run_id, withdrawal, lambda: None)
        return bound

    async def _workflow(self, run: Run) -> Workflow | None:
        try:
            return expanded(await self._store.definitions.load(run.workflow_id, run.digest), run)
        except NotFound:
            return None


def _error(task: str, worker_id: str) -> str:
    return (
        f'worker "{worker_id}", to which the run is bound (sticky: hard), takes other tasks, but none of type "{task}"'
    )


def _failure(run: Run, step_id: str, step: StepState, error: str) -> StepFailed:
    return StepFailed(
        run_id=run.run_id,
        step_id=step_id,
        timestamp=rfc3339(time.time()),
        attempt_number=step.attempts,
        iteration=step.iteration or None,
        payload=Failure(error=error, failure_type="non_retriable"),
    )
