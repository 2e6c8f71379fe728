"""What holds for each event that a run of any definition is told."""

from __future__ import annotations

from msgspec import UNSET
from msgspec.structs import replace

from penstock.config.limits import PAYLOAD_BYTES_MAX
from penstock.engine.run.advance import advance
from penstock.engine.run.commands import (
    AppendEvent,
    AwaitEvent,
    BeginStep,
    CancelTask,
    Command,
    CompleteRun,
    DispatchTask,
    ExpandPlan,
    ReleaseSlot,
    RequestApproval,
    RequestSlot,
    SetTimer,
    WithdrawSticky,
    WithdrawTimer,
)
from penstock.engine.run.control.pausing import BEGINS
from penstock.engine.run.events import (
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRejected,
    ChildEnded,
    Event,
    EventReceived,
    LimitGranted,
    LimitRefused,
    PlannerExpanded,
    Record,
    StepCompleted,
    StepContinue,
    StepFailed,
    StepPaused,
    StepSkipped,
    StepStarted,
    StepTakenOver,
    TimerFired,
    WorkflowCancelled,
    WorkflowCompleted,
    WorkflowFailed,
)
from penstock.engine.run.execution.cancelling import given_up, silently
from penstock.engine.run.execution.children import child_run_id
from penstock.engine.run.expansion import expanded
from penstock.engine.run.kinds.agent_loop import loop_of
from penstock.engine.run.kinds.approval import approval_of
from penstock.engine.run.slots.holders import RUN, is_awaited, slots_of
from penstock.engine.run.state import (
    RUN_MOVES,
    STEP_DONE,
    STEP_ENDED,
    STEP_MOVES,
    STEP_OUT,
    Run,
    RunStatus,
    StepState,
    StepStatus,
)
from penstock.engine.run.still_due import still_due
from penstock.engine.run.timers import live_timers
from penstock.engine.run.workflow import StepPlan, Workflow

PERSON = "a person"
CANCELLED = -1
FIRST, ANYONE = "as it was ordered", "after the bound worker"
RESULTS = (
    StepCompleted | StepFailed | StepContinue | StepSkipped | ApprovalGranted | ApprovalRejected | ApprovalExpired
    | ChildEnded | EventReceived | PlannerExpanded
)  # fmt: skip
Execution = tuple[str, int, int, str | None]
Result = tuple[str, int, int]


def lawful(workflow: Workflow, before: Run | None, record: Record) -> tuple[Run | None, list[Command]]:
    """`advance`, with everything asserted that holds for any event whatever."""
    run, commands = advance(workflow, before, record)
    _check_pause(before, run, record)
    _check_cancelled(run, commands)
    if run is before:
        left = [one for one in silently(commands) if not isinstance(one, ReleaseSlot | AppendEvent)]
        told = isinstance(record.event, LimitGranted | LimitRefused)
        assert (left if told else silently(commands)) == [], "an event that changes nothing only has others notified"
        return run, commands
    assert run is not None, "a run does not go away"
    assert run.seq == record.seq
    workflow = expanded(workflow, run)
    _check_run_move(before, run)
    _check_run_pause(before, run, record, commands)
    _check_failing(before, run, commands)
    if not isinstance(record.event, StepTakenOver):  # which brings what another run has come to
        _check_steps(workflow, before, run)
    _check_commands(workflow, run, commands)
    _check_slots(workflow, run, commands)
    _check_timers(before, run, record, commands)
    _check_received(workflow, run, record)
    _check_child(before, run, record)
    _check_number(before, record)
    return run, commands


def _check_failing(before: Run | None, run: Run, commands: list[Command]) -> None:
    """No step begins any more in a run that is going to fail."""
    if before is None or not (before.failing and run.failing):
        return
    for one in commands:
        if isinstance(one, BEGINS):
            step = before.find(one.step_id)
            assert step is not None
            assert step.status is not StepStatus.PENDING, "a run that is failing begins a step"
    for step_id, step in before.steps.items():
        if step.status is StepStatus.PENDING:
            assert run.steps[step_id].status not in STEP_OUT, "a run that is failing begins a step"


