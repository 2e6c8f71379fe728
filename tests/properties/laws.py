"""Definitions of every shape, and what holds for each event that any of their runs is told."""

from __future__ import annotations

from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from penstock.config.limits import PAYLOAD_BYTES_MAX
from penstock.engine.run.advance import advance, still_due
from penstock.engine.run.commands import (
    AppendEvent,
    BeginStep,
    Command,
    DispatchTask,
    RequestApproval,
    SetTimer,
    WithdrawSticky,
    WithdrawTimer,
)
from penstock.engine.run.compiling import compile_workflow
from penstock.engine.run.events import (
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRejected,
    Event,
    Record,
    StepCompleted,
    StepContinue,
    StepFailed,
    StepPaused,
    StepSkipped,
    StepStarted,
    TimerFired,
    WorkflowCancelled,
    WorkflowCompleted,
    WorkflowFailed,
)
from penstock.engine.run.kinds.agent_loop import loop_of
from penstock.engine.run.kinds.approval import approval_of
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
from penstock.engine.run.timers import live_timers
from penstock.engine.run.workflow import StepPlan, Workflow
from penstock.engine.validation import parse

STEPS_MAX = 7
PERSON = "a person"
FIRST, ANYONE = "as it was ordered", "after the bound worker"
RESULTS = StepCompleted | StepFailed | StepContinue | StepSkipped | ApprovalGranted | ApprovalRejected | ApprovalExpired
Execution = tuple[str, int, int, str | None]
Result = tuple[str, int, int]

RETRY = st.fixed_dictionaries(
    {
        "max_attempts": st.sampled_from([2, 1, 3, 0]),
        "strategy": st.sampled_from(["fixed", "linear", "exponential"]),
        "initial_delay": st.sampled_from(["0s", "10s"]),
    },
    optional={"max_delay": st.just("15s")},
)
LOOP = st.fixed_dictionaries(
    {"max_iterations": st.sampled_from([3, 1, 5])},
    optional={"max_duration": st.sampled_from(["20s", "2m"]), "loop_delay": st.sampled_from(["0s", "5s"])},
) | st.fixed_dictionaries({"max_duration": st.sampled_from(["20s", "2m"])}, optional={"loop_delay": st.just("5s")})
KINDS = st.sampled_from(["normal", "normal", "agent_loop", "normal", "approval", "map", "sleep"])
MAP = st.fixed_dictionaries(
    {"items": st.sampled_from([[1, 2], [1, "${{ input.x }}", 3, 4], [], {"not": "an array"}])},
    optional={"max_concurrency": st.sampled_from([1, 2]), "on_item_failure": st.sampled_from(["fail", "continue"])},
)
INPUT = {"with": {"x": "${{ input.x }}"}}


def conditions(depends_on: list[str]) -> st.SearchStrategy[str | None]:
    """Conditions: mostly none."""
    read = [f"steps.{step_id}.{rest}" for step_id in depends_on for rest in ('status == "completed"', "output.x == 1")]
    return st.sampled_from([None, None, None, None, "input.x == 1", "false", *read])


@st.composite
def definitions(draw: st.DrawFn) -> dict[str, object]:
    """Up to seven steps in any acyclic shape, several roots and ends included; few task types, so that steps share
    them."""
    steps: list[dict[str, object]] = []
    handler = st.none() | st.none() | st.fixed_dictionaries({"task": st.sampled_from(["t", "h"])})
    for number in range(draw(st.integers(1, STEPS_MAX))):
        before = [str(step["id"]) for step in steps]
        depends_on: list[str] = draw(st.lists(st.sampled_from(before), unique=True, max_size=3)) if before else []
        handlers = {"on_failure": draw(handler), "compensate": draw(handler)}
        step = {"id": f"s{number}", "depends_on": depends_on, **handlers, **draw(FIELDS)}
        conditional = draw(st.booleans())
        if conditional and depends_on:
            step["skip_if"] = {"step_id": draw(st.sampled_from(depends_on)), "field": "x", "op": "==", "value": 1}
        step["when"] = draw(conditions(depends_on))
        steps.append(step)
    timeout, sticky = draw(st.sampled_from([None, None, "5m"])), draw(st.sampled_from([None, "soft", None, "hard"]))
    return {"name": "w", "steps": steps, "default_retry": draw(RETRY), "timeout": timeout, "sticky": sticky}


