"""/runs/{run_id}/graph: the steps of a run and what they wait for, with those that planners have inserted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter

from falcon.asgi import Request, Response
from msgspec import UNSET

from penstock.actors.imports.reading import read_loaded
from penstock.client.history.views import EdgeView, GraphView, NodeView
from penstock.engine.errors import NotFound
from penstock.engine.run.expansion import expanded
from penstock.engine.run.state import Run
from penstock.engine.run.workflow import StepPlan, Workflow
from penstock.http.backend import Backend
from penstock.http.messages import params, responses
from penstock.http.messages.views import item_counts


class GraphResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response, run_id: str) -> None:
        """The graph of the run's steps, with their statuses."""
        found = params.run_id(run_id)
        loaded = await read_loaded(self._backend.store, found)
        if loaded.run is None or loaded.workflow is None:
            raise NotFound(f"run {found} not found" if loaded.run is None else f"the definition of run {found} is gone")
        responses.ok(resp, graph(loaded.workflow, loaded.run))


def graph(workflow: Workflow, run: Run) -> GraphView:
    """The steps in the order of the definition, each fragment's behind those before it, handlers last."""
    workflow = expanded(workflow, run)
    plans = {step_id: plan for step_id in run.steps if (plan := workflow.plan_of(step_id)) is not None}
    before = {step_id: list(dict.fromkeys(_before(workflow, plans, plan))) for step_id, plan in plans.items()}
    edges = [EdgeView(each, step_id) for step_id, found in before.items() for each in found]
    return GraphView([_node(run, plan) for plan in plans.values()], edges, _layers(before))


def _node(run: Run, plan: StepPlan) -> NodeView:
    step = run.steps[plan.id]
    has_task = plan.task and plan.task != plan.kind.name
    items = UNSET if step.items is None else item_counts(step.items)
    return NodeView(plan.id, plan.kind.name, step.status, plan.task if has_task else None, plan.handles, items)


def _before(workflow: Workflow, plans: Mapping[str, StepPlan], plan: StepPlan) -> Iterator[str]:
    """What the step waits for. A planner is followed by its fragment, and that by what depends on the planner."""
    if plan.handles is not None:
        whole = plan.handles if plan.handles in plans else plan.handles.rpartition(".")[0]
        yield from [whole] if whole in plans else []
        return
    for step_id in plan.depends_on:
        yield from _ends(workflow, step_id)
    if plan.planner is not None and not any(workflow.steps[one].planner == plan.planner for one in plan.depends_on):
        yield plan.planner


def _ends(workflow: Workflow, step_id: str) -> Iterator[str]:
    """The last steps of a planner's fragment; any other step itself."""
    lasts = workflow.lasts.get(step_id)
    if not lasts:
        yield step_id
    else:
        for last in lasts.values():
            yield from _ends(workflow, last)


def _layers(before: Mapping[str, list[str]]) -> list[list[str]]:
    depth: dict[str, int] = {}
    for step_id in TopologicalSorter(before).static_order():
        depth[step_id] = 1 + max((depth[each] for each in before[step_id]), default=-1)
    layers: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for step_id in before:
        layers[depth[step_id]].append(step_id)
    return layers
