"""Checks the plan that a planner's worker has returned: `{"steps": [...]}`, with steps as in a definition.

Each rule for the steps of a definition holds here, too. Besides, they depend on one another and on ancestors of the
planner only, and keep to the bounds of the planner, and of the planners that it is in.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
from msgspec import Raw

from penstock.config.limits import FRAGMENT_BYTES_MAX, PLANNED_STEPS_MAX, PLANNERS_DEPTH_MAX
from penstock.engine.definition.definitions import has_limits, steps_from_json, steps_to_json
from penstock.engine.definition.forms import Document, Form, Rule, read_object
from penstock.engine.definition.identifiers import json_type, label_of, quoted
from penstock.engine.definition.report import Report
from penstock.engine.definition.step_fields import dependencies
from penstock.engine.errors import Invalid
from penstock.engine.run.commands import ExpandPlan
from penstock.engine.run.event_payloads import Failure, Fragment
from penstock.engine.run.events import PlannerExpanded, StepFailed
from penstock.engine.run.expansion import visible
from penstock.engine.run.kinds.planner import Bounds, bounds_of
from penstock.engine.run.state import Run
from penstock.engine.run.workflow import COMPENSATE, ON_FAILURE, StepPlan, Workflow
from penstock.engine.times import rfc3339
from penstock.engine.validation import ANY_STEP, check_expressions, check_graph, id_problems, scope_problems

STARTS_OTHERS = frozenset({"sub_workflow", "http"})  # what allowed_tasks cannot bound


def expansion(workflow: Workflow, run: Run, command: ExpandPlan, output: Raw) -> PlannerExpanded | StepFailed:
    """The event that follows from a plan: its steps become part of the run, or the attempt has failed with every
    problem."""
    plan = workflow.steps[command.step_id]
    about: dict[str, Any] = {
        "run_id": run.run_id,
        "step_id": command.step_id,
        "timestamp": rfc3339(command.at),
        "attempt_number": command.attempt,
    }
    try:
        steps = read(workflow, run, plan, output)
        return PlannerExpanded(**about, payload=Fragment(Raw(steps)), v=3 if _has_limits(steps) else 2)
    except Invalid as invalid:
        error = "the plan is refused: " + "; ".join(invalid.problems)
        return StepFailed(**about, payload=Failure(error=error))


def _has_limits(steps: bytes) -> bool:
    """Whether versions that know no limits would misread the steps."""
    return any(map(has_limits, steps_from_json(steps)))


def read(workflow: Workflow, run: Run, planner: StepPlan, output: Raw) -> bytes:
    """The steps of a plan in their normal form, as JSON. Raises Invalid with all problems."""
    report = Report()
    try:
        document = read_object(FORM, "", orjson.loads(bytes(output)), report)
    except orjson.JSONDecodeError as error:
        raise Invalid(f"the output cannot be read: {error}") from error
    steps = document.get("steps", [])
    assert isinstance(steps, list), "_steps makes one of whatever stands there"
    _check(workflow, planner, steps, report)
    if found := report.problems():
        raise Invalid(*found)
    body = steps_to_json(steps_from_json(orjson.dumps(steps)))
    size = len(body) + sum(len(bytes(fragment)) for fragment in run.fragments.values())
    if size > FRAGMENT_BYTES_MAX:
        raise Invalid(f"the planned steps of the run have {size} bytes, {FRAGMENT_BYTES_MAX} is the most")
    return body


def _steps(path: str, value: object, report: Report) -> list[object]:
    if not isinstance(value, list):
        report.add(f"{path} must be an array, not {json_type(value)}")
        return []
    if len(value) > PLANNED_STEPS_MAX:
        report.add(f"{path} has {len(value)} entries, {PLANNED_STEPS_MAX} is the most")
        return []
    return [ANY_STEP.read(label_of(index, step), step, report) for index, step in enumerate(value)]


FORM = Form(fields={"steps": Rule(_steps)}, required=("steps",))


def _check(workflow: Workflow, planner: StepPlan, steps: list[Document], report: Report) -> None:
    outside = visible(workflow, planner)
    foreign = list(_foreign_problems(workflow, planner, steps, outside.keys() | _ids(steps)))
    report.add(*foreign)
    check_graph(steps, report, outside if not foreign else outside.keys() | workflow.steps.keys())
    report.add(*id_problems(steps), *_taken_ids(planner, steps))
    check_expressions(steps, report, frozenset(outside))
    report.add(*scope_problems(steps, f"{workflow.name}.{planner.id}"))
    for index, enclosing in enumerate(_chain(workflow, planner)):
        report.add(*_bound_problems(workflow, enclosing, index + 1, steps))
    depth = len(list(_chain(workflow, planner)))
    if depth >= PLANNERS_DEPTH_MAX:
        report.add(*_planners(steps, f"planners stand in one another {PLANNERS_DEPTH_MAX} deep at the most"))
    if (total := len(steps) + _inserted(workflow)) > PLANNED_STEPS_MAX:
        report.add(f"the run would have {total} planned steps, {PLANNED_STEPS_MAX} is the most")


def _ids(steps: list[Document]) -> set[str]:
    return {step_id for step in steps if isinstance(step_id := step.get("id"), str)}


def _taken_ids(planner: StepPlan, steps: list[Document]) -> Iterator[str]:
    """Ids that the planner's own handlers have."""
    for index, step in enumerate(steps):
        handlers = {ON_FAILURE: planner.on_failure, COMPENSATE: planner.compensate}
        if handlers.get(field := str(step.get("id"))) is not None:
            yield f"{label_of(index, step)} has the id of the {field} of the planner {quoted(planner.id)}"


