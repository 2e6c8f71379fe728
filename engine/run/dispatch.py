"""Orders an execution of a step from workers: by the queue of its task type, or from the worker that its run is bound
to."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.config.limits import STICKY_FALLBACK_S
from penstock.engine.run.commands import DispatchTask, WithdrawSticky, WithdrawTask
from penstock.engine.run.events import Record
from penstock.engine.run.inputs import step_input
from penstock.engine.run.state import Run, StepState
from penstock.engine.run.timers import step_timers
from penstock.engine.run.workflow import Ordered, StepPlan, Workflow


def order_task(workflow: Workflow, run: Run, record: Record, plan: StepPlan, step: StepState) -> Ordered:
    """Order a task for the execution that `step` describes (queued, without `due`). Returns the step with what was
    ordered."""
    if run.bound is None or plan.group != run.bound_group:
        return step, [_task(run, plan, step)]
    if workflow.sticky != "soft":
        step = replace(step, sticky=run.bound)
        return step, [_task(run, plan, step)]
    step = replace(step, sticky=run.bound, fallback=record.at + STICKY_FALLBACK_S)
    return step, [_task(run, plan, step, or_anyone=True), *step_timers(run, plan.id, step)[-1:]]


def fall_back(run: Run, plan: StepPlan, step: StepState) -> Ordered:
    """The bound worker has not begun the task in time, or has left: withdraw it, and order it from any worker."""
    assert step.sticky is not None
    withdrawn = WithdrawSticky(plan.id, plan.task, step.attempts, step.iteration, step.sticky)
    step = replace(step, sticky=None, fallback=None, delivery=0)
    return step, [withdrawn, _task(run, plan, step)]


def withdrawn_tasks(workflow: Workflow, plan: StepPlan, step: StepState) -> list[WithdrawTask]:
    """Withdraw the tasks of a step whose run has ended. A task that may be in both queues is withdrawn from both."""
    queued = [] if step.sticky is not None and workflow.sticky != "soft" else [WithdrawTask(plan.task, plan.group)]
    return queued if step.sticky is None else [*queued, WithdrawTask(plan.task, worker=step.sticky)]


def _task(run: Run, plan: StepPlan, step: StepState, or_anyone: bool = False) -> DispatchTask:
    value = step_input(run, plan, step)
    return DispatchTask(
        plan.id,
        plan.task,
        step.attempts,
        step.iteration,
        value,
        plan.metadata,
        plan.group,
        step.sticky,
        plan.kind.name,
        or_anyone,
    )
