"""Ids that the broker knows repeats by: two things that differ must not share one, however often a run is tried, looped and resumed."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

from penstock.broker.names import (
    message_id,
    sticky_consumer,
    task_message_id,
    timer_message_id,
)
from penstock.engine.commands import AppendEvent, Command, DispatchTask, SetTimer
from penstock.engine.events import (
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRejected,
    ApprovalRequest,
    ApprovalRequested,
    Completed,
    Event,
    Reason,
    RunFailure,
    StepCompleted,
    StepContinue,
    StepFailed,
    StepSkipped,
    StepStarted,
    WorkflowCancelled,
    WorkflowCompleted,
    WorkflowFailed,
)
from tests.engine.build import Play, approval, loop, only, skip_if, step, workflow

RUN = "0198c0de" * 4
# Among them such as look like the parts of an id.
STEP_IDS = ["a", "a.1", "a.2", "a.1.1", "a.step.started", "a.step.started.2", "step.started", "workflow", "timer.fired", "1", "1.1"]
ATTEMPTS = [1, 2, 3, 10, 11, 21]
ITERATIONS = [0, 1, 2, 10, 11, 21]
REQUEST = ApprovalRequest(token="t", expires_at="x")


def step_events(step_id: str, attempt: int | None, iteration: int | None) -> list[Event]:
    """One event of each type that speaks of an execution of a step."""
    kinds = [StepStarted, StepCompleted, StepFailed, StepContinue, StepSkipped, ApprovalGranted, ApprovalRejected, ApprovalExpired]
    fields = {"run_id": RUN, "step_id": step_id, "attempt_number": attempt, "iteration": iteration}
    return [*(kind(**fields) for kind in kinds), ApprovalRequested(payload=REQUEST, **fields)]  # type: ignore[arg-type]


def repeated(ids: list[str]) -> list[str]:
    return [name for name, count in Counter(ids).items() if count > 1]


def test_every_execution_of_every_step_has_an_event_id_of_its_own() -> None:
    numbers = product(STEP_IDS, ATTEMPTS, ITERATIONS)
    events = [event for step_id, attempt, iteration in numbers for event in step_events(step_id, attempt, iteration)]
    ends: list[Event] = [WorkflowFailed(run_id=RUN, payload=RunFailure(resumes=n)) for n in range(30)]
    ends += [WorkflowCompleted(run_id=RUN, payload=Completed(resumes=n)) for n in range(30)]
    timers = [timer_message_id(RUN, f"{kind}.{step_id}", n) for kind, step_id, n in product(["retry", "loop"], STEP_IDS, range(9))]
    assert repeated([*(message_id(event) for event in [*events, *ends]), *timers]) == []


def test_every_execution_of_every_step_has_a_task_id_of_its_own() -> None:
    ids = [task_message_id(RUN, *execution) for execution in product(STEP_IDS, ITERATIONS, ATTEMPTS)]
    assert repeated(ids) == []


@pytest.mark.parametrize(
    ("attempt", "iteration", "expected"),
    [
        (None, None, "step.completed"),
        (1, None, "step.completed"),
        (1, 0, "step.completed"),
        (2, None, "step.completed.2"),
        (2, 0, "step.completed.2"),
        (1, 3, "step.completed.1.3"),
        (2, 3, "step.completed.2.3"),
        (None, 3, "step.completed.1.3"),
    ],
)
def test_the_numbers_of_an_execution_stand_behind_the_type(attempt: int | None, iteration: int | None, expected: str) -> None:
    event = StepCompleted(run_id=RUN, step_id="a", attempt_number=attempt, iteration=iteration)
    assert message_id(event) == f"{RUN}.a.{expected}"


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (WorkflowFailed(run_id=RUN), "workflow.failed"),
        (WorkflowFailed(run_id=RUN, payload=RunFailure(error="x", resumes=2)), "workflow.failed.2"),
        (WorkflowCompleted(run_id=RUN), "workflow.completed"),
        (WorkflowCompleted(run_id=RUN, payload=Completed(resumes=1)), "workflow.completed.1"),
        (WorkflowCancelled(run_id=RUN, payload=Reason(reason="x")), "workflow.cancelled"),
    ],
)
def test_the_end_of_a_resumed_run_says_how_often_it_was_resumed(event: Event, expected: str) -> None:
    assert message_id(event) == f"{RUN}.{expected}"


def test_what_an_event_carries_does_not_change_its_id() -> None:
    one, other = (StepFailed(run_id=RUN, step_id="a", attempt_number=2, timestamp=at) for at in ("x", "y"))
    assert message_id(one) == message_id(other)


def test_two_workers_or_two_task_types_never_share_a_sticky_consumer() -> None:
    names = ["a", "b", "a.b", "a-b", "a_b", "a-b.c", "a.b-c", "b-c", "b.c", "1", "1-a", "1.a"]
    found = [sticky_consumer(task, worker) for task, worker in product(names, names)]
    assert repeated(found) == []
    assert [name for name in found if set(name) & set(". *>/\\")] == []


def test_no_two_orders_of_a_run_share_an_id_however_it_went() -> None:
    """A run that retries, loops, asks, skips and fails again and again: the broker must take every order for a new one."""
    steps = (
        step("a", retry={"max_attempts": 1, "initial_delay": "1s"}, timeout="1m"),
        loop("b", "a", config={"max_iterations": 3, "max_duration": "1h", "loop_delay": "1s"}),
        approval("c", "a"),
        step("d", "a", skip_if=skip_if("a", "x", "==", 1)),
        step("e", "a"),
    )
    play = Play(workflow(*steps, timeout="1h", sticky="soft"))
    commands = play.start()
    commands += [*play.begin("a"), *play.fail("a"), *play.fire("retry.a", "a", 2, after=2), *play.begin("a", 2)]
    commands += play.complete("a", {"x": 1}, 2, worker="w")
    for life in range(3):
        commands += one_life(play, life)
    assert play.run.resumes == 3
    assert repeated(ids(commands)) == []
    assert len(only(DispatchTask, commands)) > 10


def one_life(play: Play, life: int) -> list[Command]:
    """The loop goes on once, everything falls back or is asked, then the broker refuses something and the run is resumed."""
    attempt = play.step("b").attempts
    commands = play.begin("b", attempt, iteration=play.step("b").iteration) if life != 1 else []
    iteration = play.step("b").iteration
    if iteration < 2:
        commands += play.go_on("b", None, attempt, iteration=iteration)
        commands += play.fire(f"retry.b~{iteration + 1}", "b", 1, after=2)
    commands += play.ask("c", f"token {life}", play.step("c").attempts)
    commands += play.fire("sticky.e", "e", play.step("e").attempts, after=5)
    commands += play.fire("approval.c", "c", play.step("c").attempts)
    play.refuse(resumes=life)
    commands += [AppendEvent(WorkflowFailed(run_id=play.run_id, payload=RunFailure(resumes=life)))]
    return commands + play.resume(after=10)


def ids(commands: list[Command]) -> list[str]:
    """Of the history, which is one stream, and of the two streams of tasks."""
    found = [message_id(command.event) for command in only(AppendEvent, commands)]
    found += [timer_message_id(RUN, command.timer, command.attempt) for command in only(SetTimer, commands)]
    tasks = only(DispatchTask, commands)
    found += [f"{command.worker} {task_message_id(RUN, command.step_id, command.iteration, command.attempt)}" for command in tasks]
    return found


def test_a_delayed_retry_is_set_off_under_the_name_of_its_step_and_attempt() -> None:
    assert timer_message_id(RUN, "retry.fetch", 2) == f"{RUN}.fetch.rate_retry.2"
    assert timer_message_id(RUN, "retry.fetch~3", 2) == f"{RUN}.fetch~3.rate_retry.2"
    assert timer_message_id(RUN, "timeout.fetch", 2) == f"{RUN}.timeout.fetch.timer.fired.2"
