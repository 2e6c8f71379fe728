"""What the executions of a run wait for, by the run's state alone.

Of a map's elements one stands for all that wait for the same, with their number: a map may have 10,000 of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from penstock.engine.run.execution.children import child_run_id
from penstock.engine.run.execution.fragments import awaits_check
from penstock.engine.run.items import Items, ItemStatus
from penstock.engine.run.kinds.approval import approval_of
from penstock.engine.run.kinds.normal import Normal
from penstock.engine.run.kinds.sub_workflow import ChildStep
from penstock.engine.run.slots.holders import awaits_slots
from penstock.engine.run.state import RUN_OPEN, STEP_OUT, Run, StepState, StepStatus
from penstock.engine.run.workflow import StepPlan, Workflow

EXPLAINED_MAX = 100  # executions of one run


class Awaited(StrEnum):
    """What an execution waits for. ENGINE: the next move is the engine's own. QUEUE: a worker has to take its task.
    WORKER: a worker carries it out. ASIDE: its worker has put it aside.
    LIMIT: a limit has no slot for it."""

    ENGINE = "engine"
    QUEUE = "queue"
    WORKER = "worker"
    ASIDE = "aside"
    LIMIT = "limit"
    RETRY = "retry"
    SLEEP = "sleep"
    EVENT = "event"
    APPROVAL = "approval"
    CHILD = "child"


class WaitingExecution(Struct, frozen=True):
    """An execution that is queued or running. `others` is how many more elements of its map wait for the same.
    `begun_seq` is the sequence of its start, where the state has that instead of its worker."""

    id: str
    step: StepState
    awaits: Awaited
    plan: StepPlan | None = None
    child_run_id: str | None = None
    others: int = 0
    begun_seq: int = 0

    @property
    def kind(self) -> tuple[str, str | None]:
        """Type and group of its tasks."""
        assert self.plan is not None
        return self.plan.task, self.plan.group


def executions(workflow: Workflow | None, run: Run) -> list[WaitingExecution]:
    """What is queued or running in this run, at most 100 of them."""
    return list(islice(_executions(workflow, run), EXPLAINED_MAX)) if run.status in RUN_OPEN else []


def _executions(workflow: Workflow | None, run: Run) -> Iterator[WaitingExecution]:
    for step_id, step in run.steps.items():
        plan = None if workflow is None else workflow.plan_of(step_id)
        if step.status not in STEP_OUT or _awaits_fragment(run, step_id, step):
            continue
        if step.status is StepStatus.RUNNING and step.items is not None:
            yield from _elements(workflow, run, step_id, step.items, plan)
        else:
            yield _execution(workflow, run, step_id, step, plan)


def _awaits_fragment(run: Run, step_id: str, step: StepState) -> bool:
    """Whether it is a planner whose steps are carried out: these are explained."""
    return step.status is StepStatus.RUNNING and step_id in run.fragments


def _elements(
    workflow: Workflow | None, run: Run, map_id: str, items: Items, plan: StepPlan | None
) -> Iterator[WaitingExecution]:
    """One for all elements that wait for the same: the first of them, of retries the one that is due first."""
    found: dict[tuple[ItemStatus, bool, bool], list[tuple[float, int]]] = {}
    for number, element in items.numbered():
        if element.status in (ItemStatus.QUEUED, ItemStatus.RUNNING):
            due = element.due if element.status == ItemStatus.QUEUED else 0.0
            held = run.slots and _awaits_slot(workflow, run, f"{map_id}.{number}")
            found.setdefault((element.status, due > 0, bool(held)), []).append((due, number))
    each = None if plan is None else plan.each
    for alike in found.values():
        number = min(alike)[1]
        one = _execution(workflow, run, f"{map_id}.{number}", run.step(f"{map_id}.{number}"), each)
        yield replace(one, others=len(alike) - 1, begun_seq=items.get(number).begun)


def _awaits_slot(workflow: Workflow | None, run: Run, step_id: str) -> bool:
    return workflow is not None and awaits_slots(workflow, run, step_id)


def _execution(
    workflow: Workflow | None, run: Run, step_id: str, step: StepState, plan: StepPlan | None
) -> WaitingExecution:
    if step.status is StepStatus.QUEUED and step.due is None and _awaits_slot(workflow, run, step_id):
        return WaitingExecution(step_id, step, Awaited.LIMIT, plan)
    awaits = _queued(step, plan) if step.status is StepStatus.QUEUED else _running(run, step_id, step, plan)
    child = None
    if awaits is Awaited.CHILD:
        child = step.child_run_id or child_run_id(run.run_id, step_id, step.attempts)
    return WaitingExecution(step_id, step, awaits, plan, child)


def _queued(step: StepState, plan: StepPlan | None) -> Awaited:
    if step.due is not None:
        return Awaited.RETRY
    return Awaited.QUEUE if _has_task(plan) else Awaited.ENGINE


def _running(run: Run, step_id: str, step: StepState, plan: StepPlan | None) -> Awaited:
    if step.wake_at is not None:
        return Awaited.SLEEP
    if step.waits_for is not None:
        return Awaited.EVENT
    if plan is not None and approval_of(plan) is not None:
        return Awaited.APPROVAL
    if plan is not None and isinstance(plan.kind, ChildStep):
        return Awaited.CHILD
    if not _has_task(plan) or awaits_check(run, step_id, step):
        return Awaited.ENGINE
    return Awaited.WORKER if step.left is None else Awaited.ASIDE


def _has_task(plan: StepPlan | None) -> bool:
    """Whether workers carry the execution out."""
    return plan is not None and isinstance(plan.kind, Normal)
