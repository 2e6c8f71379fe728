"""Agent loops: a step that is executed again with the payload of its last execution, until it completes or meets a
bound."""

from __future__ import annotations

from msgspec import Struct, structs

from penstock.config.limits import LOOP_ITERATIONS_MAX
from penstock.engine.definition import values
from penstock.engine.definition.definitions import Step
from penstock.engine.definition.durations import seconds, text
from penstock.engine.definition.forms import Document, Form, at_least_one, exactly_one, nested, read_object
from penstock.engine.definition.report import Report
from penstock.engine.definition.step_fields import STEP, step_type
from penstock.engine.run.events import Record, StepContinue
from penstock.engine.run.execution.cancelling import cancelled_task
from penstock.engine.run.execution.dispatch import order_task, withdrawn_tasks
from penstock.engine.run.execution.elements import with_step
from penstock.engine.run.execution.steps import fail_for_good
from penstock.engine.run.kinds.normal import Normal
from penstock.engine.run.payloads import inline_or_ref, payload_of, too_large
from penstock.engine.run.state import Run, StepState, StepStatus
from penstock.engine.run.timers import TimerKind, retimed
from penstock.engine.run.workflow import Advance, StepPlan, Workflow

_ENDLESS = "must hold max_iterations or max_duration, or the loop has no end"

CONFIG = Form(
    component="LoopConfig",
    fields={
        "max_iterations": values.whole_number(LOOP_ITERATIONS_MAX, 1),
        "max_duration": values.timeout,
        "loop_delay": values.delay,
    },
    schema=at_least_one("max_iterations", "max_duration"),
)


class Loop(Struct, frozen=True):
    """The bounds of an agent loop; None means no bound."""

    iterations_max: int | None
    duration_s: float | None
    delay_s: float


def loop_of(plan: StepPlan) -> Loop | None:
    """The bounds of the step's loop; None for a step of another kind."""
    return plan.config if isinstance(plan.config, Loop) else None


def _read_config(path: str, value: object, report: Report) -> object:
    read = read_object(CONFIG, f"{path}: ", value, report)
    if isinstance(value, dict) and not {"max_iterations", "max_duration"} & read.keys():
        report.add(f"{path} {_ENDLESS}")
    return read


_CONFIG = structs.replace(nested(CONFIG), read=_read_config)


class AgentLoop(Normal):
    """A normal step whose worker may report `step.continue`."""

    name = "agent_loop"
    form = structs.replace(
        STEP,
        component="AgentLoopStep",
        fields={**STEP.fields, "type": step_type("agent_loop"), "config": _CONFIG, "loop": _CONFIG},
        required=("id", "task", "type"),
        elsewhere=frozenset(),
        schema={
            **exactly_one("config", "loop"),
            "description": "A task that is carried out again until its worker completes it; "
            "`loop` is another name for `config`.",
        },
    )

    def check(self, label: str, step: Document, report: Report) -> Document:
        """Returns the step with its bounds under `config`, also where they were given as `loop`."""
        found = [key for key in ("config", "loop") if key in step]
        if not found:
            report.add(f"{label}: config {_ENDLESS}")
        if len(found) > 1:
            report.add(f"{label}: config and loop are two names of one field, give one of them")
        bounds = {"config": step[found[0]]} if found else {}
        return {key: value for key, value in step.items() if key not in found} | bounds

    def compile(self, step: Step, plan: StepPlan) -> StepPlan:
        config = step.config or {}
        delay_s = seconds(config.get("loop_delay")) or 0.0
        return structs.replace(
            plan, config=Loop(config.get("max_iterations"), seconds(config.get("max_duration")), delay_s)
        )

    def take_timer(self, workflow: Workflow, run: Run, record: Record, plan: StepPlan, timer: TimerKind) -> Advance:
        if timer is TimerKind.LOOP:
            return _out_of_time(workflow, run, record, plan)
        return super().take_timer(workflow, run, record, plan, timer)

    def last_moment(self, record: Record, step: StepState, plan: StepPlan) -> float | None:
        """The deadline of the loop, in s since the epoch, counted from its first start; from its first report where a
        worker reports no start."""
        bounds = _bounds(plan)
        if step.until is not None or bounds.duration_s is None:
            return step.until
        return record.at + bounds.duration_s

    def continued(self, workflow: Workflow, run: Run, record: Record, event: StepContinue, plan: StepPlan) -> Advance:
        """Begin the next iteration, at once or after the loop's delay, with new retries."""
        before, bounds = run.step(plan.id), _bounds(plan)
        if run.failing:
            return run, []
        if problem := _problem(before, bounds, record, event):
            return fail_for_good(workflow, run, record, plan, problem)
        carried, carried_at = inline_or_ref(payload_of(event), record.seq)
        step = StepState(
            status=StepStatus.QUEUED,
            attempts=1,
            iteration=before.iteration + 1,
            started_at=before.started_at,
            worker_id=before.worker_id,
            carried=carried,
            carried_at=carried_at,
            due=record.at + bounds.delay_s if bounds.delay_s > 0 else None,
            until=self.last_moment(record, before, plan),
        )
        commands = retimed(run, plan.id, before, step)
        if step.due is None:
            step, ordered = order_task(workflow, run, record, plan, step)
            commands += ordered
        return with_step(run, record, plan.id, step), commands


def _problem(step: StepState, bounds: Loop, record: Record, event: StepContinue) -> str | None:
    """Why the step cannot continue with another iteration; None when it can."""
    if bounds.iterations_max is not None and step.iteration + 1 >= bounds.iterations_max:
        return f"agent loop reached its max_iterations ({bounds.iterations_max})"
    if step.until is not None and record.at >= step.until:
        return _too_long(bounds)
    return too_large("the payload of step.continue", event.payload)


def _out_of_time(workflow: Workflow, run: Run, record: Record, plan: StepPlan) -> Advance:
    """The loop's deadline has come, in any state of its step: withdraw a waiting task, and fail the step.

    The loop's timer has fired, so it is not withdrawn.
    """
    before = structs.replace(run.step(plan.id), until=None)
    run, commands = fail_for_good(
        workflow, with_step(run, record, plan.id, before), record, plan, _too_long(_bounds(plan))
    )
    withdrawn = [structs.replace(command, of_step=plan.id) for command in withdrawn_tasks(workflow, plan, before)]
    return run, [*cancelled_task(plan, before, _too_long(_bounds(plan))), *commands, *withdrawn]


def _bounds(plan: StepPlan) -> Loop:
    assert isinstance(plan.config, Loop)
    return plan.config


def _too_long(bounds: Loop) -> str:
    return f"agent loop exceeded its max_duration ({text(bounds.duration_s or 0)})"