def _foreign_problems(workflow: Workflow, planner: StepPlan, steps: list[Document], known: set[str]) -> Iterator[str]:
    """Dependencies on steps that are there, and that the plan must not depend on."""
    for index, step in enumerate(steps):
        for name in dependencies(step):
            if name not in known and name == planner.id:
                yield f"{label_of(index, step)} depends on {quoted(name)}, the planner itself"
            elif name not in known and name in workflow.steps:
                yield f"{label_of(index, step)} depends on {quoted(name)}, which is no ancestor of the planner"


def _chain(workflow: Workflow, planner: StepPlan) -> Iterator[StepPlan]:
    """The planner, the one that has inserted it, and so on."""
    yield planner
    while planner.planner is not None:
        planner = workflow.steps[planner.planner]
        yield planner


def _inserted(workflow: Workflow, within: str = "") -> int:
    """How many steps the run's planners have inserted, or those of one planner and of the planners in its plan."""
    inserted = (step_id for step_id, plan in workflow.steps.items() if plan.planner is not None)
    return sum(step_id.startswith(within) for step_id in inserted)


def _bound_problems(workflow: Workflow, planner: StepPlan, depth: int, steps: list[Document]) -> Iterator[str]:
    """What breaks the bounds of this planner. `depth`: 1 for its own plan, 2 for that of a planner in it."""
    bounds = bounds_of(planner)
    total = len(steps) + _inserted(workflow, planner.id + ".")
    if total > bounds.steps_max:
        yield f"max_steps of the planner {quoted(planner.id)} is {bounds.steps_max}, the plan makes it {total}"
    if depth >= bounds.depth_max:
        yield from _planners(steps, f"max_depth of the planner {quoted(planner.id)} is {bounds.depth_max}")
    for index, step in enumerate(steps):
        for task in _tasks(step):
            if bounds.tasks is not None and task not in bounds.tasks:
                yield f"{label_of(index, step)}: task {quoted(task)} is none of allowed_tasks of {quoted(planner.id)}"
        for kind in _types(step):
            if not _is_allowed(bounds, kind):
                yield f"{label_of(index, step)}: type {quoted(kind)} is none that {quoted(planner.id)} allows"


def _planners(steps: list[Document], why: str) -> Iterator[str]:
    for index, step in enumerate(steps):
        if step.get("type") == "planner":
            yield f"{label_of(index, step)}: a planner cannot stand here: {why}"


def _tasks(step: Document) -> Iterator[str]:
    """The task types of a step and of its handlers."""
    for holder in (step, *(step.get(key) for key in (ON_FAILURE, COMPENSATE))):
        if isinstance(holder, dict) and isinstance(task := holder.get("task"), str):
            yield task


def _types(step: Document) -> Iterator[str]:
    """The type of a step; a map over a workflow starts runs as `sub_workflow` does."""
    yield str(step.get("type", "normal"))
    if step.get("type") == "map" and _of_workflow(step):
        yield "sub_workflow"


def _of_workflow(step: Document) -> bool:
    config = step.get("config")
    return "workflow" in step or (isinstance(config, dict) and "workflow" in config)


def _is_allowed(bounds: Bounds, kind: str) -> bool:
    if bounds.types is not None:
        return kind in bounds.types
    return bounds.tasks is None or kind not in STARTS_OTHERS
