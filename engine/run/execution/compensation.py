"""Undoing what a run has done, when it fails or is cancelled with `compensate`.

From then on no step begins any more. Steps that are running are waited for, each until its timeout. Then every step
that has completed and has a `compensate` is undone by its task, one after the other, in the reverse order of their
completion in the log. A step that completes late is undone next. When nothing is left, the run ends.

What is to be undone, and in which order, is worked out from the state when it begins, and kept in `Run.compensation`.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Raw, UnsetType
from msgspec.structs import replace

from penstock.config.limits import COMPENSATION_WAIT_S, DEDUP_WINDOW_S
from penstock.engine.run.commands import AppendEvent, CancelChild, Command, SetTimer, WithdrawTask, WithdrawTimer
from penstock.engine.run.event_payloads import Cancellation, Compensating
from penstock.engine.run.events import Record, StepStarted, WorkflowCancelled, WorkflowCompensating, WorkflowFailed
from penstock.engine.run.execution.cancelling import for_reason, silently, why_ended
from penstock.engine.run.execution.elements import with_step
from penstock.engine.run.execution.ending import cancelled, fail_run
from penstock.engine.run.execution.handlers import enter_handler
from penstock.engine.run.items import ItemStatus
from penstock.engine.run.payloads import inline_or_ref, too_large
from penstock.engine.run.state import STEP_ENDED, STEP_OUT, Compensation, Run, RunStatus, StepState, StepStatus
from penstock.engine.run.timers import TimerKind, item_timers, retimed, step_timers, workflow_timer_name
from penstock.engine.run.workflow import COMPENSATE, Advance, StepEvent, StepPlan, Workflow
from penstock.engine.texts import shortened

FORMAT = 2  # of `workflow.compensating`: versions that read format 1 only would take it for malformed
COMPLETED, FAILED = "completed", "failed"
REPEATS_S = DEDUP_WINDOW_S + 1  # after that a timer that fires again is no repeat to the broker
TOO_LATE = "the run has undone its steps without it"
NEVER_UNDONE = frozenset({StepStatus.RECOVERED, StepStatus.SKIPPED})


def fail(workflow: Workflow, run: Run, record: Record, error: str, step_id: str | None = None) -> Advance:
    """The run fails: at once, or when what it has done is undone."""
    if has_work(workflow, run):
        return compensate(workflow, run, record, RunStatus.FAILED, error, step_id)
    return replace(run, error=error), [fail_run(run, record, error, step_id)]


def has_work(workflow: Workflow, run: Run) -> bool:
    """Whether a step can be undone that has completed, or is running and may yet complete."""
    return can_undo(workflow) and (any(_completed(workflow, run)) or any(_running(workflow, run)))


def can_undo(workflow: Workflow) -> bool:
    """Whether there is anything at all that undoes a step."""
    return any(plan.compensate is not None or _each(plan) for plan in workflow.steps.values())


def compensate(
    workflow: Workflow, run: Run, record: Record, ends: RunStatus, error: str | None, step_id: str | None = None
) -> Advance:
    """The run begins to undo its steps, and then ends as `ends`: nothing else begins, and what waits is withdrawn."""
    todo = tuple(done for _, _, done in sorted(_completed(workflow, run)))
    commands: list[Command] = [] if run.due is None else [WithdrawTimer(workflow_timer_name(run), run.due)]
    steps, awaited = dict[str, StepState](), 0
    for each_id, step in run.steps.items():
        plan = workflow.plan_of(each_id)
        assert plan is not None, "the step is there"
        steps[each_id], running, following = _stopped(workflow, run, record, plan, step)
        awaited += running
        commands += following
    began = Compensation(ends, step_id, todo, awaited=awaited)
    stored = None if error is None else shortened(error)
    run = replace(
        run, status=RunStatus.COMPENSATING, steps=steps, error=stored, due=None, seq=record.seq, compensation=began
    )
    run, following = _undo_next(workflow, run, record)
    commands = for_reason(commands, why_ended(ends, error))
    return run, [*commands, _announced(run, record, todo), *following]


def undone(workflow: Workflow, run: Run, record: Record, *, failed: bool = False) -> Advance:
    """What undid a step has completed, or failed for good; the next one follows."""
    state = _state(run)
    state = replace(state, undoing=None, incomplete=state.incomplete or failed)
    return _undo_next(workflow, replace(run, compensation=state), record)


def is_end(run: Run, event: WorkflowFailed | WorkflowCancelled) -> bool:
    """Whether this is the end that was ordered when nothing was left to be undone."""
    state = run.compensation
    if state is None or state.outcome is None or event.payload.compensation != state.outcome:
        return False
    return isinstance(event, WorkflowFailed) is (state.ends is RunStatus.FAILED)


def announced(run: Run, record: Record) -> Run:
    """The log says that the run undoes its steps."""
    state = _state(run)
    return run if state.announced else replace(run, seq=record.seq, compensation=replace(state, announced=True))


def is_late(run: Run, step: StepState, event: StepEvent) -> bool:
    """Whether the event is of the execution that was out when the run began to undo its steps."""
    if _state(run).outcome is not None:
        return False
    if step.status is StepStatus.RUNNING and event.attempt_number is None:
        return event.iteration in (None, step.iteration)
    was_out = step.status is StepStatus.CANCELLED and step.attempts > step.base
    is_it = (event.attempt_number, event.iteration or 0) == (step.attempts, step.iteration)
    return is_it and (step.status is StepStatus.RUNNING or was_out)


def begun_late(run: Run, record: Record, event: StepStarted, plan: StepPlan) -> Advance:
    """A worker has begun the task that was withdrawn, or was given it again: the step is waited for, but not twice."""
    before = run.step(plan.id)
    step = replace(before, worker_id=event.worker_id, delivery=event.delivery)
    if before.status is StepStatus.RUNNING:
        return _moved(run, record, plan, step) if event.delivery > before.delivery else (run, [])
    if _was_begun(run, plan, before):
        return run, []
    due = record.at + (plan.timeout_s or COMPENSATION_WAIT_S)
    started_at = event.timestamp
    return _moved(run, record, plan, replace(step, status=StepStatus.RUNNING, started_at=started_at, due=due))


def completed_late(
    workflow: Workflow, run: Run, record: Record, plan: StepPlan, output: Raw | UnsetType, worker_id: str | None = None
) -> Advance:
    """The step has completed after all: it is undone next, if it can be."""
    if problem := too_large("the output", output):
        return given_up(workflow, run, record, plan, problem)
    before = run.step(plan.id)
    kept, output_at = inline_or_ref(output, record.seq)
    step = replace(
        before,
        status=StepStatus.COMPLETED,
        output=kept,
        output_at=output_at,
        error=None,
        traceback=None,
        finished_at=record.event.timestamp,
        worker_id=worker_id or before.worker_id,
        due=None,
        completed_seq=0 if plan.compensate is None else record.seq,
    )
    run, commands = _moved(run, record, plan, step)
    if plan.compensate is not None:
        state = _state(run)
        run = replace(run, compensation=replace(state, todo=(*state.todo, plan.id)))
    run, following = _undo_next(workflow, run, record)
    return run, commands + following


def given_up(workflow: Workflow, run: Run, record: Record, plan: StepPlan, error: str | None = None) -> Advance:
    """The step is not waited for any more. With an error it has ended, and will not complete."""
    before = run.step(plan.id)
    if before.status is not StepStatus.RUNNING:
        return run, []
    step = cancelled(before)
    if error is not None:
        step = replace(step, error=shortened(error), base=step.attempts)
    run, commands = _moved(run, record, plan, step)
    run, following = _undo_next(workflow, run, record)
    return run, commands + following


def waited_out(workflow: Workflow, run: Run, record: Record, plan: StepPlan, timer: TimerKind) -> Advance:
    """The time is over for which the step is waited for, or nobody holds its task any more: the task is withdrawn, and
    no other worker is given it. A timeout that has fired need not be withdrawn."""
    step = run.step(plan.id)
    if timer is TimerKind.TIMEOUT:
        step = replace(step, due=None)
    withdrawn = [one for one in _withdrawn(workflow, plan, step) if not isinstance(one, CancelChild)]
    run, commands = given_up(workflow, with_step(run, record, plan.id, step), record, plan)
    return run, [*for_reason(withdrawn, TOO_LATE), *commands]


def _was_begun(run: Run, plan: StepPlan, step: StepState) -> bool:
    place = run.element(plan.id)
    if place is None:
        return step.started_at is not None
    items = run.steps[place[0]].items
    return items is not None and items.get(place[1]).begun > 0


def _moved(run: Run, record: Record, plan: StepPlan, step: StepState) -> Advance:
    """The run with this state of a step, or of an element, that is or was waited for."""
    before, state = run.step(plan.id), _state(run)
    awaited = state.awaited + (step.status is StepStatus.RUNNING) - (before.status is StepStatus.RUNNING)
    commands = retimed(run, plan.id, before, step)
    run = replace(with_step(run, record, plan.id, step), compensation=replace(state, awaited=awaited))
    return (run if plan.item is None else _with_map(run, plan)), commands


def _with_map(run: Run, element: StepPlan) -> Run:
    """The map is running as long as one of its elements is, unless it has failed."""
    map_id = element.id.rpartition(".")[0]
    step = run.steps[map_id]
    assert step.items is not None
    if step.status not in (StepStatus.RUNNING, StepStatus.CANCELLED):
        return run
    status = StepStatus.RUNNING if step.items.out else StepStatus.CANCELLED
    return replace(run, steps={**run.steps, map_id: replace(step, status=status)})


def _undo_next(workflow: Workflow, run: Run, record: Record) -> Advance:
    """Undo the step that has completed last; without one, order the end of the run."""
    state = _state(run)
    if state.awaited or state.undoing is not None:
        return run, []
    if not state.todo:
        return _ended(run, record, state)
    undoing = state.todo[-1]
    plan = workflow.plan_of(f"{undoing}.{COMPENSATE}")
    assert plan is not None, "it can be undone"
    run = replace(run, compensation=replace(state, todo=state.todo[:-1], undoing=undoing))
    return enter_handler(workflow, run, record, plan)


def _ended(run: Run, record: Record, state: Compensation) -> Advance:
    outcome = FAILED if state.incomplete else COMPLETED
    run = replace(run, compensation=replace(state, outcome=outcome))
    if state.ends is RunStatus.FAILED:
        return run, [fail_run(run, record, run.error or "", state.failed_step, outcome)]
    payload = Cancellation(run.error, compensation=outcome)
    return run, [
        AppendEvent(WorkflowCancelled(run_id=run.run_id, timestamp=record.event.timestamp, payload=payload, v=FORMAT))
    ]


def _announced(run: Run, record: Record, todo: tuple[str, ...]) -> AppendEvent:
    maps = (step_id if step_id in run.steps else step_id.rpartition(".")[0] for step_id in reversed(todo))
    error = run.error if _state(run).ends is RunStatus.FAILED else None
    payload = Compensating(error, tuple(dict.fromkeys(maps)))
    return AppendEvent(
        WorkflowCompensating(run_id=run.run_id, timestamp=record.event.timestamp, payload=payload, v=FORMAT)
    )


def _completed(workflow: Workflow, run: Run) -> Iterator[tuple[int, int, str]]:
    """What can be undone: the sequence of its completion, what comes first of the same event, its id. A planner
    completes with the last step of its fragment, or with the last element of that, and after it."""
    for step_id, step in run.steps.items():
        plan = workflow.steps.get(step_id)
        if plan is None or step.status in NEVER_UNDONE:
            continue
        if plan.compensate is not None and step.status is StepStatus.COMPLETED:
            yield step.completed_seq, -len(step_id), step_id
        if step.items is not None and _each(plan):
            for number, element in step.items.numbered():
                if element.status == ItemStatus.COMPLETED:
                    element_id = f"{step_id}.{number}"
                    yield element.begun + element.ended, -len(element_id), element_id


def _running(workflow: Workflow, run: Run) -> Iterator[str]:
    """What can be undone once it has completed, and is running."""
    for step_id, step in run.steps.items():
        plan = workflow.steps.get(step_id)
        if plan is None or step.status in NEVER_UNDONE:
            continue
        if plan.compensate is not None and step.status is StepStatus.RUNNING and plan.kind.outlives(plan):
            yield step_id
        if step.items is not None and _each(plan) and step.items.runs and not step.overridden:
            yield step_id


def _each(plan: StepPlan) -> bool:
    """Whether the elements of this map can be undone."""
    return plan.each is not None and plan.each.compensate is not None


def _stopped(
    workflow: Workflow, run: Run, record: Record, plan: StepPlan, step: StepState
) -> tuple[StepState, int, list[Command]]:
    """The step as it is from now on, how many of its executions are waited for, and the commands that follow."""
    if step.items is not None and plan.each is not None and plan.each.kind.outlives(plan.each):
        return _stopped_map(workflow, run, record, plan, plan.each, step)
    if step.status in STEP_ENDED:
        return step, 0, []
    if step.status is StepStatus.RUNNING and plan.kind.outlives(plan):
        due = step.due or record.at + (COMPENSATION_WAIT_S if step.left is None else step.left)
        over = step.due is not None and step.due <= record.at  # a run that is about to fail ignores its timers
        fired = over or (plan.timeout_s is not None and step.due is None and step.left is None)
        # a timeout that has fired may come again, or be dropped as a repeat: this wait has a timer of another name
        pauses = step.pauses + 1 if fired else step.pauses
        waits = replace(step, due=due, until=None, left=None, fallback=None, pauses=pauses)
        children = [one for one in plan.kind.withdraw(workflow, plan, step) if isinstance(one, CancelChild)]
        return waits, 1, [*_again(retimed(run, plan.id, step, waits), step_timers(run, plan.id, waits)), *children]
    stopped = cancelled(step)
    if step.status is StepStatus.QUEUED:  # its last attempt; a worker may have taken its task just now
        stopped = replace(stopped, started_at=None)
    timers = [WithdrawTimer(timer.timer, timer.due) for timer in item_timers(run, plan.id, step)]
    return stopped, 0, [*retimed(run, plan.id, step, stopped), *timers, *_withdrawn(workflow, plan, step)]


def _stopped_map(
    workflow: Workflow, run: Run, record: Record, plan: StepPlan, each: StepPlan, step: StepState
) -> tuple[StepState, int, list[Command]]:
    """Elements that run are waited for; those that ran when the map failed, too.

    A timeout of an element that had fired before, and comes again, ends the wait for it early: an Element is too small
    to have a second name for its timer. If it completes all the same, it is undone like any other that is late. So that
    the end of the wait is not dropped as a repeat of that timeout, it is not before the broker has forgotten that.
    """
    assert step.items is not None
    if step.status not in (StepStatus.RUNNING, StepStatus.FAILED) or (
        step.status is StepStatus.FAILED and each.compensate is None
    ):
        return (step if step.status in STEP_ENDED else cancelled(step)), 0, []
    wait_s = max(each.timeout_s or COMPENSATION_WAIT_S, REPEATS_S)
    items = step.items.waited_for(record.at, record.at + wait_s)
    running = items.count(ItemStatus.RUNNING)
    ended = step.status is StepStatus.RUNNING and not running
    after = replace(step, items=items, item_states={}, status=StepStatus.CANCELLED if ended else step.status)
    old = {timer.timer: timer for timer in item_timers(run, plan.id, step)}
    new = {
        timer.timer: timer for timer in item_timers(replace(run, steps={**run.steps, plan.id: after}), plan.id, after)
    }
    gone = [WithdrawTimer(timer.timer, timer.due) for timer in old.values() if timer.timer not in new]
    return after, running, [*gone, *new.values(), *silently(_withdrawn(workflow, plan, step))]


def _again(commands: list[Command], timers: list[SetTimer]) -> list[Command]:
    """Set every timer, also one that is set: where the shell gave up what it was ordered, because it took the run to
    have failed, it may not be."""
    return [*(command for command in commands if not isinstance(command, SetTimer)), *timers]


def _withdrawn(workflow: Workflow, plan: StepPlan, step: StepState) -> list[Command]:
    """Withdraw what was ordered for a step that is queued or running, and for no other one: those that undo steps have
    tasks in the same queues."""
    if step.status not in STEP_OUT:
        return []
    found = dict.fromkeys(plan.kind.withdraw(workflow, plan, step))
    return [replace(one, of_step=plan.id) if isinstance(one, WithdrawTask) else one for one in found]


def _state(run: Run) -> Compensation:
    assert run.compensation is not None, "the run undoes its steps"
    return run.compensation
