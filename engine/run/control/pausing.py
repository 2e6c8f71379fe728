"""A run is paused: what runs goes on, and nothing new begins until the run goes on.

Its steps change as in any run. What would begin an execution is left out, and ordered when the run goes on: by then the
state says which executions are queued. Timers that fire meanwhile and decisions about approvals are kept, and take
effect then; the timeouts of what runs are not. The workflow's timeout stands still.

Not here: pauses of a task that its worker asks for (engine/run/execution/deliveries.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from penstock.engine.run.commands import (
    BeginStep,
    CancelChild,
    Command,
    DispatchTask,
    PauseChild,
    RequestApproval,
    StartChild,
    WithdrawQueued,
    WithdrawTask,
    WithdrawTimer,
)
from penstock.engine.run.event_payloads import PauseScope, Started, StepFacts, TimerRef
from penstock.engine.run.events import (
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRejected,
    Record,
    StepStarted,
    TimerFired,
    WorkflowCancelled,
    WorkflowPaused,
    WorkflowStarted,
    WorkflowUnpaused,
)
from penstock.engine.run.execution.dispatch import begin_step, task_with
from penstock.engine.run.execution.elements import with_step
from penstock.engine.run.execution.fragments import awaits_check
from penstock.engine.run.expansion import expanded
from penstock.engine.run.holds import KeptDecision, RunPause
from penstock.engine.run.items import ItemStatus
from penstock.engine.run.state import RUN_OPEN, Run, RunStatus, StepState, StepStatus
from penstock.engine.run.timers import (
    TimerKind,
    fired_timer,
    step_timers,
    timer_name,
    workflow_timer,
    workflow_timer_name,
)
from penstock.engine.run.workflow import Advance, StepPlan, Workflow

Fold: TypeAlias = Callable[[Workflow, Run, Record], Advance]
"""Folds a record into a run, whether it is paused or not."""

BEGINS = (BeginStep, DispatchTask, StartChild, RequestApproval)
# Timers that take effect when the run goes on. A queued task is ordered again then, so the wait for its bound worker
# begins anew; a task that was lost is given to another worker once that is done.
EFFECTIVE = (
    TimerKind.RETRY,
    TimerKind.LOOP,
    TimerKind.APPROVAL,
    TimerKind.SLEEP,
    TimerKind.WAIT,
    TimerKind.RESTORED,
)
OF_ATTEMPT = (TimerKind.WAIT, TimerKind.LOST, TimerKind.RESTORED)  # whose numbers are compared


def pause(workflow: Workflow, run: Run, record: Record, event: WorkflowPaused) -> Advance:
    """From now on nothing begins. The tasks that wait for a worker are withdrawn, and the workflow's timeout stops."""
    commands: list[Command] = []
    left = None
    if run.due is not None:
        left = max(run.due - record.at, 0.0)
        commands.append(WithdrawTimer(workflow_timer_name(run), run.due))
    children = event.payload.children
    began = RunPause(event.timestamp, left, children)
    commands += dict.fromkeys(_withdrawn(workflow, run))
    if children:
        commands += _children(workflow, run, record.seq, pause=True)
    return replace(run, due=None, pause=began, pauses=run.pauses + 1, seq=record.seq), commands


def fold_paused(workflow: Workflow, run: Run, record: Record, fold: Fold) -> Advance:
    """Fold a record into a paused run."""
    assert run.pause is not None
    event = record.event
    match event:
        case WorkflowUnpaused():
            return _unpause(workflow, run, record, event, fold)
        case WorkflowCancelled() if run.status is not RunStatus.COMPENSATING:  # it ends, or undoes its steps, at once
            return fold(workflow, replace(run, pause=None), record)
        case WorkflowPaused(payload=PauseScope(children=True)) if not run.pause.children:
            wider = replace(run.pause, children=True)
            return replace(run, pause=wider, seq=record.seq), [*_children(workflow, run, record.seq, pause=True)]
        case _ if (kept := _kept(run, run.pause, record)) is not None:
            if kept is run.pause:
                return run, []
            return replace(run, pause=kept, seq=record.seq), _fired_early(run, record)
        case _:
            return _held(workflow, run, record, fold)


def _held(workflow: Workflow, run: Run, record: Record, fold: Fold) -> Advance:
    """Fold the record, and leave out what would begin an execution."""
    after, commands = fold(workflow, run, record)
    if after is run:
        return run, commands
    if after.ended:
        return replace(after, pause=None), commands
    after = _noted(run, after, record)
    left: list[Command] = []
    for command in commands:
        if not isinstance(command, BEGINS):
            left.append(command)
        elif isinstance(command, BeginStep) and command.step_id in after.steps:
            after = _waits(expanded(workflow, after), after, command)
    return after, [*left, *_begun_child(after, record)]


