"""A step is completed by hand: its attempt is given up, the output that somebody gives it is its own, and the run goes
on."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.engine.definition.identifiers import quoted
from penstock.engine.run.commands import CancelChild, CancelTask, Command, WithdrawTask, WithdrawTimer
from penstock.engine.run.events import Record, StepOverridden
from penstock.engine.run.execution.elements import with_step
from penstock.engine.run.execution.ending import cancelled
from penstock.engine.run.execution.steps import completed, is_ready
from penstock.engine.run.state import STEP_DONE, STEP_OUT, Run, RunStatus, StepState, StepStatus
from penstock.engine.run.timers import item_timers, retimed
from penstock.engine.run.workflow import Advance, StepPlan, Workflow


def override(workflow: Workflow, run: Run, record: Record, event: StepOverridden) -> Advance:
    """Complete the step with the output of the event; where that is not possible nothing changes."""
    if refusal(workflow, run, event.step_id) is not None:
        return run, []
    plan, step = workflow.plan_of(event.step_id), run.steps[event.step_id]
    assert plan is not None, "refused otherwise"
    run, commands = _given_up(workflow, run, record, plan, step)
    run, following = completed(workflow, run, record, plan, event.payload.output)
    return run, commands + following


def refusal(workflow: Workflow, run: Run, step_id: str) -> str | None:
    """Why the step of a running run cannot be completed by hand; None if it can."""
    step, plan = run.steps.get(step_id), workflow.plan_of(step_id)
    if step is None or plan is None:
        return _not_a_step(run, step_id)
    if run.taking is not None:
        return f"run {run.run_id} is still taking over steps of run {run.rerun_of}"
    if run.compensation is not None:
        return f"run {run.run_id} undoes its steps, or has undone them: rerun it"
    if step.status in STEP_DONE:
        return f"step {quoted(step_id)} has completed already: it is {step.status}"
    if run.failing:
        return f"run {run.run_id} is about to fail: read it again, then repeat this"
    if run.status is not RunStatus.RUNNING:
        return f"run {run.run_id} is {run.status}"
    if step_id in run.fragments:
        return f"the plan of step {quoted(step_id)} is part of the run: its steps can be completed, by hand too"
    return too_early(run, plan)


def _not_a_step(run: Run, step_id: str) -> str:
    place = run.element(step_id)
    if place is not None:
        return (
            f"{quoted(step_id)} is an element of a map: only the whole map {quoted(place[0])} can be completed by hand"
        )
    return f"run {run.run_id} has no step {quoted(step_id)}"


def too_early(run: Run, plan: StepPlan) -> str | None:
    """What the step depends on that has not ended yet; None: nothing."""
    if plan.handles is not None:
        whole = run.steps[plan.handles]
        failed = whole.status is StepStatus.FAILED
        return None if failed else f"step {quoted(plan.handles)} has not failed: it is {whole.status}"
    if is_ready(run, plan):
        return None
    open_ = next(one for one in plan.depends_on if run.steps[one].status not in STEP_DONE)
    return f"step {quoted(plan.id)} depends on {quoted(open_)}, which is {run.steps[open_].status}"


def _given_up(workflow: Workflow, run: Run, record: Record, plan: StepPlan, step: StepState) -> Advance:
    """Withdraw what was ordered for the step, or for its handler."""
    commands = _withdrawn(workflow, run, plan, step)
    items = None if step.items is None else step.items.cancelled()
    unbegun = step.unbegun + (step.status is StepStatus.QUEUED)  # the attempt that waited is no execution
    given_up = replace(step, items=items, item_states={}, waits_for=None, unbegun=unbegun, overridden=True)
    run = with_step(run, record, plan.id, given_up)
    if plan.on_failure is None or (handler := run.steps.get(plan.on_failure.id)) is None:
        return run, commands
    if handler.status not in STEP_OUT:
        return run, commands
    stopped = cancelled(handler)
    commands += _withdrawn(workflow, run, plan.on_failure, handler)
    commands += retimed(run, plan.on_failure.id, handler, stopped)
    return with_step(run, record, plan.on_failure.id, stopped), commands


def _withdrawn(workflow: Workflow, run: Run, plan: StepPlan, step: StepState) -> list[Command]:
    if step.status not in STEP_OUT:
        return []
    timers = [WithdrawTimer(timer.timer, timer.due) for timer in item_timers(run, plan.id, step)]
    return [*timers, *(_of_step(plan, command) for command in plan.kind.withdraw(workflow, plan, step))]


def _of_step(plan: StepPlan, command: Command) -> Command:
    match command:
        case WithdrawTask():
            return replace(command, of_step=plan.id)
        case CancelChild() | CancelTask():
            return replace(command, reason="it was completed by hand")
        case _:
            return command
