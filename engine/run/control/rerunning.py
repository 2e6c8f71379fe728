"""What a rerun from a step takes over of the run that it repeats: all that is done and does not depend on the step."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from penstock.engine.definition.definitions import WorkflowDef, steps_to_json
from penstock.engine.definition.identifiers import quoted
from penstock.engine.run.event_payloads import Taking
from penstock.engine.run.items import ItemStatus
from penstock.engine.run.state import STEP_DONE, Run, StepState
from penstock.engine.run.workflow import Workflow


def from_problem(workflow: Workflow, run: Run, from_step: str) -> str | None:
    """Why the run cannot be repeated from this step; None if it can."""
    place = run.element(from_step)
    if place is not None:
        return f"from: {quoted(from_step)} is an element of a map: give the map, {quoted(place[0])}"
    plan = workflow.plan_of(from_step)
    if plan is not None and plan.handles is not None:
        return f"from: {quoted(from_step)} follows from the end of a step: give that step, {quoted(plan.handles)}"
    if from_step not in run.steps or plan is None:
        return f"from: run {run.run_id} has no step {quoted(from_step)}"
    return None


def taken(workflow: Workflow, run: Run, from_step: str, given: Collection[str] = ()) -> Taking:
    """What the repeated run has done and the new one takes over. `given` are steps whose outputs the caller gives: of
    these, no elements and no plan are needed."""
    below = _below(workflow, from_step)
    opened = _around(workflow, from_step) | {step_id for step_id in run.fragments if not _is_done(run, step_id)}
    hidden = below | _within(workflow, {step_id for step_id in given if step_id in run.fragments})
    done, parts = list[str](), list[str]()
    for step_id, step in run.steps.items():
        if step_id in hidden or (step.handles is not None and not _recovers(run, step.handles, hidden, given)):
            continue
        if step.status in STEP_DONE and step_id not in opened:
            done.append(step_id)
        elif step_id in run.fragments or _has_elements(step):
            parts.append(step_id)
    return Taking(tuple(sorted(done, key=lambda step_id: _order(run, step_id))), tuple(parts))


def output_problems(workflow: Workflow, run: Run, takes: Taking, given: Collection[str]) -> list[str]:
    """What is wrong with outputs that are given in place of those that would be taken over."""
    found = []
    for step_id in given:
        plan = workflow.plan_of(step_id)
        if step_id not in run.steps or plan is None:
            found.append(f"outputs: run {run.run_id} has no step {quoted(step_id)}")
        elif plan.handles is not None:
            found.append(f"outputs: {quoted(step_id)} handles a step: give the output of that, {quoted(plan.handles)}")
        elif step_id not in takes.done:
            found.append(f"outputs: step {quoted(step_id)} is not taken over: it is carried out again")
        elif plan.planner is not None and plan.planner in takes.done:
            planner = quoted(plan.planner)
            found.append(f"outputs: {quoted(step_id)} is part of the output of {planner}: give the output of that")
    return found


def differences(old: WorkflowDef, new: WorkflowDef, takes: Taking) -> list[str]:
    """The steps that are taken over and are not the same in another definition."""
    before, after = _documents(old), _documents(new)
    wanted = [step_id for step_id in (*takes.done, *takes.parts) if step_id in before]
    return [step_id for step_id in wanted if before[step_id] != after.get(step_id)]


def _documents(definition: WorkflowDef) -> Mapping[str, bytes]:
    return {step.id: steps_to_json([step]) for step in definition.steps}


def _below(workflow: Workflow, from_step: str) -> set[str]:
    """The step and all that depends on it, with the plans of planners among these."""
    found, ahead = set[str](), [from_step]
    while ahead:
        step_id = ahead.pop()
        if step_id in found:
            continue
        found.add(step_id)
        ahead += workflow.steps[step_id].dependents
        for planner in _around(workflow, step_id):
            ahead += workflow.steps[planner].dependents
        ahead += [one for one, plan in workflow.steps.items() if plan.planner == step_id]
    handlers = [step_id for step_id in found if workflow.steps[step_id].on_failure is not None]
    return found | {plan.id for one in handlers if (plan := workflow.steps[one].on_failure) is not None}


def _around(workflow: Workflow, step_id: str) -> set[str]:
    """The planners that the step is part of the plan of: they go on with it."""
    found, planner = set[str](), workflow.steps[step_id].planner
    while planner is not None:
        found.add(planner)
        planner = workflow.steps[planner].planner
    return found


def _within(workflow: Workflow, planners: Collection[str]) -> set[str]:
    """The steps of the plans of these planners, and of the planners among them."""
    return {step_id for step_id in workflow.steps if _around(workflow, step_id) & {*planners}}


def _is_done(run: Run, step_id: str) -> bool:
    return run.steps[step_id].status in STEP_DONE


def _recovers(run: Run, handled: str, hidden: Collection[str], given: Collection[str]) -> bool:
    return _is_done(run, handled) and handled not in hidden and handled not in given


def _has_elements(step: StepState) -> bool:
    """Whether elements of a map have completed that goes on after them."""
    return step.status not in STEP_DONE and step.items is not None and step.items.count(ItemStatus.COMPLETED) > 0


def _order(run: Run, step_id: str) -> tuple[int, int]:
    """In the order of completion where that is known, for what undoes them; a planner after its plan."""
    return run.steps[step_id].completed_seq, -len(step_id)
