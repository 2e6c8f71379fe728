"""Steps that start a run of another workflow, their child, and end as it ends."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET, Struct
from msgspec.structs import replace

from penstock.engine.definition import values
from penstock.engine.definition.definitions import Step
from penstock.engine.definition.forms import Form, default_in_words, nested
from penstock.engine.definition.labels import label_templates
from penstock.engine.definition.step_fields import LIMITS_OF_EXECUTIONS, STEP, step_type
from penstock.engine.expressions.places import INPUT, WHEN, Place
from penstock.engine.run.commands import Command, StartChild
from penstock.engine.run.event_payloads import NULL, ChildEnd, Failure, StepFacts
from penstock.engine.run.events import ChildEnded, Record, StepFailed
from penstock.engine.run.execution.children import cancelled_child, child_run_id, labels_given
from penstock.engine.run.execution.compensation import completed_late, given_up, is_late
from penstock.engine.run.execution.elements import with_step
from penstock.engine.run.execution.steps import completed, fail_for_good, failed, is_current, timed_out
from penstock.engine.run.kinds.base import BaseKind
from penstock.engine.run.payloads import child_problem, detached
from penstock.engine.run.slots.holders import held_above
from penstock.engine.run.state import Run, RunStatus, StepState, StepStatus
from penstock.engine.run.timers import TimerKind, retimed
from penstock.engine.run.workflow import Advance, Evaluated, StepEvent, StepPlan, Workflow

LABELS = "config.labels"
NOT_ITS_OWN = frozenset({"task", "worker_group", *LIMITS_OF_EXECUTIONS})  # the child's workflow has limits of its own
ENDED_WITHOUT_IT = "it has ended"

CHILD_FIELDS = {
    "workflow": values.name.annotated(description="The workflow of the child."),
    "version": values.version.annotated(description="An older version of it; else the one that is the latest then."),
}

CHILD_LABELS = label_templates.annotated(description="Of the child, with `${{ expression }}`.")

CONFIG = Form(
    component="SubWorkflowConfig",
    fields={
        **CHILD_FIELDS,
        "detach": values.boolean.annotated(
            description=f"Complete at once with the child's run id. {default_in_words(False)}"
        ),
        "labels": CHILD_LABELS,
    },
    required=("workflow",),
)


class ChildPlan(Struct, frozen=True):
    """What a step starts a run of; no version: the latest one."""

    workflow: str
    version: str | None = None
    detached: bool = False


class ChildStep(BaseKind):
    """A step, or an element of a map, that starts a child and has its output, or fails as it does."""

    name = "sub_workflow"

    def begin(self, workflow: Workflow, run: Run, plan: StepPlan, at: float, values: Evaluated) -> Sequence[Command]:
        """Raises ExpressionFailed for values that cannot be labels."""
        child, default = _child(plan), values.get("item", values.get("default", NULL))
        return [
            StartChild(
                plan.id,
                run.step(plan.id).attempts,
                child.workflow,
                child.version,
                values.get(INPUT.path, default),
                at,
                child.detached,
                plan.item,
                labels_given(LABELS, values.get(LABELS)),
                () if child.detached else held_above(run),  # it may outlive the run
            )
        ]

    def take_event(self, workflow: Workflow, run: Run, record: Record, event: StepEvent, plan: StepPlan) -> Advance:
        step = run.step(plan.id)
        match event:
            case ChildEnded() if is_current(step, event):
                if event.payload.run_id != child_run_id(run.run_id, plan.id, step.attempts):
                    return run, []
                return _ended(workflow, run, record, plan, event.payload)
            case StepFailed() if is_current(step, event) and step.status is StepStatus.RUNNING:
                cancelled = cancelled_child(plan.id, step, event.payload.error)
                run, commands = failed(workflow, run, record, event, plan)
                return run, [*cancelled, *commands]
            case _:
                return super().take_event(workflow, run, record, event, plan)

    def begun(self, workflow: Workflow, run: Run, record: Record, plan: StepPlan, begun: StepFacts) -> Advance:
        before = run.step(plan.id)
        step = replace(
            before,
            status=StepStatus.RUNNING,
            started_at=record.event.timestamp,
            child_run_id=begun.child_run_id,
            due=None if plan.timeout_s is None else record.at + plan.timeout_s,
        )
        if _child(plan).detached and begun.child_run_id is not None:
            run = with_step(run, record, plan.id, replace(step, due=None))
            return completed(workflow, run, record, plan, detached(begun.child_run_id))
        return with_step(run, record, plan.id, step), retimed(run, plan.id, before, step)

    def outlives(self, plan: StepPlan) -> bool:
        """The child is cancelled, and undoes its own steps first."""
        return True

    def take_late(self, workflow: Workflow, run: Run, record: Record, event: StepEvent, plan: StepPlan) -> Advance:
        step = run.step(plan.id)
        if not isinstance(event, ChildEnded) or not is_late(run, step, event):
            return run, []
        ended = event.payload
        if ended.run_id != child_run_id(run.run_id, plan.id, step.attempts):
            return run, []
        if (problem := child_problem(ended)) is None:
            output = NULL if ended.output is UNSET else ended.output
            return completed_late(workflow, run, record, plan, output)
        return given_up(workflow, run, record, plan, problem)

    def take_timer(self, workflow: Workflow, run: Run, record: Record, plan: StepPlan, timer: TimerKind) -> Advance:
        step = replace(run.step(plan.id), due=None)
        match timer:
            case TimerKind.RETRY:
                step, commands = self.order(workflow, run, record, plan, step)
            case TimerKind.TIMEOUT:
                commands = [timed_out(run, record, plan, step)]
            case _:
                return run, []
        return with_step(run, record, plan.id, step), commands

    def withdraw(self, workflow: Workflow, plan: StepPlan, step: StepState) -> Sequence[Command]:
        return cancelled_child(plan.id, step, ENDED_WITHOUT_IT)


class SubWorkflow(ChildStep):
    """A step of its own that starts a child."""

    reads_default = True
    places: tuple[Place, ...] = (WHEN, INPUT, Place(LABELS))
    form = Form(
        component="SubWorkflowStep",
        fields={
            **{key: field for key, field in STEP.fields.items() if key not in NOT_ITS_OWN},
            "type": step_type("sub_workflow"),
            "config": nested(CONFIG),
        },
        required=("id", "type", "config"),
        elsewhere=NOT_ITS_OWN | {"loop"},
        schema={"description": "A run of another workflow, whose output becomes the step's. No worker takes part."},
    )

    def compile(self, step: Step, plan: StepPlan) -> StepPlan:
        config = step.config or {}
        child = ChildPlan(config["workflow"], config.get("version"), config.get("detach", False))
        return replace(plan, task=self.name, config=child)


def _ended(workflow: Workflow, run: Run, record: Record, plan: StepPlan, ended: ChildEnd) -> Advance:
    problem = child_problem(ended)
    if problem is None:
        output = NULL if ended.output is UNSET else ended.output
        return completed(workflow, run, record, plan, output)
    if ended.status == RunStatus.FAILED:  # a new child may do better
        failure = StepFailed(run_id=run.run_id, step_id=plan.id, payload=Failure(error=problem))
        return failed(workflow, run, record, failure, plan)
    return fail_for_good(workflow, run, record, plan, problem)


def _child(plan: StepPlan) -> ChildPlan:
    assert isinstance(plan.config, ChildPlan)
    return plan.config
