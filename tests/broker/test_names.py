"""Ids that the broker knows repeats by: two things that differ must not share one, however often a run is tried, looped
and resumed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import product
from typing import TypeAlias

import pytest

from penstock.broker import message_ids
from penstock.broker.names import (
    spare_task_consumer,
    sticky_consumer,
    sticky_filter,
    sticky_of,
    sticky_subject,
    task_consumer,
    task_filter,
    task_of,
    task_subject,
)
from penstock.broker.streams.tasks import covers
from penstock.engine.run.commands import AppendEvent, Command, DispatchTask, SetTimer
from penstock.engine.run.event_payloads import ApprovalRequest, Cancellation, Completed, RunFailure, TimerRef
from penstock.engine.run.events import (
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRejected,
    ApprovalRequested,
    Event,
    StepCompleted,
    StepContinue,
    StepFailed,
    StepSkipped,
    StepStarted,
    TimerFired,
    WorkflowCancelled,
    WorkflowCompleted,
    WorkflowFailed,
)
from tests.engine.build import Play, approval, loop, only, skip_if, step, workflow

RUN = "0198c0de" * 4
# Among them such as look like the parts of an id.
STEP_IDS = [
    "a",
    "a.1",
    "a.2",
    "a.1.1",
    "a.step.started",
    "a.step.started.2",
    "step.started",
    "workflow",
    "timer.fired",
    "1",
    "1.1",
]
NAMES = ["a", "b", "a.b", "a-b", "a_b", "a-b.c", "a.b-c", "b-c", "b.c", "a.b.c", "c", "1", "1-a", "1.a"]
Names: TypeAlias = tuple[str, str, str, Callable[[str], tuple[str, str | None]], tuple[str, str | None]]
ATTEMPTS = [1, 2, 3, 10, 11, 21]
ITERATIONS = [0, 1, 2, 10, 11, 21]
REQUEST = ApprovalRequest(token="t", expires_at="x")


def step_events(step_id: str, attempt: int | None, iteration: int | None) -> list[Event]:
    """One event of each type that speaks of an execution of a step."""
    kinds = [
        StepStarted,
        StepCompleted,
        StepFailed,
        StepContinue,
        StepSkipped,
        ApprovalGranted,
        ApprovalRejected,
        ApprovalExpired,
    ]
    fields = {"run_id": RUN, "step_id": step_id, "attempt_number": attempt, "iteration": iteration}
    return [*(kind(**fields) for kind in kinds), ApprovalRequested(payload=REQUEST, **fields)]  # type: ignore[arg-type]


def repeated(ids: list[str]) -> list[str]:
    return [name for name, count in Counter(ids).items() if count > 1]


def test_every_execution_of_every_step_has_an_event_id_of_its_own() -> None:
    numbers = product(STEP_IDS, ATTEMPTS, ITERATIONS)
    events = [event for step_id, attempt, iteration in numbers for event in step_events(step_id, attempt, iteration)]
    ends: list[Event] = [WorkflowFailed(run_id=RUN, payload=RunFailure(resumes=n)) for n in range(30)]
    ends += [WorkflowCompleted(run_id=RUN, payload=Completed(resumes=n)) for n in range(30)]
    timers = [
        message_ids.of_timer(RUN, f"{kind}.{step_id}", n)
        for kind, step_id, n in product(["retry", "loop"], STEP_IDS, range(9))
    ]
    assert repeated([*(message_ids.of_event(event) for event in [*events, *ends]), *timers]) == []


def test_every_execution_of_every_step_has_a_task_id_of_its_own() -> None:
    ids = [message_ids.of_task(RUN, *execution) for execution in product(STEP_IDS, ITERATIONS, ATTEMPTS)]
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
def test_the_numbers_of_an_execution_stand_behind_the_type(
    attempt: int | None, iteration: int | None, expected: str
) -> None:
    event = StepCompleted(run_id=RUN, step_id="a", attempt_number=attempt, iteration=iteration)
    assert message_ids.of_event(event) == f"{RUN}.a.{expected}"


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (WorkflowFailed(run_id=RUN), "workflow.failed"),
        (WorkflowFailed(run_id=RUN, payload=RunFailure(error="x", resumes=2)), "workflow.failed.2"),
        (WorkflowCompleted(run_id=RUN), "workflow.completed"),
        (WorkflowCompleted(run_id=RUN, payload=Completed(resumes=1)), "workflow.completed.1"),
        (WorkflowCancelled(run_id=RUN, payload=Cancellation(reason="x")), "workflow.cancelled"),
    ],
)
def test_the_end_of_a_resumed_run_says_how_often_it_was_resumed(event: Event, expected: str) -> None:
    assert message_ids.of_event(event) == f"{RUN}.{expected}"


def test_two_timers_of_a_run_have_ids_of_their_own() -> None:
    refs = [TimerRef(f"{kind}.{step_id}", step_id, 1) for kind, step_id in product(["lost", "restored"], STEP_IDS)]
    assert repeated([message_ids.of_event(TimerFired(run_id=RUN, payload=ref)) for ref in refs]) == []


def test_what_an_event_carries_does_not_change_its_id() -> None:
    one, other = (StepFailed(run_id=RUN, step_id="a", attempt_number=2, timestamp=at) for at in ("x", "y"))
    assert message_ids.of_event(one) == message_ids.of_event(other)


def forms(task: str, other: str) -> tuple[Names, Names, Names]:
    """Subject, filter, durable and what is read back: of a type alone, with a group, and with a worker that a run is
    bound to."""
    return (
        (task_subject(task, RUN), task_filter(task), task_consumer(task), task_of, (task, None)),
        (task_subject(task, RUN, other), task_filter(task, other), task_consumer(task, other), task_of, (task, other)),
        (
            sticky_subject(task, other, RUN),
            sticky_filter(task, other),
            sticky_consumer(task, other),
            sticky_of,
            (task, other),
        ),
    )


def test_no_two_types_groups_or_workers_meet() -> None:
    """Neither in a subject, nor in a filter, nor in a durable; and each can be read back."""
    found = list(dict.fromkeys(form for task, other in product(NAMES, NAMES) for form in forms(task, other)))
    subjects, durables = [form[0] for form in found], [form[2] for form in found]
    assert (repeated(subjects), repeated(durables)) == ([], [])
    assert [name for name in durables if set(name) & set(". *>/\\")] == []
    assert [form for form in found if not form[3](form[0]) == form[3](form[1]) == form[4]] == []
    assert [
        (form[1], subject)
        for form in found
        for subject in subjects
        if covers(form[1], subject) is not (form[0] == subject)
    ] == []


def test_the_names_of_plain_types_and_workers_are_as_ever() -> None:
    assert (task_subject("mail", RUN), task_filter("mail"), task_consumer("mail")) == (
        f"task.mail.{RUN}",
        "task.mail.*",
        "workers-mail",
    )
    assert (task_consumer("mail.send"), task_consumer("mail", "eu.1")) == ("workers-mail=send", "workers-mail:eu=1")
    assert task_subject("mail", RUN, "eu") == f"task.mail.=eu.{RUN}"
    assert (sticky_subject("mail.send", "w-1", RUN), sticky_subject("mail", "w.1", RUN)) == (
        f"sticky.mail.send.w-1.{RUN}",
        f"sticky.mail.w=1.{RUN}",
    )


def test_a_spare_durable_is_nobody_elses() -> None:
    taken = [form[2] for task, other in product(NAMES, NAMES) for form in forms(task, other)]
    assert {spare_task_consumer(task) for task in NAMES} & set(taken) == set()


def test_no_two_orders_of_a_run_share_an_id_however_it_went() -> None:
    """A run that retries, loops, asks, skips and fails again and again: the broker must take every order for a new
    one."""
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
    """The loop goes on once, everything falls back or is asked, then the broker refuses something and the run is
    resumed."""
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
    found = [message_ids.of_event(command.event) for command in only(AppendEvent, commands)]
    found += [message_ids.of_timer(RUN, command.timer, command.attempt) for command in only(SetTimer, commands)]
    tasks = only(DispatchTask, commands)
    found += [
        f"{command.worker} {message_ids.of_task(RUN, command.step_id, command.iteration, command.attempt)}"
        for command in tasks
    ]
    return found


def test_a_delayed_retry_is_set_off_under_the_name_of_its_step_and_attempt() -> None:
    assert message_ids.of_timer(RUN, "retry.fetch", 2) == f"{RUN}.fetch.rate_retry.2"
    assert message_ids.of_timer(RUN, "retry.fetch~3", 2) == f"{RUN}.fetch~3.rate_retry.2"
    assert message_ids.of_timer(RUN, "timeout.fetch", 2) == f"{RUN}.timeout.fetch.timer.fired.2"
