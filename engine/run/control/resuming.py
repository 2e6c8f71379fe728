"""A failed run goes on: its failed and cancelled steps begin again."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from penstock.engine.run.commands import (
    Command,
    RemoveDeadLetters,
    TakeOver,
)
from penstock.engine.run.event_payloads import Resumed
from penstock.engine.run.events import (
    Record,
)
from penstock.engine.run.execution.steps import (
    all_done,
    complete_run,
    enter,
    is_ready,
)
from penstock.engine.run.items import ItemStatus
from penstock.engine.run.state import STEP_DONE, Run, RunStatus, StepState, StepStatus
from penstock.engine.run.timers import with_timeout
from penstock.engine.run.workflow import Advance, Workflow


def resume(workflow: Workflow, run: Run, record: Record, payload: Resumed) -> Advance:
    """A failed run continues: failed and cancelled steps begin again, with a new timeout of the run and new retries. A
    step whose handler has not completed begins again itself. What is held does not begin: the next event completes it,
    and of a handler it needs the step that has failed. A run that has waited for its slots was counted, and its dead
    letters removed, when it began to wait."""
    waited, held = run.resuming is not None, _held(workflow, payload.holds)
    removed = [] if waited else removals(workflow, run, payload.dead_letters)
    steps = {
        step_id: step if step.status in STEP_DONE or step_id in held[1:] else _reset(step, step_id in run.fragments)
        for step_id, step in run.steps.items()
    }
    if held and held[0] in steps and steps[held[0]].status is StepStatus.PENDING:
        steps[held[0]] = replace(steps[held[0]], base=steps[held[0]].attempts)
    run = replace(
        run,
        status=RunStatus.RUNNING,
        steps=steps,
        error=None,
        finished_at=None,
        resumes=run.resumes + (not waited),
        resuming=None,
        seq=record.seq,
    )
    if all_done(workflow, run):
        return run, [complete_run(workflow, run, record)]
    run, timers = with_timeout(run, workflow.timeout_s, record.at)
    if run.taking is not None:
        return run, [*removed, *timers, TakeOver()]
    ready = [
        step_id
        for step_id, step in steps.items()
        if step.status is StepStatus.PENDING and step_id not in held and is_ready(run, workflow.steps[step_id])
    ]  # no handler is pending
    run, commands = enter(workflow, run, ready, record)
    return run, removed + timers + commands


def _held(workflow: Workflow, held: str | None) -> tuple[str, ...]:
    """The step that is held; of a handler also the step that it handles."""
    plan = None if held is None else workflow.plan_of(held)
    if held is None or plan is None:
        return ()
    return (held,) if plan.handles is None else (held, plan.handles)


def removals(workflow: Workflow, run: Run, up_to: int) -> list[Command]:
    """Remove the dead letters of the failed steps. The process that resumed the run also removes them before it
    answers, but it may have died before that."""
    if up_to <= 0:
        return []
    return [RemoveDeadLetters(step_id, task, up_to) for step_id, task in _failed(workflow, run)]


def _failed(workflow: Workflow, run: Run) -> Iterator[tuple[str, str]]:
    """The steps that have failed, and the elements of maps that begin again, with their task types."""
    for step_id, step in run.steps.items():
        plan = workflow.plan_of(step_id)
        if plan is None:
            continue
        if step.status is StepStatus.FAILED:
            yield step_id, plan.task
        if step.items is not None and step.status not in STEP_DONE and plan.each is not None:
            failed = (n for n, element in step.items.numbered() if element.status == ItemStatus.FAILED)
            yield from ((f"{step_id}.{n}", plan.each.task) for n in failed)


def _reset(step: StepState, expanded_: bool) -> StepState:
    if expanded_:  # a planner whose plan is being carried out: it goes on with that
        return replace(step, status=StepStatus.RUNNING, finished_at=None)
    unbegun = step.unbegun + step.ended_in_queue
    if step.handles is not None:  # it begins anew when its step has failed for good again
        attempts = step.attempts
        return StepState(StepStatus.CANCELLED, attempts, base=attempts, unbegun=unbegun, handles=step.handles)
    return StepState(
        attempts=step.attempts,
        iteration=step.iteration,
        carried=step.carried,
        carried_at=step.carried_at,
        unbegun=unbegun,
        items=None if step.items is None else step.items.afresh(),
        waits_for=step.waits_for,
    )
