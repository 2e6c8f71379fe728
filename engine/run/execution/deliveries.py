"""What a worker reports of its delivery of a task: that it has put it aside, that it has begun it again, or, in its
answer, when it began.

Only events of the worker that has the task now apply. Each delivery of a task has a number. An event about another
delivery than the one begun last is late: it is a duplicate, or comes from a worker that has lost the task.

While a worker has put the task aside, the timeout of the step does not run. An answer that says when the worker began
stands for two events, a start and the answer behind it, and is folded as both: of a short execution the log has one.
That of a usual step (`short_step`) is folded in one pass, with the same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Raw, UnsetType
from msgspec.structs import replace

from penstock.config.limits import OUTPUT_INLINE_BYTES_MAX
from penstock.engine.run.commands import Command, SetTimer, WithdrawTimer
from penstock.engine.run.event_payloads import Failure
from penstock.engine.run.events import (
    Event,
    Record,
    StepCompleted,
    StepContinue,
    StepFailed,
    StepPaused,
    StepStarted,
)
from penstock.engine.run.execution.elements import with_step
from penstock.engine.run.execution.steps import took_too_long
from penstock.engine.run.state import Run, RunStatus, StepState, StepStatus
from penstock.engine.run.timers import retimed
from penstock.engine.run.workflow import Advance, StepPlan, Workflow
from penstock.engine.times import instant, is_utc, utc

Answer: TypeAlias = StepCompleted | StepFailed | StepContinue
ANSWERS = frozenset({StepCompleted, StepFailed, StepContinue})

NORMAL = "normal"  # the kind whose steps complete with the answer of a worker
MINUTE = len("2026-11-22T06:03:")
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


def has_its_start(event: Event) -> bool:
    """Whether the event is an answer that says when the worker began."""
    return type(event) in ANSWERS and event.started_at is not None  # type: ignore[union-attr]


def start_in(record: Record) -> Record:
    """The start that an answer (whose timestamp is UTC) stands for, at the answer's place in the log. A time that is
    none, or lies after the answer, becomes the answer's."""
    event = record.event
    assert isinstance(event, Answer)
    answered = event.timestamp
    began = utc(event.started_at or "", record.at)
    started = StepStarted(
        run_id=event.run_id,
        step_id=event.step_id,
        timestamp=began if _is_earlier(began, answered) else answered,
        worker_id=event.worker_id,
        attempt_number=event.attempt_number,
        iteration=event.iteration,
        item=event.item,
        delivery=event.delivery,
    )
    return Record(record.seq, record.at, started)


def _is_earlier(one: str, other: str) -> bool:
    """Of two UTC instants; those of one form, as nearly all are, are compared as text."""
    return one < other if len(one) == len(other) else instant(one) < instant(other)


def began_at(event: Event | None) -> str | None:
    """When a worker began, by an event that says so, else None."""
    if isinstance(event, StepStarted):
        return event.timestamp
    return event.started_at if isinstance(event, Answer) else None


def in_time(workflow: Workflow, before: Run, start: Record, record: Record) -> Record:
    """The answer behind its start; where it took longer than the step's timeout, which ran from the start on, the
    timeout in its place. A task that was begun `before` has a timer."""
    event = record.event
    assert isinstance(event, Answer)
    plan, step = workflow.plan_of(event.step_id), before.find(event.step_id)
    if plan is None or plan.timeout_s is None or step is None or step.status is StepStatus.RUNNING:
        return record
    if instant(event.timestamp) - instant(start.event.timestamp) <= plan.timeout_s:
        return record
    late = StepFailed(
        run_id=event.run_id,
        step_id=event.step_id,
        timestamp=event.timestamp,
        worker_id=event.worker_id,
        attempt_number=event.attempt_number,
        iteration=event.iteration,
        item=event.item,
        payload=Failure(error=took_too_long(plan)),
    )
    return Record(record.seq, record.at, late)


def both(began: Sequence[Command], answered: Sequence[Command]) -> list[Command]:
    """The commands of a start and of the answer behind it, without timers that would be set and withdrawn at once."""
    withdrawn = {(one.timer, one.due) for one in answered if isinstance(one, WithdrawTimer)}
    if not began or not withdrawn:
        return [*began, *answered]
    vain = {(one.timer, one.due) for one in began if isinstance(one, SetTimer)} & withdrawn
    kept = (one for one in began if not isinstance(one, SetTimer) or (one.timer, one.due) not in vain)
    rest = (one for one in answered if not isinstance(one, WithdrawTimer) or (one.timer, one.due) not in vain)
    return [*kept, *rest]


def short_step(workflow: Workflow, run: Run, record: Record, event: StepCompleted) -> Advance | None:
    """The run after this answer, which says when the worker began, and what follows; None where it is to be folded as
    two events. The answer's timestamp is UTC."""
    if run.status is not RunStatus.RUNNING or not _is_plain(workflow, run):
        return None
    step, plan = run.steps.get(event.step_id), workflow.steps.get(event.step_id)
    if step is None or plan is None or plan.kind.name != NORMAL or not _is_awaited(step, event):
        return None
    began, output = event.started_at, event.payload
    if began is None or not _is_within(plan, began, event.timestamp) or not _is_small(output):
        return None
    done = replace(
        step,
        status=StepStatus.COMPLETED,
        output=output.copy() if isinstance(output, Raw) else output,
        error=None,
        traceback=None,
        started_at=began,
        finished_at=event.timestamp,
        worker_id=event.worker_id,
        delivery=event.delivery,
        completed_seq=0 if plan.compensate is None else record.seq,
    )
    after = replace(run, steps={**run.steps, event.step_id: done}, seq=record.seq)
    return plan.kind.done(workflow, after, record, plan, output)


def _is_plain(workflow: Workflow, run: Run) -> bool:
    """Whether nothing of what else the run does looks at its events."""
    return not (
        workflow.slots_used
        or workflow.sticky
        or run.fragments
        or run.pause is not None
        or run.taking is not None
        or run.error is not None
    )


def _is_awaited(step: StepState, event: StepCompleted) -> bool:
    """Whether the answer is that of the execution that is queued, and the step has no timer."""
    return (
        step.status is StepStatus.QUEUED
        and step.due is None
        and step.until is None
        and step.fallback is None
        and step.wake_at is None
        and step.left is None
        and event.attempt_number == step.attempts
        and (event.iteration or 0) == step.iteration
    )


def _is_within(plan: StepPlan, began: str, answered: str) -> bool:
    """Whether the step certainly ended after it began, and before its timeout: in the same minute, as nearly all do."""
    if began[:MINUTE] != answered[:MINUTE] or len(began) != len(answered) or began > answered or not is_utc(began):
        return False
    return plan.timeout_s is None or float(answered[MINUTE:-1]) - float(began[MINUTE:-1]) < plan.timeout_s


def _is_small(output: Raw | UnsetType) -> bool:
    return isinstance(output, UnsetType) or memoryview(output).nbytes <= OUTPUT_INLINE_BYTES_MAX
