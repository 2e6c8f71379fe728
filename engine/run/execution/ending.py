"""What becomes of the open steps of a run that ends: they are cancelled, and what was ordered for them is withdrawn."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET
from msgspec.structs import replace

from penstock.engine.run.commands import AppendEvent, CancelChild, Command, WithdrawTimer
from penstock.engine.run.event_payloads import ParentRef, RunFailure
from penstock.engine.run.events import Record, WorkflowFailed
from penstock.engine.run.execution.cancelling import for_reason, why_ended
from penstock.engine.run.execution.children import child_ended
from penstock.engine.run.state import STEP_ENDED, STEP_OUT, Run, RunStatus, StepState, StepStatus
from penstock.engine.run.timers import item_timers, retimed, workflow_timer_name
from penstock.engine.run.workflow import Advance, Workflow
from penstock.engine.texts import shortened


def end(
    workflow: Workflow, run: Run, record: Record, status: RunStatus, error: str | None, *, compensate: bool = True
) -> Advance:
    """The run has ended: cancel its open steps, and withdraw their tasks and timers. With `compensate` its children
    undo their steps."""
    finished_at = record.event.timestamp
    steps, commands = run.steps, list[Command]()
    if run.due is not None:
        commands.append(WithdrawTimer(workflow_timer_name(run), run.due))
    if isinstance(run.parent, ParentRef) and not run.parent.detached:
        commands.append(AppendEvent(child_ended(run, run.parent, record, status, error)))
    if status is not RunStatus.COMPLETED:
        withdrawn = _withdraw_all(workflow, run)
        commands += withdrawn if compensate else [_plainly(command) for command in withdrawn]
        steps = {step_id: step if step.status in STEP_ENDED else cancelled(step) for step_id, step in run.steps.items()}
    stored = None if error is None else shortened(error)
    ended = replace(
        run, status=status, steps=steps, error=stored, finished_at=finished_at, due=None, resuming=None, seq=record.seq
    )
    return ended, for_reason(commands, why_ended(status, error))


def cancelled(step: StepState) -> StepState:
    """An open step of a run that ends."""
    items = None if step.items is None else step.items.cancelled()
    return replace(
        step,
        status=StepStatus.CANCELLED,
        output=UNSET,
        output_at=None,
        items=items,
        item_states={},
        due=None,
        left=None,
        until=None,
        fallback=None,
        wake_at=None,
    )


def fail_run(run: Run, record: Record, error: str, step_id: str | None, compensation: str | None = None) -> AppendEvent:
    payload = RunFailure(error=error, step_id=step_id, resumes=run.resumes, compensation=compensation)
    return AppendEvent(WorkflowFailed(run_id=run.run_id, timestamp=record.event.timestamp, payload=payload))


def _plainly(command: Command) -> Command:
    return replace(command, compensate=False) if isinstance(command, CancelChild) else command


def _withdraw_all(workflow: Workflow, run: Run) -> Sequence[Command]:
    """Withdraw every timer, and the tasks once for each type (and group), however many steps share it."""
    out = [
        (plan, step)
        for step_id, step in run.steps.items()
        if step.status in STEP_OUT and (plan := workflow.plan_of(step_id)) is not None
    ]
    timers = [command for plan, step in out for command in retimed(run, plan.id, step, cancelled(step))]
    timers += [WithdrawTimer(timer.timer, timer.due) for plan, step in out for timer in item_timers(run, plan.id, step)]
    return [
        *timers,
        *dict.fromkeys(command for plan, step in out for command in plan.kind.withdraw(workflow, plan, step)),
    ]
