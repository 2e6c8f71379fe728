"""The steps that a planner inserts, as plans: compiled as if they were a workflow of their own, and then put in their
place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock.engine.run.compiling import compile_workflow
from penstock.engine.run.workflow import StepPlan, Workflow
from penstock.engine.validation import parse


def fragment_plans(
    workflow: Workflow, planner_id: str, steps: Sequence[Mapping[str, Any]], around: Mapping[str, str]
) -> tuple[dict[str, StepPlan], dict[str, str]]:
    """The plans by full id, and the full ids by the fragment's own. `around` are the steps outside it, by what they are
    called there."""
    own = {step["id"]: f"{planner_id}.{step['id']}" for step in steps}
    outside = [name for name in around if name not in own]
    document: dict[str, Any] = {
        "name": workflow.name,
        "steps": [
            *({"id": name, "task": "outside"} for name in outside),
            *({**step, "depends_on": _inner(step, own) + outside} for step in steps),
        ],
    }
    if workflow.default_retry is not None:
        document["default_retry"] = {
            key: value for key, value in msgspec.to_builtins(workflow.default_retry).items() if value is not None
        }
    compiled = compile_workflow(parse(document), "fragment").steps
    names = {**around, **own}
    plans = [_placed(compiled[step["id"]], planner_id, names, step.get("depends_on") or ()) for step in steps]
    return {plan.id: plan for plan in plans}, own


def lasts(plans: Mapping[str, StepPlan], own: Mapping[str, str]) -> dict[str, str]:
    """The fragment's steps that no other of them depends on: full ids by their own."""
    before = {one for step_id in own.values() for one in plans[step_id].depends_on}
    return {name: step_id for name, step_id in own.items() if step_id not in before}


def _inner(step: Mapping[str, Any], own: Mapping[str, str]) -> list[str]:
    return [name for name in step.get("depends_on") or () if name in own]


def _placed(plan: StepPlan, planner_id: str, names: Mapping[str, str], after: Sequence[str]) -> StepPlan:
    step_id = names[plan.id]
    handler = plan.on_failure
    if handler is not None:
        handler = replace(handler, id=f"{step_id}.on_failure", handles=step_id)
    return replace(
        plan,
        id=step_id,
        depends_on=tuple(names[name] for name in after),
        labels=tuple(after),
        planner=planner_id,
        names=names,
        on_failure=handler,
    )
