"""Agent loops: a step that runs again with what its last execution handed on, until it completes or meets a bound."""

from __future__ import annotations

from penstock.engine.definition.durations import text
from penstock.engine.run.dispatch import order, withdrawal
from penstock.engine.run.events import Record, StepContinue
from penstock.engine.run.payloads import given, laid_down, too_large
from penstock.engine.run.state import Run, StepState, StepStatus
from penstock.engine.run.steps import Advance, fail_for_good, last_moment, put
from penstock.engine.run.timers import retimed
from penstock.engine.run.workflow import StepPlan, Workflow

NO_LOOP = "its worker asked for another iteration, which only a step of type agent_loop has"


def continued(workflow: Workflow, run: Run, record: Record, event: StepContinue, plan: StepPlan) -> Advance:
    """Begin the next iteration, at once or after the loop's delay. The retries begin anew with it."""
    before, loop = run.steps[plan.id], plan.loop
    if loop is None:
        return _no_loop(run, record, event, plan)
    if run.error is not None:  # it is about to end, and nothing new begins
        return run, []
    if loop.iterations_max is not None and before.iteration + 1 >= loop.iterations_max:
        return fail_for_good(run, record, plan, f"agent loop reached its max_iterations ({loop.iterations_max})")
    if before.until is not None and record.at >= before.until:
        return fail_for_good(run, record, plan, _too_long(plan))
    if problem := too_large("what the loop continues with", event.payload):
        return fail_for_good(run, record, plan, problem)
    carried, carried_at = laid_down(given(event), record.seq)
    step = StepState(
        status=StepStatus.QUEUED,
        attempts=1,
        iteration=before.iteration + 1,
        started_at=before.started_at,
        worker_id=before.worker_id,
        carried=carried,
        carried_at=carried_at,
        due=record.at + loop.delay_s if loop.delay_s > 0 else None,
        until=last_moment(record, before, plan),
    )
    commands = retimed(run, plan.id, before, step)
    if step.due is None:
        step, ordered = order(workflow, run, record, plan, step)
        commands += ordered
    return put(run, record, plan.id, step), commands


def _no_loop(run: Run, record: Record, event: StepContinue, plan: StepPlan) -> Advance:
    """The answer of an execution that is out is the only one: unheard, the run would wait for ever. Other words are
    noise."""
    is_answer = event.attempt_number is not None or run.steps[plan.id].status is StepStatus.RUNNING
    return fail_for_good(run, record, plan, NO_LOOP) if is_answer else (run, [])


def out_of_time(workflow: Workflow, run: Run, record: Record, plan: StepPlan) -> Advance:
    """The loop's last moment has come, whatever its step is doing. A task that still waits is taken back."""
    before = run.steps[plan.id]
    run, commands = fail_for_good(run, record, plan, _too_long(plan))
    return run, [*commands, *withdrawal(workflow, plan, before)]


def _too_long(plan: StepPlan) -> str:
    assert plan.loop is not None
    return f"agent loop exceeded its max_duration ({text(plan.loop.duration_s or 0)})"
