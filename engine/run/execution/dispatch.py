"""Orders an execution of a step from workers: by the queue of its task type, or from the worker that its run is bound
to."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.config.limits import STICKY_FALLBACK_S
from penstock.engine.run.commands import BeginStep, DispatchTask, WithdrawSticky, WithdrawTask
from penstock.engine.run.events import Record
from penstock.engine.run.execution.inputs import step_input
from penstock.engine.run.payloads import Value
from penstock.engine.run.state import Run, StepState
from penstock.engine.run.timers import step_timers
from penstock.engine.run.workflow import Ordered, StepPlan, Workflow


def order_task(workflow: Workflow, run: Run, record: Record, plan: StepPlan, step: StepState) -> Ordered:
    """Order a task for the execution that `step` describes (queued, without `due`). Returns the step with what was
    ordered."""
    if run.bound is None or plan.group != run.bound_group:
        return step, [_ordered(run, record, plan, step)]
    if workflow.sticky != "soft":
        step = replace(step, sticky=run.bound)
        return step, [_ordered(run, record, plan, step)]
    step = replace(step, sticky=run.bound, fallback=record.at + STICKY_FALLBACK_S)
    return step, [_ordered(run, record, plan, step), *step_timers(run, plan.id, step)[-1:]]


def fall_back(run: Run, record: Record, plan: StepPlan, step: StepState) -> Ordered:
    """The bound worker has not begun the task in time, or has left: withdraw it, and order it from any worker. Before
    a pause the same may have been ordered from any worker, and withdrawn."""
    assert step.sticky is not None
    withdrawn = WithdrawSticky(plan.id, plan.task, step.attempts, step.iteration, step.sticky)
    step = replace(step, sticky=None, fallback=None, delivery=0)
    return step, [withdrawn, replace(_ordered(run, record, plan, step), again=run.pauses)]


def withdrawn_tasks(workflow: Workflow, plan: StepPlan, step: StepState) -> list[WithdrawTask]:
    """Withdraw the tasks of a step whose run has ended. A task that may be in both queues is withdrawn from both."""
    queued = [] if step.sticky is not None and workflow.sticky != "soft" else [WithdrawTask(plan.task, plan.group)]
    return queued if step.sticky is None else [*queued, WithdrawTask(plan.task, worker=step.sticky)]


def begin_step(record: Record, plan: StepPlan, step: StepState) -> BeginStep:
    """Order that the step's expressions are evaluated, and the execution then begun."""
    return BeginStep(plan.id, step.attempts, step.iteration, record.at)


def _ordered(run: Run, record: Record, plan: StepPlan, step: StepState) -> DispatchTask | BeginStep:
    return begin_step(record, plan, step) if plan.evaluates else task_with(run, plan, step)


def task_with(run: Run, plan: StepPlan, step: StepState, value: Value | None = None) -> DispatchTask:
    """The task of this execution, with its default input where no other is given."""
    return DispatchTask(
        plan.id,
        plan.task,
        step.attempts,
        step.iteration,
        step_input(run, plan, step) if value is None else value,
        plan.metadata,
        plan.group,
        step.sticky,
        plan.kind.name,
        or_anyone=step.fallback is not None,
        item=plan.item,
        previous_error=step.error if plan.kind.reports_error else None,
    )