def _check_cancelled(run: Run | None, commands: list[Command]) -> None:
    """A worker is notified only of what is given up already, or by what is ordered with it."""
    failed = {
        (one.event.step_id, one.event.attempt_number, one.event.iteration or 0)
        for one in commands
        if isinstance(one, AppendEvent) and isinstance(one.event, StepFailed)
    }
    for one in commands:
        if isinstance(one, CancelTask):
            assert run is not None
            execution = (one.step_id, one.attempt, one.iteration)
            assert execution in failed or given_up(run, *execution) is not None, "what is cancelled is not wanted"


def executions(commands: list[Command], pauses: int = 0) -> list[Execution]:
    """What was ordered to be executed after so many pauses of the run: step, iteration, attempt, and by whom if it says
    that; what is ordered again after a pause also after which one."""
    tasks = [
        (task.step_id, task.iteration, task.attempt, f"{task.worker}+{task.again}" if task.again else task.worker)
        for task in commands
        if isinstance(task, DispatchTask)
    ]
    withdrawn: set[tuple[str, int, int]] = set()
    for command in commands:
        if isinstance(command, WithdrawSticky):
            withdrawn.add((command.step_id, command.iteration, command.attempt))
        elif isinstance(command, BeginStep):
            execution = (command.step_id, command.iteration, command.attempt)
            whom = ANYONE if execution in withdrawn else FIRST
            tasks.append((*execution, f"{whom}+{command.again}" if command.again else whom))
    whom = f"{PERSON}+{pauses}" if pauses else PERSON
    return tasks + [(asked.step_id, 0, asked.attempt, whom) for asked in commands if isinstance(asked, RequestApproval)]


def ends(commands: list[Command]) -> list[tuple[int, str | None]]:
    """For each end of the run that was ordered, how often it had been resumed (CANCELLED: it never will be again), and
    what became of its compensation."""
    events = [command.event for command in commands if isinstance(command, AppendEvent | CompleteRun)]
    return [found for event in events if (found := _end(event)) is not None]


def _end(event: Event) -> tuple[int, str | None] | None:
    match event:
        case WorkflowCompleted():
            return event.payload.resumes, None
        case WorkflowFailed():
            return event.payload.resumes, event.payload.compensation
        case WorkflowCancelled():
            return CANCELLED, event.payload.compensation
        case _:
            return None


def result(before: Run | None, run: Run | None, record: Record) -> Result | None:
    """Of which execution the event, which has just been folded in, was the result; None: it was none."""
    event = record.event
    if before is None or run is before or not isinstance(event, RESULTS):
        return None
    assert run is not None
    step, after = before.step(event.step_id), run.step(event.step_id)
    execution = event.step_id, step.iteration, step.attempts
    checked = isinstance(event, PlannerExpanded) or (after.iteration, after.attempts) != execution[1:]
    return execution if checked or after.status is not StepStatus.RUNNING else None  # a plan that is to be checked


def _check_run_move(before: Run | None, run: Run) -> None:
    if before is None:
        assert run.status in (RunStatus.SCHEDULED, RunStatus.PENDING, RunStatus.RUNNING)
        assert run.resumes == 0
    else:
        assert not before.removed, "nothing comes after a removal"
        removed = run == replace(before, removed=True, seq=run.seq)
        assert not before.ended or _resumed(before, run) or removed, "an end is final, but a failure may be resumed"
        assert run.status is before.status or run.status in RUN_MOVES[before.status]
        assert run.resumes == before.resumes + _resumed(before, run)
        assert before.bound in (None, run.bound)
    assert run.due is None or run.status is RunStatus.RUNNING


def _resumed(before: Run | None, run: Run) -> bool:
    goes_on = run.status in (RunStatus.PENDING, RunStatus.RUNNING)
    return before is not None and before.status is RunStatus.FAILED and goes_on


def _begins_again(before: Run | None, run: Run) -> bool:
    """Whether steps that have failed begin again: at once, or when the run has its slots."""
    if before is None or run.status is not RunStatus.RUNNING:
        return False
    return before.status is RunStatus.FAILED or before.resuming is not None


