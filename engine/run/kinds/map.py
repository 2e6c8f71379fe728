"""Maps: a step that is carried out once for each element of an array.

Each element has an execution of its own, `<map>.<number>`, with attempts, retries and a timeout, as a normal step has:
a task for a worker, or a child run.
The map completes when all of them have, with the array of their outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import assert_never

import msgspec
import orjson
from msgspec import UNSET, Raw, Struct, UnsetType, structs
from msgspec.structs import replace

from penstock.config.limits import MAP_ITEMS_DEFAULT, MAP_ITEMS_MAX
from penstock.engine.definition import values
from penstock.engine.definition.definitions import Step
from penstock.engine.definition.forms import Document, Form, nested
from penstock.engine.definition.identifiers import json_type
from penstock.engine.definition.report import Report
from penstock.engine.definition.step_fields import LIMITS_OF_EXECUTIONS, STEP, step_type
from penstock.engine.errors import ExpressionFailed
from penstock.engine.expressions.places import INPUT, WHEN, Place
from penstock.engine.run.commands import BeginStep, CancelChild, Command, WithdrawTask, WithdrawTimer
from penstock.engine.run.event_payloads import NULL, StepFacts
from penstock.engine.run.events import ChildEnded, Record, StepCompleted, StepFailed
from penstock.engine.run.execution.beginning import NOT_READY, Ready, evaluated
from penstock.engine.run.execution.cancelling import cancelled_elements, for_reason, silently
from penstock.engine.run.execution.children import child_run_id
from penstock.engine.run.execution.dispatch import order_task, task_with, withdrawn_tasks
from penstock.engine.run.execution.elements import with_item, with_step
from penstock.engine.run.execution.steps import completed, fail_for_good
from penstock.engine.run.items import Items, ItemStatus, new_items
from penstock.engine.run.kinds.base import BaseKind, written_down
from penstock.engine.run.kinds.normal import Normal
from penstock.engine.run.kinds.sub_workflow import (
    CHILD_FIELDS,
    CHILD_LABELS,
    ENDED_WITHOUT_IT,
    LABELS,
    ChildPlan,
    ChildStep,
)
from penstock.engine.run.payloads import child_problem, failed_with, succeeded, too_large
from penstock.engine.run.state import STEP_DONE, Run, StepState, StepStatus
from penstock.engine.run.timers import item_timers
from penstock.engine.run.workflow import NO_RETRY, Advance, Evaluated, StepEvent, StepPlan, Workflow

ITEMS = "config.items"

CONFIG = Form(
    component="MapConfig",
    fields={
        "items": values.anything.annotated(
            description="The array, or a template that gives it. Without it: the step's default input."
        ),
        "max_items": values.whole_number(MAP_ITEMS_MAX, 1).annotated(
            description=f"A longer array fails the step. {MAP_ITEMS_DEFAULT} without it."
        ),
        "max_concurrency": values.whole_number(MAP_ITEMS_MAX, 1).annotated(
            description="How many elements may be out at a time; all without it."
        ),
        "on_item_failure": values.one_of("fail", "continue").annotated(
            description="What the failure of an element for good means for the map. fail without it."
        ),
        "workflow": CHILD_FIELDS["workflow"].annotated(
            description="In place of `task`: each element is a run of this workflow, a child."
        ),
        "version": CHILD_FIELDS["version"],
        "labels": CHILD_LABELS.annotated(
            description="Of the children, with `${{ expression }}`; `item` is the element."
        ),
    },
)


class Mapped(Struct, frozen=True):
    """The bounds of a map. `concurrency`: how many elements may be queued or running at a time."""

    items_max: int
    concurrency: int
    continues: bool


class Map(BaseKind):
    """A step whose elements are tasks for workers, or runs of another workflow."""

    name = "map"
    reads_default = True
    names_of_limits: tuple[str, ...] = ("item", "index")
    places: tuple[Place, ...] = (
        WHEN,
        Place(ITEMS),
        Place(INPUT.path, names=("default", "item", "index"), later=True),
        Place(LABELS, names=("item", "index"), later=True),
    )
    form = structs.replace(
        STEP,
        component="MapStep",
        fields={**STEP.fields, "type": step_type("map"), "config": nested(CONFIG)},
        required=("id", "type"),
        elsewhere=frozenset({"loop"}),
        schema={
            "description": "A task, or a run of another workflow, for each element of an array. Retries and timeout "
            "are those of an element."
        },
    )

    def check(self, label: str, step: Document, report: Report) -> Document:
        found = step.get("config")
        config = found if isinstance(found, dict) else {}
        if ("task" in step) is ("workflow" in config):
            report.add(f"{label}: a map needs a task or config.workflow, and not both")
        if "version" in config and "workflow" not in config:
            report.add(f"{label}: config: version is that of config.workflow, which is missing")
        if "labels" in config and "workflow" not in config:
            report.add(f"{label}: config: labels are those of runs of config.workflow, which is missing")
        if "worker_group" in step and "workflow" in config:
            report.add(f"{label}: worker_group is for a task, and the map has config.workflow")
        if "workflow" in config:
            limits = [field for field in LIMITS_OF_EXECUTIONS if field in step]
            report.add(*(f"{label}: {field} is for tasks: give it to workflow of config" for field in limits))
        return step

    def compile(self, step: Step, plan: StepPlan) -> StepPlan:
        config = step.config or {}
        mapped = Mapped(
            config.get("max_items", MAP_ITEMS_DEFAULT),
            config.get("max_concurrency", MAP_ITEMS_MAX),
            config.get("on_item_failure") == "continue",
        )
        each = replace(
            plan,
            kind=ITEM,
            expressions=plan.later,
            later={},
            dependents=(),
            on_failure=None,  # the map has it; each element has a compensation of its own
            tolerated=mapped.continues,
        )
        if "workflow" in config:
            child = ChildPlan(config["workflow"], config.get("version"))
            each = replace(each, kind=CHILD_ITEM, task=ChildStep.name, config=child)
            plan = replace(plan, task=self.name)
        return replace(plan, timeout_s=None, retry=NO_RETRY, config=mapped, each=each, compensate=None, slots=None)

    def begin(self, workflow: Workflow, run: Run, plan: StepPlan, at: float, values: Evaluated) -> Sequence[Command]:
        """Write down how many elements there are."""
        return written_down(run, plan, at, StepFacts(items=len(elements(plan, values))))

    def begun(self, workflow: Workflow, run: Run, record: Record, plan: StepPlan, begun: StepFacts) -> Advance:
        step, total = run.step(plan.id), begun.items or 0
        items = step.items
        if items is None or items.total != total:
            items = new_items(total, _mapped(plan).continues)
        running = replace(step, status=StepStatus.RUNNING, started_at=record.event.timestamp, items=items)
        return _go_on(workflow, _with_map(run, record, plan.id, running), record, plan)

    def withdraw(self, workflow: Workflow, plan: StepPlan, step: StepState) -> Sequence[Command]:
        if step.items is None or not step.items.out:
            return ()
        if plan.each is not None and isinstance(plan.each.kind, MapChild):
            return [*_children(plan, step, step.items)]
        states = [StepState(), *step.item_states.values()]
        tasks = dict.fromkeys(command for state in states for command in withdrawn_tasks(workflow, plan, state))
        return [*cancelled_elements(plan, step), *tasks]


CUT_SHORT = StepStatus.CANCELLED  # an element that had not ended when its map failed


class ItemEnds(BaseKind):
    """What the end of an element means for its map."""

    def done(self, workflow: Workflow, run: Run, record: Record, plan: StepPlan, output: Raw | UnsetType) -> Advance:
        given = NULL if isinstance(output, UnsetType) else output
        whole = map_of(workflow, plan)
        result = succeeded(given) if _mapped(whole).continues else given
        return _ended(workflow, run, record, whole, plan, result)

    def take_event(self, workflow: Workflow, run: Run, record: Record, event: StepEvent, plan: StepPlan) -> Advance:
        if plan.compensate is not None and isinstance(event, StepCompleted | StepFailed | ChildEnded):
            whole, ran = run.steps[map_of(workflow, plan).id], run.step(plan.id)
            if whole.status is StepStatus.FAILED and (event.attempt_number, ran.status) == (ran.attempts, CUT_SHORT):
                return _ended_after_map(run, record, event, plan), []
        return super().take_event(workflow, run, record, event, plan)

    def take_late(self, workflow: Workflow, run: Run, record: Record, event: StepEvent, plan: StepPlan) -> Advance:
        whole = run.steps[map_of(workflow, plan).id].status
        if whole in STEP_DONE or (plan.compensate is None and whole is StepStatus.FAILED):
            return run, []  # its elements are not waited for
        return super().take_late(workflow, run, record, event, plan)

    def gave_up(self, workflow: Workflow, run: Run, record: Record, plan: StepPlan, error: str) -> Advance:
        whole = map_of(workflow, plan)
        if _mapped(whole).continues:
            return _ended(workflow, run, record, whole, plan, failed_with(error))
        return _fail(workflow, run, record, whole, plan, error)


class MapItem(ItemEnds, Normal):
    """One element of a map: a task like a normal step's."""

    def begin(self, workflow: Workflow, run: Run, plan: StepPlan, at: float, values: Evaluated) -> Sequence[Command]:
        return [task_with(run, plan, run.step(plan.id), values.get(INPUT.path, values["item"]))]


