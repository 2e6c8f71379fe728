"""Definitions of every shape, and what holds for each event that any of their runs is told."""

from __future__ import annotations

from hypothesis import strategies as st

from penstock.engine.advance import advance
from penstock.engine.commands import AppendEvent, Command, DispatchTask
from penstock.engine.events import Record, WorkflowCompleted, WorkflowFailed
from penstock.engine.state import RUN_MOVES, STEP_DONE, STEP_ENDED, STEP_MOVES, STEP_OUT, Run, RunStatus, StepState
from penstock.engine.validation import parse
from penstock.engine.workflow import Workflow, compile_workflow

STEPS_MAX = 7
Execution = tuple[str, int, int]

RETRY = st.fixed_dictionaries(
    {
        "max_attempts": st.sampled_from([2, 1, 3, 0]),
        "strategy": st.sampled_from(["fixed", "linear", "exponential"]),
        "initial_delay": st.sampled_from(["0s", "10s"]),
    },
    optional={"max_delay": st.just("15s")},
)


@st.composite
def definitions(draw: st.DrawFn) -> dict[str, object]:
    """Up to seven steps in any acyclic shape, several roots and ends included; few task types, so that steps share them."""
    steps: list[dict[str, object]] = []
    for number in range(draw(st.integers(1, STEPS_MAX))):
        before = [str(step["id"]) for step in steps]
        depends_on: list[str] = draw(st.lists(st.sampled_from(before), unique=True, max_size=3)) if before else []
        step: dict[str, object] = {
            "id": f"s{number}",
            "task": draw(st.sampled_from(["t", "u"])),
            "depends_on": depends_on,
            "retry": draw(st.none() | RETRY),
            "timeout": draw(st.sampled_from([None, "30s"])),
        }
        conditional = draw(st.booleans())
        if conditional and depends_on:
            step["skip_if"] = {"step_id": draw(st.sampled_from(depends_on)), "field": "x", "op": "==", "value": 1}
        steps.append(step)
    return {"name": "w", "steps": steps, "default_retry": draw(RETRY), "timeout": draw(st.sampled_from([None, None, "5m"]))}


def compiled(definition: dict[str, object]) -> Workflow:
    return compile_workflow(parse(definition), "digest")


def lawful(workflow: Workflow, before: Run | None, record: Record) -> tuple[Run | None, list[Command]]:
    """`advance`, with everything asserted that holds for any event whatever."""
    run, commands = advance(workflow, before, record)
    if run is before:
        assert commands == []
        return run, commands
    assert run is not None, "a run does not go away"
    assert run.seq == record.seq
    _check_run_move(before, run)
    _check_steps(workflow, before, run)
    _check_commands(workflow, run, commands)
    return run, commands


def executions(commands: list[Command]) -> list[Execution]:
    """What was ordered to be executed: step, iteration, attempt."""
    return [(command.step_id, command.iteration, command.attempt) for command in commands if isinstance(command, DispatchTask)]


def ends(commands: list[Command]) -> int:
    """How many ends of the run were ordered."""
    return sum(isinstance(command, AppendEvent) and isinstance(command.event, WorkflowCompleted | WorkflowFailed) for command in commands)


def _check_run_move(before: Run | None, run: Run) -> None:
    if before is None:
        assert run.status in (RunStatus.SCHEDULED, RunStatus.RUNNING)
    else:
        assert not before.ended, "an end is final"
        assert run.status is before.status or run.status in RUN_MOVES[before.status]
    assert run.due is None or run.status is RunStatus.RUNNING


def _check_steps(workflow: Workflow, before: Run | None, run: Run) -> None:
    olds = workflow.waiting if before is None else before.steps
    assert run.steps.keys() == workflow.steps.keys()
    for step_id, step in run.steps.items():
        _check_step(olds[step_id], step, workflow.steps[step_id].retry.retries)
    if run.ended:
        assert all(step.status in STEP_ENDED for step in run.steps.values())
    if run.status is RunStatus.COMPLETED:
        assert all(step.status in STEP_DONE for step in run.steps.values())


def _check_step(old: StepState, step: StepState, retries: int) -> None:
    assert step.status is old.status or step.status in STEP_MOVES[old.status]
    assert old.attempts <= step.attempts <= min(old.attempts + 1, retries + 1)
    assert step.due is None or step.status in STEP_OUT
    assert old.status not in STEP_ENDED or step == old


def _check_commands(workflow: Workflow, run: Run, commands: list[Command]) -> None:
    for command in commands:
        if isinstance(command, DispatchTask):
            assert (run.status, run.error) == (RunStatus.RUNNING, None), "a run that fails or has ended begins nothing"
            assert all(run.steps[needed].status in STEP_DONE for needed in workflow.steps[command.step_id].depends_on)