def _waits(workflow: Workflow, run: Run, command: BeginStep) -> Run:
    """The run, in which a step waits to begin that could have begun at `command.at`."""
    plan = workflow.plan_of(command.step_id)
    assert plan is not None, "it was ordered"
    step = run.steps[plan.id]
    waits = plan.kind.held(plan, step, command.at)
    return run if waits is step else replace(run, steps={**run.steps, plan.id: waits})


def _noted(before: Run, after: Run, record: Record) -> Run:
    """The run, with a note of an execution that a worker has begun: its task may have been withdrawn just then. The
    wait for the bound worker is over then, also if its time has come: a later attempt has one of the same name."""
    paused, step_id = after.pause, getattr(record.event, "step_id", None)
    was, step = (None, None) if paused is None or step_id is None else (before.find(step_id), after.find(step_id))
    if paused is None or step_id is None or was is None or step is None or was.status is not StepStatus.QUEUED:
        return after
    if (step.status, step.attempts, step.iteration) == (was.status, was.attempts, was.iteration):
        return after
    over = timer_name(TimerKind.STICKY, step_id, was)
    if over in paused.timers:
        paused = replace(paused, timers=tuple(timer for timer in paused.timers if timer != over))
    match record.event:
        case StepStarted(payload=None) if step.status is StepStatus.RUNNING:
            paused = replace(paused, begun=(*paused.begun, step_id))
    return after if paused is after.pause else replace(after, pause=paused)


def _begun_child(run: Run, record: Record) -> Iterator[PauseChild]:
    """Pause a child whose start was on its way when its parent was paused with its children."""
    match record.event:
        case StepStarted(payload=StepFacts(child_run_id=str()), step_id=step_id):
            step = run.find(step_id)
            if run.pause and run.pause.children and step and step.status is StepStatus.RUNNING:
                yield PauseChild(step_id, step.attempts, pause=True, seq=record.seq)


def _kept(run: Run, paused: RunPause, record: Record) -> RunPause | None:
    """The pause with what takes effect only when the run goes on; None for what does so at once."""
    match record.event:
        case WorkflowStarted() if run.status is RunStatus.SCHEDULED:
            return paused if paused.starts else replace(paused, starts=True)
        case TimerFired(payload=fired) if not run.failing:
            kind = _kind(run, fired)
            if kind is None or kind is TimerKind.TIMEOUT:
                return None
            if kind is TimerKind.LOOP and run.step(fired.step_id or "").status is StepStatus.RUNNING:
                return None
            return paused if fired.timer in paused.timers else replace(paused, timers=(*paused.timers, fired.timer))
        case (ApprovalGranted() | ApprovalRejected() | ApprovalExpired()) as event if run.status is RunStatus.RUNNING:
            step = run.find(event.step_id)
            if step is None or step.status is not StepStatus.RUNNING or paused.decided(event.step_id):
                return paused
            if event.attempt_number not in (None, step.attempts):
                return paused
            return replace(paused, decisions=(*paused.decisions, KeptDecision(record.seq, event)))
        case _:
            return None


def _fired_early(run: Run, record: Record) -> list[Command]:
    """Withdraw the timer that somebody has had fire before its time."""
    match record.event:
        case TimerFired(payload=TimerRef(early=True, step_id=str(step_id)) as fired):
            timers = step_timers(run, step_id, run.step(step_id))
            return [WithdrawTimer(timer.timer, timer.due) for timer in timers if timer.timer == fired.timer]
        case _:
            return []


def _kind(run: Run, fired: TimerRef) -> TimerKind | None:
    step = run.find(fired.step_id or "")
    return None if step is None else fired_timer(run, fired.step_id or "", step, fired)


def _unpause(workflow: Workflow, run: Run, record: Record, event: WorkflowUnpaused, fold: Fold) -> Advance:
    """What was kept takes effect, in the order of the log; then whatever is queued is ordered."""
    paused = run.pause
    assert paused is not None
    commands: list[Command] = []
    for one in [*_started(run, record), *_decided(paused, record), *_fired(run, paused, record, *EFFECTIVE)]:
        run, following = _held(expanded(workflow, run), run, one, fold)
        commands += following
    begun = () if run.pause is None else run.pause.begun
    run = replace(run, pause=None, seq=record.seq)
    if run.status not in RUN_OPEN or run.failing:
        return run, commands
    workflow = expanded(workflow, run)
    if paused.left is not None and run.status is RunStatus.RUNNING and run.due is None:
        run = replace(run, due=record.at + paused.left)
        commands.append(workflow_timer(run, record.at + paused.left))
    run, ordered = _order_queued(workflow, run, record, begun)
    commands += ordered
    for one in _fired(run, paused, record, TimerKind.LOST):
        run, following = fold(workflow, run, one)
        commands += following
    if event.payload.children:
        commands += _children(workflow, run, record.seq, pause=False)
    return replace(run, seq=record.seq), commands