class MapChild(ItemEnds, ChildStep):
    """One element of a map: a child like a sub_workflow's."""


ITEM, CHILD_ITEM = MapItem(), MapChild()


def elements(plan: StepPlan, values: Evaluated) -> list[Raw]:
    """The elements of the array that a map is given. Raises ExpressionFailed for what is none, or has too many."""
    array = values.get(ITEMS, values.get("default", NULL))
    try:
        found = msgspec.json.decode(array, type=list[Raw])
    except msgspec.ValidationError:
        given = json_type(orjson.loads(bytes(array)))
        raise ExpressionFailed(f"a map needs an array of items, and was given {given}") from None
    if len(found) > _mapped(plan).items_max:
        raise ExpressionFailed(_too_many(len(found), _mapped(plan).items_max))
    return found


def _too_many(found: int, items_max: int) -> str:
    way_out = "raise it" if found <= MAP_ITEMS_MAX else f"{MAP_ITEMS_MAX} is the most: map over parts of the array"
    return f"the array has {found} elements, max_items is {items_max}: {way_out}"


def items_of(run: Run, plan: StepPlan, payloads: Mapping[str, Raw], ready: Ready = NOT_READY) -> list[Raw]:
    """The elements of a map, out of the payloads that beginning it reads. Raises ExpressionFailed."""
    return elements(plan, evaluated(plan, run, payloads, ready))