@st.composite
def _fields(draw: st.DrawFn) -> dict[str, object]:
    """What a step says, whatever it depends on."""
    kind = draw(KINDS)
    if kind == "approval":
        return {"type": kind, "config": {"timeout": draw(st.sampled_from(["30s", "1h"]))}}
    if kind == "sleep":
        return {"type": kind, "config": {"duration": draw(st.sampled_from(["10s", "2m", "${{ input.x }}"]))}}
    fields = {"type": kind, "task": draw(st.sampled_from(["t", "u"])), "timeout": draw(st.sampled_from([None, "30s"]))}
    config = {"agent_loop": LOOP, "map": MAP}.get(kind, st.none())
    given = INPUT if draw(st.sampled_from([False, False, True])) else {}
    return {**fields, "retry": draw(st.none() | RETRY), "config": draw(config), **given}


FIELDS = _fields()


def compiled(definition: dict[str, object]) -> Workflow:
    return compile_workflow(parse(definition), "digest")


def lawful(workflow: Workflow, before: Run | None, record: Record) -> tuple[Run | None, list[Command]]:
    """`advance`, with everything asserted that holds for any event whatever."""
    run, commands = advance(workflow, before, record)
    _check_pause(before, run, record)
    if run is before:
        assert commands == []
        return run, commands
    assert run is not None, "a run does not go away"
    assert run.seq == record.seq
    _check_run_move(before, run)
    _check_steps(workflow, before, run)
    _check_commands(workflow, run, commands)
    _check_timers(before, run, record, commands)
    _check_number(before, record)
    return run, commands


def executions(commands: list[Command]) -> list[Execution]:
    """What was ordered to be executed: step, iteration, attempt, and by whom if it says that."""
    tasks = [
        (task.step_id, task.iteration, task.attempt, task.worker) for task in commands if isinstance(task, DispatchTask)
    ]
    withdrawn: set[tuple[str, int, int]] = set()
    for command in commands:
        if isinstance(command, WithdrawSticky):
            withdrawn.add((command.step_id, command.iteration, command.attempt))
        elif isinstance(command, BeginStep):
            execution = (command.step_id, command.iteration, command.attempt)
            tasks.append((*execution, ANYONE if execution in withdrawn else FIRST))
    return tasks + [
        (asked.step_id, 0, asked.attempt, PERSON) for asked in commands if isinstance(asked, RequestApproval)
    ]


def ends(commands: list[Command]) -> list[tuple[int, str | None]]:
    """For each end of the run that was ordered, how often it had been resumed, and what became of its compensation."""
    events = [command.event for command in commands if isinstance(command, AppendEvent)]
    return [found for event in events if (found := _end(event)) is not None]


def _end(event: Event) -> tuple[int, str | None] | None:
    match event:
        case WorkflowCompleted():
            return event.payload.resumes, None
        case WorkflowFailed():
            return event.payload.resumes, event.payload.compensation
        case WorkflowCancelled():
            return 0, event.payload.compensation
        case _:
            return None


def result(before: Run | None, run: Run | None, record: Record) -> Result | None:
    """Of which execution the event, which has just been folded in, was the result; None: it was none."""
    event = record.event
    if before is None or run is before or not isinstance(event, RESULTS):
        return None
    step = before.step(event.step_id)
    return event.step_id, step.iteration, step.attempts


