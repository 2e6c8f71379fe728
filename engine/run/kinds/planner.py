"""Planners: a worker's task whose output is further steps of the run."""

from __future__ import annotations

from msgspec import UNSET, Raw, Struct, UnsetType, structs
from msgspec.structs import replace

from penstock.config.limits import PLANNED_STEPS_MAX, PLANNERS_DEPTH_MAX
from penstock.engine.definition import values
from penstock.engine.definition.definitions import Step
from penstock.engine.definition.forms import Form, nested
from penstock.engine.definition.step_fields import STEP, step_type
from penstock.engine.run.commands import ExpandPlan
from penstock.engine.run.events import PlannerExpanded, Record, StepCompleted, StepFailed
from penstock.engine.run.execution.elements import with_step
from penstock.engine.run.execution.fragments import awaits_check, closed
from penstock.engine.run.execution.steps import bound_by, enter, fail_for_good, failed, go_on, is_current, is_ready
from penstock.engine.run.expansion import inserted
from penstock.engine.run.kinds.normal import Normal
from penstock.engine.run.payloads import inline_or_ref, too_large
from penstock.engine.run.state import Run, StepState, StepStatus
from penstock.engine.run.timers import TimerKind, retimed
from penstock.engine.run.workflow import Advance, StepEvent, StepPlan, Workflow

CONFIG = Form(
    component="PlannerConfig",
    fields={
        "allowed_tasks": values.names.annotated(
            description="The task types that the planned steps may have; all without it."
        ),
        "allowed_types": values.names.annotated(
            description="The types that the planned steps may have. Without it: all; with `allowed_tasks` all but "
            "`sub_workflow` and `http`."
        ),
        "max_steps": values.whole_number(PLANNED_STEPS_MAX, 1).annotated(
            description="How many steps it may add to the run, those of planners among them included. "
            f"{PLANNED_STEPS_MAX} without it, which is also the most that all planners of a run may add together."
        ),
        "max_depth": values.whole_number(PLANNERS_DEPTH_MAX, 1).annotated(
            description="1: its plan may have no planner. 2: it may, and those' plans not. "
            f"{PLANNERS_DEPTH_MAX} without it."
        ),
    },
)


class Bounds(Struct, frozen=True):
    """What a planner may plan. None: any."""

    tasks: frozenset[str] | None
    types: frozenset[str] | None
    steps_max: int
    depth_max: int


class Planner(Normal):
    """A step whose worker returns steps. It runs until the last of them are done, and its output is theirs."""

    name = "planner"
    reports_error = True
    form = structs.replace(
        STEP,
        component="PlannerStep",
        fields={**STEP.fields, "type": step_type("planner"), "config": nested(CONFIG)},
        required=("id", "task", "type"),
        elsewhere=frozenset({"loop"}),
        schema={"description": 'A task whose output, `{"steps": […]}`, is inserted. The timeout is that of the task.'},
    )

    def compile(self, step: Step, plan: StepPlan) -> StepPlan:
        config = step.config or {}
        tasks, types = config.get("allowed_tasks"), config.get("allowed_types")
        bounds = Bounds(
            None if tasks is None else frozenset(tasks),
            None if types is None else frozenset(types),
            config.get("max_steps", PLANNED_STEPS_MAX),
            config.get("max_depth", PLANNERS_DEPTH_MAX),
        )
        return replace(plan, config=bounds)

    def take_event(self, workflow: Workflow, run: Run, record: Record, event: StepEvent, plan: StepPlan) -> Advance:
        step = run.step(plan.id)
        if plan.id in run.fragments or not is_current(step, event):
            return run, []
        if awaits_check(run, plan.id, step):
            return _checked(workflow, run, record, event, plan)
        if isinstance(event, StepCompleted):
            return (run, []) if _is_too_late(step, plan) else _planned(workflow, run, record, event, plan)
        return super().take_event(workflow, run, record, event, plan)

    def outlives(self, plan: StepPlan) -> bool:
        """It completes with its fragment only, and that does not go on."""
        return False

    def take_timer(self, workflow: Workflow, run: Run, record: Record, plan: StepPlan, timer: TimerKind) -> Advance:
        step = run.step(plan.id)
        if plan.id in run.fragments or awaits_check(run, plan.id, step):
            return run, []
        return super().take_timer(workflow, run, record, plan, timer)


def bounds_of(plan: StepPlan) -> Bounds:
    assert isinstance(plan.config, Bounds)
    return plan.config


def _is_too_late(step: StepState, plan: StepPlan) -> bool:
    """Whether the timeout has fired, and the failure of this attempt is on its way to the log. It would be taken for
    the result of the check of a plan that comes before it."""
    runs = step.status is StepStatus.RUNNING and step.left is None
    return runs and plan.timeout_s is not None and step.due is None


def _planned(workflow: Workflow, run: Run, record: Record, event: StepCompleted, plan: StepPlan) -> Advance:
    """The worker has returned a plan, which is to be checked. The timeout is over."""
    before = run.step(plan.id)
    if problem := too_large("the output", event.payload):
        return fail_for_good(workflow, run, record, plan, problem)
    output, output_at = inline_or_ref(
        Raw(b"null") if isinstance(event.payload, UnsetType) else event.payload, record.seq
    )
    step = replace(
        before,
        status=StepStatus.RUNNING,
        output=output,
        output_at=output_at,
        started_at=before.started_at or event.timestamp,
        worker_id=event.worker_id or before.worker_id,
        left=None,
        due=None,
        sticky=None,
        fallback=None,
    )
    run, binding = bound_by(workflow, with_step(run, record, plan.id, step), plan, event.worker_id)
    check = [] if run.failing else [ExpandPlan(plan.id, step.attempts, record.at)]
    return run, [*retimed(run, plan.id, before, step), *binding, *check]


def _checked(workflow: Workflow, run: Run, record: Record, event: StepEvent, plan: StepPlan) -> Advance:
    """The engine has checked the plan. What a worker still says about its task is late."""
    if event.worker_id is not None:
        return run, []
    match event:
        case PlannerExpanded() if not run.failing:
            return _expand(workflow, _without_plan(run, record, plan), record, event, plan)
        case StepFailed():
            return failed(workflow, _without_plan(run, record, plan), record, event, plan)
        case _:
            return run, []


def _without_plan(run: Run, record: Record, plan: StepPlan) -> Run:
    step: StepState = replace(run.step(plan.id), output=UNSET, output_at=None)
    return with_step(run, record, plan.id, step)


def _expand(workflow: Workflow, run: Run, record: Record, event: PlannerExpanded, plan: StepPlan) -> Advance:
    run = with_step(run, record, plan.id, replace(run.step(plan.id), error=None, traceback=None))
    workflow, run, added = inserted(run, plan.id, event.payload.steps, workflow)
    if not added:
        return go_on(workflow, closed(workflow, run, record, plan, UNSET), record, plan.id)
    return enter(workflow, run, [step_id for step_id in added if is_ready(run, workflow.steps[step_id])], record)