def map_of(workflow: Workflow, plan: StepPlan) -> StepPlan:
    """The plan of the map that this element is of."""
    return workflow.steps[plan.id.rpartition(".")[0]]


def _mapped(plan: StepPlan) -> Mapped:
    assert isinstance(plan.config, Mapped)
    return plan.config


def _items(run: Run, map_id: str) -> Items:
    items = run.steps[map_id].items
    assert items is not None
    return items


def _with_map(run: Run, record: Record, map_id: str, step: StepState) -> Run:
    return replace(run, steps={**run.steps, map_id: step}, seq=record.seq)


def _with_items(run: Run, record: Record, map_id: str, items: Items) -> Run:
    return _with_map(run, record, map_id, replace(run.steps[map_id], items=items))


def _ended(workflow: Workflow, run: Run, record: Record, whole: StepPlan, plan: StepPlan, result: Raw) -> Advance:
    """An element has ended, and the map goes on; `result` is what stands in its array."""
    assert plan.item is not None
    items = _items(run, whole.id).kept(plan.item, result, memoryview(result).nbytes + 1)
    return _go_on(workflow, _with_items(run, record, whole.id, items), record, whole)


def _go_on(workflow: Workflow, run: Run, record: Record, whole: StepPlan) -> Advance:
    """Order elements that wait, as many as may be out; or complete the map."""
    if run.failing:
        return run, []
    items = _items(run, whole.id)
    if items.all_ended:
        return _complete(workflow, run, record, whole, items)
    items, numbers = items.ordered(_mapped(whole).concurrency - items.out)
    run, commands = _with_items(run, record, whole.id, items) if numbers else run, list[Command]()
    for number in numbers:
        run, ordered = _order(workflow, run, record, whole, number)
        commands += ordered
    return run, commands