def _check_run_move(before: Run | None, run: Run) -> None:
    if before is None:
        assert run.status in (RunStatus.SCHEDULED, RunStatus.RUNNING)
        assert run.resumes == 0
    else:
        assert not before.ended or _resumed(before, run), "an end is final, but a failure may be resumed"
        assert run.status is before.status or run.status in RUN_MOVES[before.status]
        assert run.resumes == before.resumes + _resumed(before, run)
        assert before.bound in (None, run.bound)
    assert run.due is None or run.status is RunStatus.RUNNING


def _resumed(before: Run | None, run: Run) -> bool:
    return before is not None and (before.status, run.status) == (RunStatus.FAILED, RunStatus.RUNNING)


def _check_steps(workflow: Workflow, before: Run | None, run: Run) -> None:
    olds = workflow.waiting if before is None else before.steps
    assert [step_id for step_id, step in run.steps.items() if step.handles is None] == list(workflow.steps)
    for step_id, step in run.steps.items():
        old, plan = olds.get(step_id, StepState.WAITING), workflow.plan_of(step_id)
        assert plan is not None
        _check_step(old, step, plan)
        assert old.status not in STEP_DONE or step == old
        handled = step.status is StepStatus.RECOVERED or step.handles is not None
        handled = handled or _ends_late(run, old, plan)
        assert old.status not in STEP_ENDED or step == old or _resumed(before, run) or handled
        _check_handler(run, step_id, step)
    if run.ended:
        assert all(step.status in STEP_ENDED for step in run.steps.values())
    if run.status is RunStatus.COMPLETED:
        assert all(step.status in STEP_DONE for step in run.steps.values() if step.handles is None)


def _ends_late(run: Run, old: StepState, plan: StepPlan) -> bool:
    """Whether the step, or elements of it, may still run after it had ended, because they can be undone."""
    if plan.each is not None and plan.each.compensate is not None:
        return True
    return run.status is RunStatus.COMPENSATING and old.status is StepStatus.CANCELLED and plan.compensate is not None


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
    assert step.base <= step.attempts <= step.base + plan.retry.retries + 1
    assert bounds is None or bounds.iterations_max is None or step.iteration < bounds.iterations_max
    assert (step.due is step.until is step.fallback is None) or step.status in STEP_OUT
    assert step.until is None or bounds is not None
    assert step.fallback is None or (step.status is StepStatus.QUEUED and step.sticky is not None)
    carried = step.carried is not UNSET or step.carried_at is not None
    assert (step.iteration > 0) is carried, "what an iteration has received is there for its next attempt"
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
        if not isinstance(command, DispatchTask | BeginStep | RequestApproval):
            continue
        plan = workflow.plan_of(command.step_id)
        assert plan is not None
        if command.step_id.endswith(".compensate"):
            assert run.status is RunStatus.COMPENSATING
            continue
        assert (run.status, run.error) == (RunStatus.RUNNING, None), "a run that fails or has ended begins nothing"
        assert all(run.steps[needed].status in STEP_DONE for needed in plan.depends_on)
        asks = isinstance(command, RequestApproval)
        assert isinstance(command, BeginStep) or asks is (approval_of(plan) is not None), (
            "people decide approvals, workers all else"
        )
        assert not isinstance(command, DispatchTask) or command.worker in (None, run.bound)


def _check_timers(before: Run | None, run: Run, record: Record, commands: list[Command]) -> None:
    """Each timer of the state was set, and each that the state no longer has was withdrawn or has fired."""
    timers = {timer.timer: timer for timer in _timers(before)}
    if isinstance(record.event, TimerFired) and not record.event.payload.timer.startswith("wait."):
        timers.pop(record.event.payload.timer)
    for command in commands:
        if isinstance(command, WithdrawTimer):
            assert timers.pop(command.timer).due == command.due
        elif isinstance(command, SetTimer):
            timers[command.timer] = command
    assert {timer.timer: timer for timer in _timers(run)} == timers


def _timers(run: Run | None) -> list[SetTimer]:
    """The timers of a state, also of one that is about to end."""
    return [] if run is None else live_timers(replace(run, error=None))
