"""Executions that are given up while a worker carries them out: it is notified, and whoever asks later can find out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from penstock.engine.run.commands import CancelTask, Command
from penstock.engine.run.events import Event, StepStarted
from penstock.engine.run.expansion import expanded
from penstock.engine.run.items import ItemStatus
from penstock.engine.run.state import Run, RunStatus, StepState, StepStatus
from penstock.engine.run.workflow import StepPlan, Workflow

REPLACED = "another execution has taken its place"
WITHDRAWN = "the step was cancelled"
REASON_CHARS_MAX = 500


def cancelled_task(plan: StepPlan, step: StepState, reason: str = WITHDRAWN) -> list[CancelTask]:
    """Notify the worker that carries the step out; nothing if none has begun it, or it gave no id."""
    if step.status is not StepStatus.RUNNING or step.worker_id is None:
        return []
    return [CancelTask(plan.id, step.attempts, step.iteration, step.worker_id, reason=reason)]


def cancelled_elements(plan: StepPlan, step: StepState) -> Iterator[CancelTask]:
    """Notify the workers that carry out elements of this map. Most elements do not know theirs: the history does."""
    assert step.items is not None
    for number, element in step.items.numbered():
        if element.status == ItemStatus.RUNNING:
            state = step.item_states.get(number)
            worker = None if state is None else state.worker_id
            yield CancelTask(f"{plan.id}.{number}", element.attempts, 0, worker, element.begun, WITHDRAWN)


def begun_in_vain(workflow: Workflow, run: Run, event: Event) -> list[Command]:
    """Notify a worker that has begun what was given up just before, or is not wanted any more."""
    if not isinstance(event, StepStarted) or event.worker_id is None or event.attempt_number is None:
        return []
    attempt, iteration = event.attempt_number, event.iteration or 0
    why = given_up(run, event.step_id, attempt, iteration)
    if why is None or (why is WITHDRAWN and may_be_undone(workflow, run, event.step_id)):
        return []
    return [CancelTask(event.step_id, attempt, iteration, event.worker_id, reason=why)]


def for_reason(commands: Iterable[Command], reason: str) -> list[Command]:
    """The commands with this reason for workers, who are notified first: withdrawing tasks takes longer."""
    found = [replace(one, reason=reason) if isinstance(one, CancelTask) else one for one in commands]
    return sorted(found, key=lambda one: not isinstance(one, CancelTask))


def silently(commands: Iterable[Command]) -> list[Command]:
    """The commands without those that notify workers: what these carry out is waited for."""
    return [one for one in commands if not isinstance(one, CancelTask)]


def why_ended(status: RunStatus, error: str | None) -> str:
    """Why a worker need not go on when its run has ended so: what whoever cancelled it said, or a sentence."""
    if status is RunStatus.CANCELLED:
        return error[:REASON_CHARS_MAX] if error else "the run was cancelled"
    return f"the run has failed: {error}"[:REASON_CHARS_MAX] if error else f"the run is {status}"


def given_up(run: Run, step_id: str, attempt: int, iteration: int) -> str | None:
    """Why the result of this execution is not wanted any more; None: it is, or this state does not know it yet.

    The state may be some events behind: an execution that is newer than it is wanted. For WITHDRAWN ask `may_be_undone`
    as well, which needs the definition.
    """
    step = run.find(step_id)
    if step is None or (step.iteration, step.attempts) < (iteration, attempt):
        return None
    if (step.iteration, step.attempts) > (iteration, attempt):
        return REPLACED
    if run.ended:
        return why_ended(run.status, run.error)
    match step.status:
        case StepStatus.PENDING | StepStatus.QUEUED | StepStatus.RUNNING:
            return None
        case StepStatus.CANCELLED:
            return WITHDRAWN
        case status:
            return f"the step is {status}"


def may_be_undone(workflow: Workflow, run: Run, step_id: str) -> bool:
    """Whether a step that was cancelled would nevertheless be undone if its worker completed it."""
    plan = expanded(workflow, run).plan_of(step_id)
    if plan is None or not plan.kind.outlives(plan):
        return False
    return run.element(step_id) is not None or run.step(step_id).started_at is None
