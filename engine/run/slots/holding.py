"""Holds executions back until they have the slots of all their limits, and gives slots back.

What an event means for the run is worked out as without limits. Then every execution that was ordered and does not have
its slots yet asks for them instead, one limit after the other, and is ordered again when it has them all. Whatever is
over, or was granted to nobody who wants it, is given back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from msgspec.structs import replace

from penstock.engine.limits.names import LimitKind
from penstock.engine.run.commands import BeginStep, Command, DispatchTask, ReleaseSlot, RequestSlot, SetTimer
from penstock.engine.run.event_payloads import SlotGrant
from penstock.engine.run.events import LimitGranted, LimitRefused, Record, StepSkipped, TimerFired
from penstock.engine.run.execution.elements import with_step
from penstock.engine.run.execution.fragments import awaits_check
from penstock.engine.run.expansion import expanded
from penstock.engine.run.holds import HeldSlot, SlotState
from penstock.engine.run.slots.holders import RUN, holder_of, slots_of
from penstock.engine.run.slots.starting import begin, refused
from penstock.engine.run.state import STEP_OUT, Run, RunStatus, StepState, StepStatus
from penstock.engine.run.timers import TimerKind, timer_name
from penstock.engine.run.workflow import Advance, Workflow

Fold: TypeAlias = Callable[[Workflow, Run, Record], Advance]

ENDED, OVER, PAUSED, UNWANTED = "the run has ended", "it is over", "the run is paused", "nobody waits for it"


def with_slots(workflow: Workflow, run: Run, record: Record, fold: Fold) -> Advance:
    """Fold the record by `fold`; what that orders begins when it has its slots."""
    match record.event:
        case LimitGranted(payload=grant):
            after, commands = _granted(workflow, run, record, grant)
        case LimitRefused(payload=refusal):
            after, commands = refused(run, record, refusal)
        case _:
            after, commands = fold(workflow, run, record)
    if after is run:
        return run, commands
    return _settled(expanded(workflow, after), run, after, record, commands)


def _granted(workflow: Workflow, run: Run, record: Record, grant: SlotGrant) -> Advance:
    """One more slot is there: the next one is asked for, or what waits for them begins."""
    owner = grant.step_id or RUN
    slot, wanted = run.slots.get(owner), slots_of(workflow, owner)
    if slot is None or wanted is None or holder_of(run, owner, slot) != grant.holder:
        return run, _unwanted(grant)
    if any(held.limit_id == grant.limit_id for held in slot.granted):
        return run, []
    if run.status is RunStatus.PENDING and run.error is not None:  # it was refused, and is about to be cancelled
        return run, _unwanted(grant)
    limit = wanted.limits[slot.number] if slot.number < len(wanted.limits) else None
    if limit is None or (limit.kind, limit.scope) != (grant.kind, grant.scope):
        return run, _unwanted(grant)
    held = HeldSlot(grant.limit_id, grant.kind, grant.scope, grant.key, grant.inherited)
    slot = replace(slot, number=slot.number + 1, granted=(*slot.granted, held))
    run = replace(run, slots={**run.slots, owner: slot}, seq=record.seq)
    if slot.number < len(wanted.limits):
        return run, [] if run.failing else [_request(run, record, owner, slot)]
    return begin(workflow, run, record) if owner == RUN else _ordered(workflow, run, record, owner)


def _ordered(workflow: Workflow, run: Run, record: Record, step_id: str) -> Advance:
    """The execution has all its slots, and is ordered again by its kind."""
    step, plan = run.find(step_id), workflow.plan_of(step_id)
    if step is None or plan is None or step.status is not StepStatus.QUEUED or run.failing:
        return run, []
    after, commands = plan.kind.order(workflow, run, record, plan, step)
    return (run if after is step else with_step(run, record, plan.id, after)), commands


def _settled(workflow: Workflow, before: Run, run: Run, record: Record, commands: list[Command]) -> Advance:
    """The run without what is over, and with requests in place of what has not all its slots."""
    ordered = [one.step_id for one in commands if isinstance(one, BeginStep | DispatchTask)]
    slots, given_back = run.slots, list[Command]()
    for owner in dict.fromkeys([*_touched(before, run, record), *ordered]):
        slot = slots.get(owner)
        if slot is not None and (why := _why_over(workflow, run, owner, slot)) is not None:
            slots = dict(slots) if slots is run.slots else slots
            del slots[owner]
            given_back += _released(workflow, run, record, owner, slot, why)
    asked = dict[str, SlotState]()
    waiting = set[str]()
    for one in commands:
        if isinstance(one, BeginStep | DispatchTask) and (wanted := slots_of(workflow, one.step_id)) is not None:
            slot = slots.get(one.step_id)
            if slot is None:
                asked[one.step_id] = SlotState(one.attempt, one.iteration, run.pauses)
            if slot is None or slot.number < len(wanted.limits):
                waiting.add(one.step_id)
    if RUN not in slots and workflow.slots is not None and _may_ask(run):
        asked[RUN] = SlotState(run.resumes, pauses=run.pauses)
    if asked or slots is not run.slots:
        slots = dict(slots) if slots is run.slots else slots  # once: that of a large map takes its time
        slots.update(asked)
        run = replace(run, slots=slots)
    if waiting:
        run, commands = _held_back(run, record, commands, waiting)
    requests = (_request(run, record, owner, slot) for owner, slot in asked.items())
    return run, [*commands, *given_back, *requests]


def _may_ask(run: Run) -> bool:
    """Whether the run waits to begin, and was not refused."""
    return run.status is RunStatus.PENDING and run.pause is None and run.error is None


def _held_back(run: Run, record: Record, commands: Iterable[Command], waiting: set[str]) -> Advance:
    """Without the orders of these executions, and without their waits for the worker that the run is bound to."""
    timers = set[str]()
    for step_id in waiting:
        step = run.step(step_id)
        if step.sticky is not None or step.fallback is not None:
            timers.add(timer_name(TimerKind.STICKY, step_id, step))
            run = with_step(run, record, step_id, replace(step, sticky=None, fallback=None))
    return run, [one for one in commands if not _is_held_back(one, waiting, timers)]


def _is_held_back(command: Command, waiting: set[str], timers: set[str]) -> bool:
    match command:
        case BeginStep() | DispatchTask():
            return command.step_id in waiting
        case SetTimer():
            return command.timer in timers
        case _:
            return False


def _touched(before: Run, run: Run, record: Record) -> Iterator[str]:
    """Of the owners of slots those that the record may have ended: of 10,000 elements not all are looked at."""
    if not run.slots:
        return
    if before.status is not run.status or (before.pause is None) is not (run.pause is None):
        yield from run.slots
        return
    event = record.event
    of_event = event.payload.step_id if isinstance(event, TimerFired) else getattr(event, "step_id", None)
    if of_event is not None:
        yield of_event
    if before.steps is run.steps:
        return
    for step_id, step in run.steps.items():
        was = before.steps.get(step_id)
        if was is not step:
            yield step_id
            if step.items is not None and (was is None or was.status is not step.status):
                yield from (owner for owner in run.slots if owner.startswith(f"{step_id}."))


def _why_over(workflow: Workflow, run: Run, owner: str, slot: SlotState) -> str | None:
    """Why the slot is not held or waited for any more; None: it is."""
    if run.ended:
        return ENDED
    if run.pause is not None and (wanted := slots_of(workflow, owner)) and slot.number < len(wanted.limits):
        return PAUSED
    if owner == RUN:
        return None
    step = run.find(owner)
    return None if step is not None and _is_out(run, owner, step, slot) else OVER


def _is_out(run: Run, owner: str, step: StepState, slot: SlotState) -> bool:
    """Whether this execution goes on. The plan of a planner needs no slot: its worker is done."""
    if (step.attempts, step.iteration) != (slot.attempt, slot.iteration) or step.status not in STEP_OUT:
        return False
    if step.status is StepStatus.QUEUED:
        return step.due is None
    return owner not in run.fragments and not awaits_check(run, owner, step)


def _released(
    workflow: Workflow, run: Run, record: Record, owner: str, slot: SlotState, why: str
) -> Iterator[ReleaseSlot]:
    """Give back what was granted, and what was asked for. Tokens of rates are spent."""
    holder = holder_of(run, owner, slot)
    for held in slot.granted:
        if held.kind != LimitKind.RATE and not held.inherited:
            yield ReleaseSlot(holder, why, held.limit_id, step_id=owner or None)
    wanted = slots_of(workflow, owner)
    never_asked = slot.number == 0 and isinstance(record.event, StepSkipped)  # its condition is looked at before
    if wanted is not None and slot.number < len(wanted.limits) and not never_asked:
        yield ReleaseSlot(holder, why, None, slot.number, owner or None, slot.attempt, slot.iteration)


def _unwanted(grant: SlotGrant) -> list[Command]:
    if grant.kind == LimitKind.RATE or grant.inherited:
        return []
    return [ReleaseSlot(grant.holder, UNWANTED, grant.limit_id, step_id=grant.step_id)]


def _request(run: Run, record: Record, owner: str, slot: SlotState) -> RequestSlot:
    holder = holder_of(run, owner, slot)
    if owner == RUN:
        return RequestSlot(holder, slot.number, record.at)
    return RequestSlot(holder, slot.number, record.at, owner, slot.attempt, slot.iteration)
