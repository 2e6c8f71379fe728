"""A rerun takes over what is done already in the run that it repeats, and begins then.

Each step comes by an event of its own, with its output whole: the new history stands for itself. The elements of a map
come before the map, the plan of a planner (`planner.expanded`) before its steps.
"""

from __future__ import annotations

from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from penstock.engine.run.event_payloads import TakenStep, Taking
from penstock.engine.run.events import PlannerExpanded, Record, StepTakenOver
from penstock.engine.run.execution.inputs import skipped_by
from penstock.engine.run.execution.steps import all_done, complete_run, enter, is_ready
from penstock.engine.run.expansion import expanded, inserted
from penstock.engine.run.items import Element, Items, ItemStatus, new_items
from penstock.engine.run.payloads import element_result, inline_or_ref
from penstock.engine.run.state import STEP_ITEM, Run, StepState, StepStatus
from penstock.engine.run.workflow import Advance, StepPlan, Workflow

DONE = frozenset({StepStatus.COMPLETED, StepStatus.SKIPPED, StepStatus.RECOVERED})
PARTS = frozenset({StepStatus.PENDING, StepStatus.RUNNING})
ENDED_ELEMENTS = frozenset({StepStatus.COMPLETED, StepStatus.FAILED})


def take_plan(workflow: Workflow, run: Run, record: Record, event: PlannerExpanded) -> Run:
    """The plan of a planner that is still to be taken over."""
    wanted = run.taking is not None and event.step_id in (*run.taking.done, *run.taking.parts)
    if not wanted or event.step_id in run.fragments or event.step_id not in run.steps:
        return run
    _, run, _ = inserted(replace(run, seq=record.seq), event.step_id, event.payload.steps, workflow)
    return run


def take_over(workflow: Workflow, run: Run, record: Record, event: StepTakenOver) -> Advance:
    """One step, or one element of a map. After the last step the run begins."""
    after = taken_over(workflow, run, record, event)
    return (after, []) if after is run or after.taking is not None else begin_steps(workflow, after, record)


def taken_over(workflow: Workflow, run: Run, record: Record, event: StepTakenOver) -> Run:
    """As `take_over`, for a run that is not to begin yet."""
    if event.item is not None:
        return _with_element(workflow, run, record, event, event.item)
    plan, taking = workflow.plan_of(event.step_id), run.taking
    if plan is None or taking is None or not _is_wanted(taking, event):
        return run
    steps = {**run.steps, event.step_id: _state(workflow, run, record, event, plan)}
    return replace(run, steps=steps, taking=taking.without(event.step_id), seq=record.seq)


def begin_steps(workflow: Workflow, run: Run, record: Record) -> Advance:
    """Order the steps whose dependencies were taken over, and those that have none; nothing if the run's time is over
    meanwhile."""
    if run.failing:
        return run, []
    workflow = expanded(workflow, run)
    if all_done(workflow, run):
        return run, [complete_run(workflow, run, record)]
    ready = [
        step_id
        for step_id, step in run.steps.items()
        if step.status is StepStatus.PENDING and is_ready(run, workflow.steps[step_id])
    ]
    return enter(workflow, run, ready, record)


def _is_wanted(taking: Taking, event: StepTakenOver) -> bool:
    status = event.payload.status
    return status in (DONE if event.step_id in taking.done else PARTS) and (
        event.step_id in taking.done or event.step_id in taking.parts
    )


def _state(workflow: Workflow, run: Run, record: Record, event: StepTakenOver, plan: StepPlan) -> StepState:
    taken, before = event.payload, run.steps.get(plan.id, StepState.WAITING)
    status = StepStatus(taken.status)
    items, output = _mapped(before, taken, status)
    kept, output_at = inline_or_ref(output, record.seq)
    made = status is StepStatus.COMPLETED and plan.id in run.fragments and isinstance(output, UnsetType)
    return StepState(
        status=status,
        attempts=taken.attempts,
        output=kept,
        output_at=output_at,
        skips=() if output_at is None or isinstance(output, UnsetType) else skipped_by(workflow, plan, output),
        error=taken.error,
        iteration=taken.iteration,
        started_at=taken.started_at,
        finished_at=taken.finished_at,
        worker_id=event.worker_id,
        items=items,
        child_run_id=taken.child_run_id,
        handles=plan.handles,
        received=taken.received,
        parts=dict(workflow.lasts.get(plan.id, {})) if made else {},
        completed_seq=record.seq if status is StepStatus.COMPLETED and plan.compensate is not None else 0,
    )


def _mapped(before: StepState, taken: TakenStep, status: StepStatus) -> tuple[Items | None, Raw | UnsetType]:
    """The elements of a map, and the array that they make if they are small; of another step only its output."""
    if taken.items is None:
        return None, taken.output
    items = before.items or new_items(taken.items)
    if status is not StepStatus.COMPLETED or items.outputs is None:
        return items, UNSET
    array = b"[%b]" % b",".join(bytes(items.outputs[number]) for number in range(items.total))
    return replace(items, outputs=None), Raw(array)


def _with_element(workflow: Workflow, run: Run, record: Record, event: StepTakenOver, number: int) -> Run:
    map_id, taken, taking = event.step_id.rpartition(".")[0], event.payload, run.taking
    plan, whole = workflow.steps.get(map_id), run.steps.get(map_id)
    if taking is None or plan is None or plan.each is None or whole is None or taken.items is None:
        return run
    items = whole.items or new_items(taken.items, plan.each.tolerated)
    is_new = 0 <= number < items.total and items.get(number).status is ItemStatus.WAITING
    if not is_new or map_id not in (*taking.done, *taking.parts) or taken.status not in ENDED_ELEMENTS:
        return run
    result = element_result(event, items.wraps)
    element = Element(STEP_ITEM[StepStatus(taken.status)], taken.attempts, ended=record.seq)
    items = items.put(number, element).kept(number, result, memoryview(result).nbytes + 1)
    return replace(run, steps={**run.steps, map_id: replace(whole, items=items)}, seq=record.seq)
