"""Normal steps: a task for a worker, which is started, may be paused, completes or fails, and is retried."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from msgspec.structs import replace

from penstock.engine.definition.forms import Form
from penstock.engine.definition.step_fields import STEP
from penstock.engine.expressions.places import INPUT, WHEN, Place
from penstock.engine.run.commands import Command
from penstock.engine.run.events import (
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRejected,
    ApprovalRequested,
    ChildEnded,
    EventReceived,
    PlannerExpanded,
    Record,
    StepCompleted,
    StepContinue,
    StepFailed,
    StepPaused,
    StepSkipped,
    StepStarted,
)
from penstock.engine.run.execution.cancelling import begun_in_vain, cancelled_task
from penstock.engine.run.execution.compensation import begun_late, completed_late, given_up, is_late
from penstock.engine.run.execution.deliveries import begun_again, paused
from penstock.engine.run.execution.dispatch import fall_back, order_task, task_with, withdrawn_tasks
from penstock.engine.run.execution.elements import with_step
from penstock.engine.run.execution.steps import (
    completed,
    fail_for_good,
    failed,
    is_current,
    started,
    timed_out,
    took_too_long,
)
from penstock.engine.run.kinds.base import BaseKind
from penstock.engine.run.state import Run, StepState, StepStatus
from penstock.engine.run.timers import TimerKind, retimed
from penstock.engine.run.workflow import Advance, Evaluated, Ordered, StepEvent, StepPlan, Workflow

NO_LOOP = "its worker asked for another iteration, which only a step of type agent_loop has"


class Normal(BaseKind):
    """A step that a worker executes once, and the behaviour that every step with a task shares."""

    name = "normal"
    form: Form = STEP
    places: tuple[Place, ...] = (WHEN, INPUT)

    def order(self, workflow: Workflow, run: Run, record: Record, plan: StepPlan, step: StepState) -> Ordered:
        return order_task(workflow, run, record, plan, step)

    def begin(self, workflow: Workflow, run: Run, plan: StepPlan, at: float, values: Evaluated) -> Sequence[Command]:
        return [task_with(run, plan, run.step(plan.id), values.get(INPUT.path))]

    def withdraw(self, workflow: Workflow, plan: StepPlan, step: StepState) -> Sequence[Command]:
        return [*cancelled_task(plan, step), *withdrawn_tasks(workflow, plan, step)]

    def take_event(self, workflow: Workflow, run: Run, record: Record, event: StepEvent, plan: StepPlan) -> Advance:
        step = run.step(plan.id)
        if not is_current(step, event):
            return run, begun_in_vain(workflow, run, event)
        match event:
            case StepStarted() if step.status is StepStatus.QUEUED:
                return started(run, record, event, plan, self.last_moment(record, step, plan))
            case StepStarted():
                return begun_again(run, record, event, plan)
            case StepPaused():
                return paused(run, record, event, plan)
            case StepCompleted():
                return completed(workflow, run, record, plan, event.payload, event.worker_id)
            case StepFailed():
                return failed(workflow, run, record, event, plan)
            case StepContinue():
                return self.continued(workflow, run, record, event, plan)
            case (
                StepSkipped() | ChildEnded() | EventReceived() | PlannerExpanded()
                | ApprovalRequested() | ApprovalGranted() | ApprovalRejected() | ApprovalExpired()
            ):  # fmt: skip
                return run, []
            case _:
                assert_never(event)

    def outlives(self, plan: StepPlan) -> bool:
        """What its worker does may have to be undone."""
        return plan.compensate is not None

    def take_late(self, workflow: Workflow, run: Run, record: Record, event: StepEvent, plan: StepPlan) -> Advance:
        if not self.outlives(plan) or not is_late(run, run.step(plan.id), event):
            return run, []
        match event:
            case StepStarted():
                return begun_late(run, record, event, plan)
            case StepCompleted():
                return completed_late(workflow, run, record, plan, event.payload, event.worker_id)
            case StepFailed(payload=failure):
                return given_up(workflow, run, record, plan, failure.error)
            case StepContinue():
                return given_up(workflow, run, record, plan, "it had no further iteration")
            case _:
                return run, []

    def take_timer(self, workflow: Workflow, run: Run, record: Record, plan: StepPlan, timer: TimerKind) -> Advance:
        step = run.step(plan.id)
        match timer:
            case TimerKind.RETRY:
                step, commands = self.order(workflow, run, record, plan, replace(step, due=None))
            case TimerKind.TIMEOUT:
                notices = cancelled_task(plan, step, took_too_long(plan))
                step, commands = replace(step, due=None), [timed_out(run, record, plan, step), *notices]
            case TimerKind.STICKY:
                step, commands = fall_back(run, record, plan, step)
            case TimerKind.LOST if workflow.sticky == "soft":
                step, commands = fall_back(run, record, plan, step)
            case TimerKind.RESTORED:
                step, commands = self._order_again(workflow, run, record, plan, step)
            case _:
                return run, []
        return with_step(run, record, plan.id, step), commands

    def _order_again(
        self, workflow: Workflow, run: Run, record: Record, plan: StepPlan, lost: StepState
    ) -> tuple[StepState, list[Command]]:
        """Order the task of the same attempt again, which nobody holds any more."""
        queued = replace(lost, status=StepStatus.QUEUED, worker_id=None, due=None, left=None, delivery=0)
        step, ordered = self.order(workflow, run, record, plan, queued)
        return step, [*retimed(run, plan.id, lost, queued), *ordered]

    def last_moment(self, record: Record, step: StepState, plan: StepPlan) -> float | None:
        """The deadline for further iterations: a normal step has none."""
        return None

    def continued(self, workflow: Workflow, run: Run, record: Record, event: StepContinue, plan: StepPlan) -> Advance:
        """Fail the step: it has no further iteration, and its run would otherwise wait for ever. `step.continue` is
        ignored unless the execution is current."""
        is_answer = event.attempt_number is not None or run.step(plan.id).status is StepStatus.RUNNING
        return fail_for_good(workflow, run, record, plan, NO_LOOP) if is_answer else (run, [])
