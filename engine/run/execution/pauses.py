"""Pauses: the timeout of a step does not run while its worker has put the task aside.

Only events of the worker that has the task now apply. Each delivery of a task has a number. An event about another
delivery than the one begun last is late: it is a duplicate, or comes from a worker that has lost the task.
"""

from __future__ import annotations

from msgspec.structs import replace

from penstock.engine.run.events import Record, StepPaused, StepStarted
from penstock.engine.run.execution.elements import with_step
from penstock.engine.run.state import Run, StepState, StepStatus
from penstock.engine.run.timers import retimed
from penstock.engine.run.workflow import Advance, StepPlan

NONE_YET = 0  # for a task that replaces one that its worker has lost: that worker's events are late


def paused(run: Run, record: Record, event: StepPaused, plan: StepPlan) -> Advance:
    """Stop the timeout, and record the time that is left for when the task is begun again."""
    before = run.step(plan.id)
    if before.status is not StepStatus.RUNNING or before.due is None or not _has_it(before, event):
        return run, []
    left = max(before.due - record.at, 0.0)
    step = replace(before, due=None, left=left, pauses=before.pauses + 1)
    return with_step(run, record, plan.id, step), retimed(run, plan.id, before, step)


def begun_again(run: Run, record: Record, event: StepStarted, plan: StepPlan) -> Advance:
    """A later delivery of a task was begun. The timeout changes only after a pause."""
    before = run.step(plan.id)
    delivery = event.delivery
    if delivery <= before.delivery or (before.delivery == NONE_YET and event.worker_id == before.worker_id):
        return run, []
    due = before.due if before.left is None else record.at + before.left
    step = replace(before, delivery=delivery, worker_id=event.worker_id or before.worker_id, due=due, left=None)
    return with_step(run, record, plan.id, step), retimed(run, plan.id, before, step)


def _has_it(step: StepState, event: StepPaused) -> bool:
    return event.delivery == step.delivery and event.worker_id in (None, step.worker_id)
