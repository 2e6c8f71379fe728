"""The workflow of a run whose planners have inserted steps: its definition and their fragments.

In a fragment, a step is called as the fragment wrote it, and elsewhere `<planner>.<id>`. Names of a fragment stand
before those of the steps outside it: these are the ancestors of its planner, which have all ended.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import partial

from msgspec import Raw
from msgspec.structs import replace

from penstock.engine.definition.definitions import Step, steps_from_json
from penstock.engine.expressions.places import ancestors
from penstock.engine.run.plans import Names, Surroundings, compile_step
from penstock.engine.run.state import Run, StepState
from penstock.engine.run.workflow import StepPlan, Workflow, takes_slots

KEPT_MAX = 256

# What was worked out last, by the identity of the fragments, which a run keeps from event to event. An entry holds the
# fragments, so that no others can get their identity.
_kept: OrderedDict[int, Workflow] = OrderedDict()


def expanded(workflow: Workflow, run: Run | None) -> Workflow:
    """The workflow with the steps that the run's planners have inserted. Without any it is the workflow itself."""
    if run is None or not run.fragments or workflow.fragments is run.fragments:
        return workflow
    base = workflow.base or workflow
    found = _kept.get(id(run.fragments))
    if found is None or found.fragments is not run.fragments or found.base is not base:
        found = _expand_all(base, run.fragments)
        _keep(found)
    return found


def inserted(run: Run, planner_id: str, steps: Raw, workflow: Workflow) -> tuple[Workflow, Run, list[str]]:
    """The workflow and the run with the steps of a planner's fragment, none of them begun; and their ids."""
    run = replace(run, fragments={**run.fragments, planner_id: steps.copy()})
    workflow = expanded(workflow, run)
    added = [step_id for step_id, step in workflow.steps.items() if step.planner == planner_id]
    return workflow, replace(run, steps={**run.steps, **dict.fromkeys(added, StepState.WAITING)}), added


def visible(workflow: Workflow, planner: StepPlan) -> dict[str, str]:
    """The ids of the steps that the planner's fragment may depend on, by what they are called there."""
    ended = ancestors(planner.id, {step_id: plan.depends_on for step_id, plan in workflow.steps.items()})
    if planner.planner is None:
        return {step_id: step_id for step_id in ended}
    ended |= frozenset(visible(workflow, workflow.steps[planner.planner]).values())
    return {name: step_id for name, step_id in planner.names.items() if step_id in ended}


def _keep(workflow: Workflow) -> None:
    _kept[id(workflow.fragments)] = workflow
    while len(_kept) > KEPT_MAX:
        _kept.popitem(last=False)


def _expand_all(base: Workflow, fragments: Mapping[str, Raw]) -> Workflow:
    found = base
    for planner_id, steps in fragments.items():  # an inner planner's comes after the one that it is in
        found = _expand(found, planner_id, steps_from_json(bytes(steps)))
    return replace(found, base=base, fragments=fragments)


def _expand(workflow: Workflow, planner_id: str, steps: Sequence[Step]) -> Workflow:
    own = {step.id: f"{planner_id}.{step.id}" for step in steps}
    outside = visible(workflow, workflow.steps[planner_id])
    names = Names(planner_id, {**outside, **own})
    inner = {step.id: tuple(name for name in step.depends_on if name in own) for step in steps}
    after: dict[str, list[str]] = {step.id: [] for step in steps}
    for step_id, before in inner.items():
        for name in before:
            after[name].append(own[step_id])
    around = Surroundings(workflow.kinds, workflow.handler_kinds, workflow.default_retry, workflow.name)
    given = frozenset(outside.keys() - own.keys())
    plans = [
        compile_step(step, around, names, tuple(after[step.id]), partial(_nameable, step.id, inner, given))
        for step in steps
    ]
    lasts = {step_id: own[step_id] for step_id, following in after.items() if not following}
    return replace(
        workflow,
        steps={**workflow.steps, **{plan.id: plan for plan in plans}},
        waiting={**workflow.waiting, **dict.fromkeys(own.values(), StepState.WAITING)},
        lasts={**workflow.lasts, planner_id: lasts},
        slots_used=workflow.slots_used or any(map(takes_slots, plans)),
    )


def _nameable(step_id: str, inner: Mapping[str, tuple[str, ...]], outside: frozenset[str]) -> frozenset[str]:
    return ancestors(step_id, inner) | outside