def _check_steps(workflow: Workflow, before: Run | None, run: Run) -> None:
    olds = workflow.waiting if before is None else before.steps
    assert [step_id for step_id, step in run.steps.items() if step.handles is None] == list(workflow.steps)
    for step_id, step in run.steps.items():
        old, plan = olds.get(step_id, StepState.WAITING), workflow.plan_of(step_id)
        assert plan is not None
        _check_step(old, step, plan)
        assert old.status not in STEP_DONE or step == old
        handled = step.status is StepStatus.RECOVERED or step.handles is not None
        handled = handled or _ends_late(run, old, plan) or (step.overridden and not old.overridden)
        assert old.status not in STEP_ENDED or step == old or _begins_again(before, run) or handled
        _check_handler(run, step_id, step)
    _check_fragments(workflow, before, run)
    if run.status is RunStatus.PENDING and before is not None:
        assert run.steps == before.steps, "nothing happens to the steps of a run that waits"
    if run.ended:
        assert all(step.status in STEP_ENDED for step in run.steps.values())
    if run.status is RunStatus.COMPLETED:
        assert all(step.status in STEP_DONE for step in run.steps.values() if step.handles is None)


def _ends_late(run: Run, old: StepState, plan: StepPlan) -> bool:
    """Whether the step, or elements of it, may still run after it had ended: they can be undone, or are
    a child that undoes its own steps."""
    if plan.each is not None and plan.each.compensate is not None:
        return True
    each = plan.each or plan
    return run.status is RunStatus.COMPENSATING and old.status is StepStatus.CANCELLED and each.kind.outlives(each)


def _check_fragments(workflow: Workflow, before: Run | None, run: Run) -> None:
    """A fragment stays as it is; its steps begin while its planner runs, and it completes when they are done."""
    kept = {} if before is None else before.fragments
    assert {planner: run.fragments[planner] for planner in kept} == kept
    running = [run.steps[planner] for planner in run.fragments if run.steps[planner].status is StepStatus.RUNNING]
    assert all(step.output is UNSET and step.due is None for step in running), "its task is over"
    for step_id, step in run.steps.items():
        planner = None if step.handles is not None else workflow.steps[step_id].planner
        if planner is None:
            continue
        waited_for = run.status is RunStatus.COMPENSATING  # it may run on, though its planner is over
        assert step.status not in STEP_OUT or waited_for or run.steps[planner].status is StepStatus.RUNNING
        assert run.steps[planner].status is not StepStatus.COMPLETED or step.status in STEP_DONE


def _check_received(workflow: Workflow, run: Run, record: Record) -> None:
    """The event that has completed a step had completed none of its ancestors."""
    event = record.event
    if isinstance(event, EventReceived):
        earlier = {run.steps[step_id].received for step_id in _ancestors(workflow, event.step_id)}
        assert event.payload.seq not in earlier


def _check_child(before: Run | None, run: Run, record: Record) -> None:
    """Only the child of the attempt that is out ends it."""
    event = record.event
    if before is not None and isinstance(event, ChildEnded):
        attempt = before.step(event.step_id).attempts
        assert event.payload.run_id == child_run_id(run.run_id, event.step_id, attempt)


def _ancestors(workflow: Workflow, step_id: str) -> set[str]:
    """The steps that had ended before this one began; those of a planner's fragment before who depends on it."""
    found: set[str] = set()
    ahead = {step_id}
    while ahead:
        plan = workflow.steps[ahead.pop()]
        before = {*plan.depends_on, *(() if plan.planner is None else workflow.steps[plan.planner].depends_on)}
        before |= {inner for inner, other in workflow.steps.items() if other.planner in plan.depends_on}
        ahead |= before - found
        found |= before
    return found