def unpause_children(workflow: Workflow, run: Run, record: Record) -> Advance:
    """Let the children of a run go on that goes on itself."""
    return replace(run, seq=record.seq), [*_children(workflow, run, record.seq, pause=False)]


def _started(run: Run, record: Record) -> Iterator[Record]:
    """The start of a run whose time came while it was paused: it begins now."""
    if run.pause is not None and run.pause.starts:
        payload = Started(run.workflow_id, run.version, run.digest)
        event = WorkflowStarted(run_id=run.run_id, timestamp=record.event.timestamp, payload=payload)
        yield replace(record, event=event)


def _decided(paused: RunPause, record: Record) -> Iterator[Record]:
    """The decisions, each in its own place of the log."""
    for kept in paused.decisions:
        yield Record(kept.seq, record.at, replace(kept.event, timestamp=record.event.timestamp))


def _fired(run: Run, paused: RunPause, record: Record, *kinds: TimerKind) -> Iterator[Record]:
    """The timers of these kinds that fired during the pause, as if they fired now."""
    for name in paused.timers:
        kind, _, rest = name.partition(".")
        step_id = rest.partition("~")[0].partition("+")[0]
        if kind in kinds and (step := run.find(step_id)) is not None:
            attempt = step.attempts if kind in OF_ATTEMPT else None
            fired = TimerRef(timer=name, step_id=step_id, attempt=attempt)
            event = TimerFired(run_id=run.run_id, timestamp=record.event.timestamp, payload=fired)
            yield replace(record, event=event)


def _order_queued(workflow: Workflow, run: Run, record: Record, begun: Sequence[str]) -> Advance:
    """Order every execution that is queued, and does not wait for its retry; and the tasks of those that workers have
    begun during the pause, if these are not in their queues any more."""
    commands: list[Command] = []
    for plan, step in _queued(workflow, run):
        after, ordered = plan.kind.order(workflow, run, record, plan, step)
        run = run if after is step else with_step(run, record, plan.id, after)
        commands += ordered
    for step_id in begun:
        found, started = workflow.plan_of(step_id), run.find(step_id)
        waited_for = run.status is RunStatus.COMPENSATING and found is not None and found.handles is None
        if found and started and _is_out(run, step_id, started) and not waited_for:
            commands.append(begin_step(record, found, started) if found.evaluates else task_with(run, found, started))
    return run, [_again(run, command) for command in commands]


def _is_out(run: Run, step_id: str, step: StepState) -> bool:
    """Whether a worker has the step's task. A planner that has answered runs until its fragment has ended."""
    has_planned = awaits_check(run, step_id, step) or step_id in run.fragments
    return step.status is StepStatus.RUNNING and not has_planned


def _again(run: Run, command: Command) -> Command:
    return replace(command, again=run.pauses) if isinstance(command, BeginStep | DispatchTask) else command


def _queued(workflow: Workflow, run: Run) -> Iterator[tuple[StepPlan, StepState]]:
    """The executions that are to be ordered: steps, and elements of maps."""
    for step_id, step in list(run.steps.items()):
        plan = workflow.plan_of(step_id)
        if plan is None:
            continue
        if step.status is StepStatus.QUEUED and step.due is None:
            yield plan, step
        if _has_queued_items(step) and step.items is not None and plan.each is not None:
            for number, element in step.items.numbered():
                if element.status == ItemStatus.QUEUED and not element.due:
                    each = replace(plan.each, id=f"{step_id}.{number}", item=number)
                    yield each, run.step(each.id)


def _has_queued_items(step: StepState) -> bool:
    return step.status is StepStatus.RUNNING and step.items is not None and step.items.count(ItemStatus.QUEUED) > 0


def _withdrawn(workflow: Workflow, run: Run) -> Iterator[WithdrawQueued]:
    """Withdraw the queued tasks, once for each type (and group) of the steps that are queued."""
    for step_id, step in run.steps.items():
        queued = step.status is StepStatus.QUEUED and step.due is None
        plan = workflow.plan_of(step_id) if queued or _has_queued_items(step) else None
        for command in () if plan is None else plan.kind.withdraw(workflow, plan, step):
            if isinstance(command, WithdrawTask):
                yield WithdrawQueued(command.task, command.group, command.worker)


def _children(workflow: Workflow, run: Run, seq: int, *, pause: bool) -> Iterator[PauseChild]:
    """The same for the children that the run waits for, as event `seq` says."""
    for step_id, step in run.steps.items():
        plan = workflow.plan_of(step_id) if step.status is StepStatus.RUNNING else None
        for command in () if plan is None else plan.kind.withdraw(workflow, plan, step):
            if isinstance(command, CancelChild) and run.step(command.step_id).status is StepStatus.RUNNING:
                yield PauseChild(command.step_id, command.attempt, pause, seq)