def _order(workflow: Workflow, run: Run, record: Record, whole: StepPlan, number: int) -> Advance:
    assert whole.each is not None
    if run.bound is None or isinstance(whole.each.kind, MapChild):
        # nothing changes about it: of 10,000 elements each would copy the map's state
        attempt = _items(run, whole.id).get(number).attempts
        return run, [BeginStep(f"{whole.id}.{number}", attempt, 0, record.at)]
    plan = replace(whole.each, id=f"{whole.id}.{number}", item=number)
    step, commands = order_task(workflow, run, record, plan, run.step(plan.id))
    return _with_map(run, record, whole.id, with_item(run.steps[whole.id], number, step, record)), commands


def _complete(workflow: Workflow, run: Run, record: Record, whole: StepPlan, items: Items) -> Advance:
    if items.outputs is None:  # whoever needs the array puts it together from the history
        return completed(workflow, run, record, whole, UNSET)
    array = b"[%b]" % b",".join(bytes(items.outputs[number]) for number in range(items.total))
    run = _with_items(run, record, whole.id, replace(items, outputs=None))
    return completed(workflow, run, record, whole, Raw(array))


def _fail(workflow: Workflow, run: Run, record: Record, whole: StepPlan, plan: StepPlan, error: str) -> Advance:
    """An element has failed for good, and the map with it: what is out is taken back, what waits never begins."""
    step = run.steps[whole.id]
    commands: list[Command] = [WithdrawTimer(timer.timer, timer.due) for timer in item_timers(run, whole.id, step)]
    undone = plan.compensate is not None
    withdrawn = _withdrawn(workflow, whole, step)
    why = f"the map has failed: element {plan.item} failed: {error}"
    commands += silently(withdrawn) if undone else for_reason(withdrawn, why)
    items = _items(run, whole.id).cut_short() if undone else _items(run, whole.id).cancelled()
    items = replace(items, failed=plan.item)
    run = _with_map(run, record, whole.id, replace(step, items=items, item_states={}))
    run, following = fail_for_good(
        workflow, run, record, whole, f"element {plan.item} failed: {error}", dead_letter=False
    )
    return run, commands + following


def _withdrawn(workflow: Workflow, whole: StepPlan, step: StepState) -> list[Command]:
    """Withdraw the elements of a map whose run goes on."""
    found = whole.kind.withdraw(workflow, whole, step)
    return [replace(one, of_step=whole.id) if isinstance(one, WithdrawTask) else one for one in found]


def _ended_after_map(run: Run, record: Record, event: StepCompleted | StepFailed | ChildEnded, plan: StepPlan) -> Run:
    """An element that ran when its map failed has ended after all. If it has completed, it may have to be undone."""
    match event:
        case StepCompleted():
            done = too_large("the output", event.payload) is None
        case ChildEnded():
            is_its = event.payload.run_id == child_run_id(run.run_id, plan.id, run.step(plan.id).attempts)
            if not is_its:
                return run
            done = child_problem(event.payload) is None
        case StepFailed():
            done = False
        case _:
            assert_never(event)
    ended = replace(run.step(plan.id), status=StepStatus.COMPLETED if done else StepStatus.FAILED)
    return with_step(run, record, plan.id, ended)


def _children(plan: StepPlan, step: StepState, items: Items) -> Iterator[CancelChild]:
    """Cancel the children of the elements that are out."""
    for number, element in items.numbered():
        waits = element.status == ItemStatus.QUEUED and element.due
        if element.status in (ItemStatus.QUEUED, ItemStatus.RUNNING) and not waits:
            yield CancelChild(f"{plan.id}.{number}", element.attempts, ENDED_WITHOUT_IT)