def _check_handler(run: Run, step_id: str, step: StepState) -> None:
    """A handler is out, or has failed, only while its step has failed; a step recovers only by its handler."""
    if step_id.endswith(".compensate"):
        assert step.handles is not None
        assert run.step(step.handles).status is StepStatus.COMPLETED
        assert run.compensation is not None
    elif step.handles is not None:
        whole = run.steps[step.handles].status
        assert step.status is not StepStatus.COMPLETED or whole is StepStatus.RECOVERED
        assert step.status not in (*STEP_OUT, StepStatus.FAILED) or whole is StepStatus.FAILED
    if step.status is StepStatus.RECOVERED:
        handler = run.steps[f"{step_id}.on_failure"]
        assert (handler.status, handler.output is UNSET) == (StepStatus.COMPLETED, handler.output_at is not None)


def _check_step(old: StepState, step: StepState, plan: StepPlan) -> None:
    bounds = loop_of(plan)
    assert step.status is old.status or step.status in STEP_MOVES[old.status]
    if step.status is StepStatus.SKIPPED and old.status is StepStatus.QUEUED:
        assert step.attempts == 0, "nobody has begun it"
    elif step.iteration == old.iteration:
        assert old.attempts <= step.attempts <= old.attempts + 1
    else:
        assert (step.iteration, step.attempts, step.base) == (old.iteration + 1, 1, 0)
        assert bounds is not None
    own = old.status not in STEP_DONE  # not what was taken over, with the attempts of the other run
    assert not own or step.base <= step.attempts <= step.base + plan.retry.retries + 1
    assert bounds is None or bounds.iterations_max is None or step.iteration < bounds.iterations_max
    assert (step.due is step.until is step.fallback is None) or step.status in STEP_OUT
    assert step.until is None or bounds is not None
    assert step.fallback is None or (step.status is StepStatus.QUEUED and step.sticky is not None)
    carried = step.carried is not UNSET or step.carried_at is not None
    taken_over = step.status in STEP_DONE and not carried  # what it had received stays in the other run
    assert taken_over or (step.iteration > 0) is carried, "what an iteration has received is there for its next attempt"
    stopped = step.status is StepStatus.RUNNING and step.due is None
    assert step.left is None or (stopped and 0 <= step.left <= (plan.timeout_s or 0))
    kept = [payload.size for payload in (step.output_at, step.carried_at) if payload is not None]
    assert all(size <= PAYLOAD_BYTES_MAX for size in kept), "nothing over its limit is kept"
    assert step.token is None or (approval_of(plan) is not None and len(step.token) == 64)


def _check_pause(before: Run | None, run: Run | None, record: Record) -> None:
    """From the word of a pause by who has the task, no time counts until it is begun again; then what was left."""
    event = record.event
    if (
        before is None
        or run is None
        or before.status is not RunStatus.RUNNING
        or not isinstance(event, StepPaused | StepStarted)
    ):
        return
    old, new = before.find(event.step_id), run.find(event.step_id)
    if old is None or new is None or (event.attempt_number, event.iteration or 0) != (old.attempts, old.iteration):
        return
    has_it = event.delivery == old.delivery and event.worker_id in (None, old.worker_id)
    if isinstance(event, StepPaused) and has_it and old.due is not None and old.status is StepStatus.RUNNING:
        assert (new.due, new.left) == (None, max(old.due - record.at, 0)), "a pause does not use up the step's timeout"
    if isinstance(event, StepStarted) and old.left is not None and event.delivery > old.delivery > 0:
        assert (new.due, new.left) == (record.at + old.left, None), (
            "after a pause the step has what was left of its timeout"
        )


def _check_run_pause(before: Run | None, run: Run, record: Record, commands: list[Command]) -> None:
    """While a run is paused nothing begins, and its timeout stands still."""
    began = before is not None and before.pause is None and run.pause is not None
    assert run.pauses == (0 if before is None else before.pauses) + began
    assert run.pause is None or not run.ended
    if run.pause is None:
        return
    assert run.due is None
    assert not any(isinstance(command, (*BEGINS, RequestSlot)) for command in commands)
    if began and before is not None:
        assert run.pause.left == (None if before.due is None else max(before.due - record.at, 0.0))


