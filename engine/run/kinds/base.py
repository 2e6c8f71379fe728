"""What most kinds of steps have in common: a kind overrides what is different about it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw, UnsetType

from penstock.engine.definition.definitions import Step
from penstock.engine.definition.forms import Document
from penstock.engine.definition.report import Report
from penstock.engine.expressions.places import WHEN, Place
from penstock.engine.run.commands import AppendEvent, Command
from penstock.engine.run.event_payloads import StepFacts
from penstock.engine.run.events import Record, StepFailed, StepStarted
from penstock.engine.run.execution.dispatch import begin_step
from penstock.engine.run.execution.steps import fail_with, failed, go_on, is_current
from penstock.engine.run.state import Run, StepState, StepStatus
from penstock.engine.run.timers import TimerKind
from penstock.engine.run.workflow import Advance, Ordered, StepEvent, StepPlan, Workflow
from penstock.engine.times import rfc3339


class BaseKind:
    """A step without a worker, whose dependents follow when it is done, and whose run fails with it."""

    places: tuple[Place, ...] = (WHEN,)
    reads_default = False
    reports_error = False
    names_of_limits: tuple[str, ...] = ()

    def check(self, label: str, step: Document, report: Report) -> Document:
        return step

    def compile(self, step: Step, plan: StepPlan) -> StepPlan:
        return plan

    def order(self, workflow: Workflow, run: Run, record: Record, plan: StepPlan, step: StepState) -> Ordered:
        return step, [begin_step(record, plan, step)]

    def take_event(self, workflow: Workflow, run: Run, record: Record, event: StepEvent, plan: StepPlan) -> Advance:
        """The engine writes both: what it has worked out for the step, or why it cannot."""
        step = run.step(plan.id)
        if not is_current(step, event):
            return run, []
        match event:
            case StepStarted(payload=StepFacts() as begun) if step.status is StepStatus.QUEUED:
                return self.begun(workflow, run, record, plan, begun)
            case StepFailed():
                return failed(workflow, run, record, event, plan)
            case _:
                return run, []

    def begun(self, workflow: Workflow, run: Run, record: Record, plan: StepPlan, begun: StepFacts) -> Advance:
        """The step, queued until now, goes on with what was worked out for it."""
        return run, []

    def take_timer(self, workflow: Workflow, run: Run, record: Record, plan: StepPlan, timer: TimerKind) -> Advance:
        return run, []

    def held(self, plan: StepPlan, step: StepState, at: float) -> StepState:
        return step

    def done(self, workflow: Workflow, run: Run, record: Record, plan: StepPlan, output: Raw | UnsetType) -> Advance:
        return go_on(workflow, run, record, plan.id, output)

    def gave_up(self, workflow: Workflow, run: Run, record: Record, plan: StepPlan, error: str) -> Advance:
        return fail_with(workflow, run, record, plan.id, error)

    def withdraw(self, workflow: Workflow, plan: StepPlan, step: StepState) -> Sequence[Command]:
        return ()

    def outlives(self, plan: StepPlan) -> bool:
        return False

    def take_late(self, workflow: Workflow, run: Run, record: Record, event: StepEvent, plan: StepPlan) -> Advance:
        return run, []


def written_down(run: Run, plan: StepPlan, at: float, facts: StepFacts) -> list[Command]:
    """Write down what was worked out for a step, which begins with that: a fold evaluates nothing."""
    event = StepStarted(
        run_id=run.run_id,
        step_id=plan.id,
        timestamp=rfc3339(at),
        attempt_number=run.step(plan.id).attempts,
        payload=facts,
    )
    return [AppendEvent(event)]