def _check_number(before: Run | None, record: Record) -> None:
    """The event has changed the run: if it says of which execution it speaks, that was the one that was out."""
    event = record.event
    if before is None or not isinstance(event, StepStarted | StepPaused | StepCompleted | StepFailed | StepContinue):
        return
    step = before.step(event.step_id)
    assert event.attempt_number in (None, step.attempts)
    assert event.iteration in (None, step.iteration)
    assert event.attempt_number is None or (event.iteration or 0) == step.iteration


def _check_commands(workflow: Workflow, run: Run, commands: list[Command]) -> None:
    unwanted = [command for command in commands if not still_due(run, command)]
    assert all(isinstance(command, SetTimer) and run.error is not None for command in unwanted), (
        "what is ordered now is wanted now"
    )
    for command in commands:
        if not isinstance(command, DispatchTask | BeginStep | RequestApproval | AwaitEvent | ExpandPlan):
            continue
        plan = workflow.plan_of(command.step_id)
        assert plan is not None
        if command.step_id.endswith(".compensate"):
            assert run.status is RunStatus.COMPENSATING
            continue
        assert (run.status, run.error) == (RunStatus.RUNNING, None), "a run that fails or has ended begins nothing"
        assert all(run.steps[needed].status in STEP_DONE for needed in plan.depends_on)
        asks = isinstance(command, RequestApproval)
        assert not isinstance(command, DispatchTask | RequestApproval) or asks is (approval_of(plan) is not None), (
            "people decide approvals, workers all else"
        )
        assert not isinstance(command, DispatchTask) or command.worker in (None, run.bound)


def _check_slots(workflow: Workflow, run: Run, commands: list[Command]) -> None:
    """What has slots, or waits for some, is out; all that is asked for is waited for."""
    assert not run.ended or run.slots == {}
    for owner, slot in run.slots.items():
        limits = slots_of(workflow, owner)
        assert limits is not None
        assert [(held.kind, held.scope) for held in slot.granted] == [
            (limit.kind, limit.scope) for limit in limits.limits[: slot.number]
        ]
        assert run.pause is None or slot.number == len(limits.limits), "a run that is paused waits for none"
        if owner == RUN:
            assert (run.status is RunStatus.PENDING) is (slot.number < len(limits.limits))
            assert slot.attempt == run.resumes
            continue
        step = run.step(owner)
        assert step.status in STEP_OUT
        assert (step.attempts, step.iteration) == (slot.attempt, slot.iteration)
        assert step.due is None or step.status is StepStatus.RUNNING, "what waits for its next attempt has no slot"
        assert slot.number == len(limits.limits) or (step.sticky is step.fallback is None)
    asked = [one for one in commands if isinstance(one, RequestSlot)]
    assert all(is_awaited(run, one) or run.failing for one in asked)
    assert len(asked) == len({(one.holder, one.number) for one in asked})


def _check_timers(before: Run | None, run: Run, record: Record, commands: list[Command]) -> None:
    """Each timer of the state was set, and each that the state no longer has was withdrawn or has fired."""
    timers = {timer.timer: timer for timer in _timers(before)}
    fired = record.event.payload if isinstance(record.event, TimerFired) else None
    kept = before.pause.timers if before is not None and before.pause is not None else ()
    if fired is not None and not fired.timer.startswith("wait.") and not fired.early:
        timers.pop(fired.timer)
    for command in commands:
        if isinstance(command, WithdrawTimer) and command.timer in kept:
            continue  # it has fired during the pause that is over
        if isinstance(command, WithdrawTimer):
            fired_before = before is not None and before.pause is not None and command.timer in before.pause.timers
            assert fired_before or timers.pop(command.timer).due == command.due
        elif isinstance(command, SetTimer):
            timers[command.timer] = command
    void = kept if run.failing else ()  # what fired during the pause does not count in a run that fails when it goes on
    assert {timer.timer: timer for timer in _timers(run) if timer.timer not in void} == timers


def _timers(run: Run | None) -> list[SetTimer]:
    """The timers of a state, also of one that is about to end."""
    return [] if run is None else live_timers(replace(run, error=None))
