"""A world around `advance`: queues, timers, workers of every character, crashes. The laws hold in it, and every run ends.

The machine plays all that is not pure. What the engine orders is performed at once or, while the shell stalls, waits in `orders`; its
own events may be on their way for long. A crash forgets what waits, and takes the run up again from its snapshot and log.
PROPERTY_EXAMPLES=5000 looks longer, and each time elsewhere.
"""

from __future__ import annotations

import os
from typing import TypeVar, assert_never

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec import Raw

from penstock.engine.advance import fold, live_timers, still_due
from penstock.engine.commands import AppendEvent, Command, DeadLetterTask, DispatchTask, SetTimer, WithdrawTask, WithdrawTimer
from penstock.engine.events import (
    Event,
    Failure,
    Record,
    Scheduled,
    Started,
    StepCompleted,
    StepFailed,
    StepStarted,
    TimerFired,
    TimerRef,
    WorkflowCancelled,
    WorkflowScheduled,
    WorkflowStarted,
)
from penstock.engine.state import STEP_OUT, Run, RunStatus, StepStatus, from_snapshot, to_snapshot
from penstock.engine.times import rfc3339
from tests.properties.laws import compiled, definitions, ends, executions, lawful

EXAMPLES = int(os.environ.get("PROPERTY_EXAMPLES", "0"))
RECORDS_MAX = 1000
RUN_ID = "0" * 32

PICK = st.integers(0, 99)
OUTPUTS = ('{"x":1}', '{"x":0}', "null")
FAILURES = ("retriable", "some other word", "retry_after", "non_retriable")
ANSWERS = st.sampled_from([*OUTPUTS * 2, *["started"] * 4, *FAILURES, "retriable"])
WEIGHTS = {
    "work": 20,
    "work in vain": 8,
    "fire": 6,
    "land": 5,
    "perform": 4,
    "catch up": 4,
    "save": 4,
    "crash": 4,
    "repeat": 4,
    "fire though withdrawn": 3,
    "look back": 2,
    "start": 2,
    "stall": 2,
    "cancel": 1,
}
ACTS = st.sampled_from([act for act, weight in WEIGHTS.items() for _ in range(weight)])
NUMBERED = st.sampled_from([True, True, False])

T = TypeVar("T")


def some(things: list[T], pick: int) -> T:
    return things[pick % len(things)]


class World(RuleBasedStateMachine):
    """One run. `tasks` are out and unanswered, `held` were answered or withdrawn but some worker may still think of them."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000_000.0
        self.run: Run | None = None
        self.log: list[Record] = []
        self.states: list[Run | None] = []
        self.ordered: list[list[Command]] = []  # for each record of the log
        self.performs = self.lands = True
        self.orders: list[Command] = []
        self.in_flight: list[Event] = []
        self.tasks: list[DispatchTask] = []
        self.held: list[DispatchTask] = []
        self.timers: dict[str, SetTimer] = {}
        self.ghosts: list[SetTimer] = []
        self.letters: list[DeadLetterTask] = []
        self.covered, self.snapshot = 0, b""

    @initialize(definition=definitions(), later=st.booleans(), lands=st.booleans())
    def begin(self, definition: dict[str, object], later: bool, lands: bool) -> None:
        self.workflow, self.lands = compiled(definition), lands
        if later:
            payload = Scheduled(workflow="w", version="1", digest="digest", run_at="2030-01-01T00:00:00Z")
            self.tell(WorkflowScheduled(run_id=RUN_ID, timestamp=rfc3339(self.now), payload=payload))
        else:
            self.start()

    # One rule for all: Hypothesis leaves some rules out of each example, and a world without workers finds nothing.
    @rule(act=ACTS, pick=PICK, answer=ANSWERS, numbered=NUMBERED, lost=st.booleans())
    def act(self, act: str, pick: int, answer: str, numbered: bool, lost: bool) -> None:
        match act:
            case "start":
                self.start()
            case "work" if self.tasks:
                self.work(some(self.tasks, pick), answer, numbered)
            case "work in vain" if self.held:
                self.tell(said(some(self.held, pick), answer, numbered, self.now))
            case "fire" if self.timers:
                self.fire(min(self.timers, key=self.due))
            case "fire though withdrawn" if self.ghosts:
                self.ring(some(self.ghosts, pick))
            case "cancel" if pick % 4 == 0:
                self.tell(WorkflowCancelled(run_id=RUN_ID, timestamp=rfc3339(self.now)))
            case "stall":
                self.performs = self.lands = False
            case "catch up":
                self.catch_up()
            case "perform":
                self.perform(1 + pick % 10)
            case "land" if self.in_flight:
                self.land(pick, twice=lost)
            case "save" if not self.orders and not self.in_flight:
                self.save()
            case "crash":
                self.crash(events_lost=numbered, timers_lost=lost)
            case "repeat":
                self.repeat(some(self.log, pick).event)
            case "look back":
                self.look_back(pick % len(self.log))

    def start(self) -> None:
        payload = Started(workflow="w", version="1", digest="digest", input=Raw(b'{"x":1}'))
        self.tell(WorkflowStarted(run_id=RUN_ID, timestamp=rfc3339(self.now), payload=payload))

    def work(self, task: DispatchTask, answer: str, numbered: bool) -> None:
        if answer != "started":
            self.put_away(task)
        self.tell(said(task, answer, numbered, self.now))

    def due(self, timer: str) -> float:
        return self.timers[timer].due

    def fire(self, name: str) -> None:
        self.ghosts.append(self.timers.pop(name))
        self.ring(self.ghosts[-1])

    def ring(self, timer: SetTimer) -> None:
        self.now = max(self.now, timer.due)
        ref = TimerRef(timer=timer.timer, step_id=timer.step_id, attempt=timer.attempt)
        self.tell(TimerFired(run_id=RUN_ID, timestamp=rfc3339(timer.due), payload=ref))

    def catch_up(self) -> None:
        self.performs = self.lands = True
        self.settle()

    def perform(self, count: int) -> None:
        doing, self.orders = self.orders[:count], self.orders[count:]
        for command in doing:
            self.do(command)

    def land(self, pick: int, twice: bool) -> None:
        """An event of the engine's own reaches the log: in any order, after anything else, or twice."""
        event = some(self.in_flight, pick)
        if not twice:
            self.in_flight.remove(event)
        self.append(event)

    def save(self) -> None:
        self.covered, self.snapshot = len(self.log), to_snapshot(self.known())

    def crash(self, events_lost: bool, timers_lost: bool) -> None:
        """Another owner takes the run up from the snapshot and the log; what was ordered and not done is forgotten."""
        run = from_snapshot(self.snapshot) if self.covered else None
        for record, ordered in zip(self.log[self.covered :], self.ordered[self.covered :], strict=True):
            run, commands = lawful(self.workflow, run, record)
            assert commands == ordered, "replay orders what was ordered live"
        assert run == self.run
        beyond = [command for commands in self.ordered[self.covered :] for command in commands]
        self.orders = [*(command for command in beyond if still_due(self.known(), command)), *live_timers(self.known())]
        if events_lost:
            self.in_flight.clear()
        if timers_lost:
            self.ghosts += self.timers.values()
            self.timers.clear()
        self.settle()

    def repeat(self, event: Event) -> None:
        """Any past event repeated anywhere changes nothing; without its attempt's number an answer cannot be known as a repeat."""
        if isinstance(event, StepStarted | StepCompleted | StepFailed) and event.attempt_number is None:
            return
        before = self.run
        assert self.append(event) == []
        assert self.run == before

    def look_back(self, cut: int) -> None:
        """A prefix folds to what the state was then, and a snapshot of it and the rest fold to what it is now."""
        then = fold(self.workflow, None, self.log[: cut + 1])
        assert then is not None
        assert then == self.states[cut]
        kept = from_snapshot(to_snapshot(then))
        assert kept == then
        assert fold(self.workflow, kept, self.log) == self.run

    @invariant()
    def nothing_is_lost(self) -> None:
        """Once all orders are performed, the world holds every timer and every task that the run waits for."""
        if self.run is None or self.run.status is not RunStatus.RUNNING or self.orders or ends(self.all_ordered()):
            return
        assert [self.timers.get(timer.timer) for timer in live_timers(self.run)] == live_timers(self.run)
        out = set(executions(list(self.tasks)))
        for step_id, step in self.run.steps.items():
            waits = step.status is StepStatus.QUEUED and step.due is not None
            if step.status in STEP_OUT and not waits:
                assert (step_id, step.iteration, step.attempts) in out

    @invariant()
    def nothing_is_ordered_twice(self) -> None:
        commands = self.all_ordered()
        assert len(set(executions(commands))) == len(executions(commands))
        assert ends(commands) <= 1

    def teardown(self) -> None:
        """When the world becomes fair, the run ends; and the log alone says how."""
        if self.run is None:
            return
        self.catch_up()
        if self.run.status is RunStatus.SCHEDULED:
            self.start()
        while self.tasks or self.timers:
            assert len(self.log) < RECORDS_MAX, "it goes on and on"
            if self.tasks:
                self.work(self.tasks[0], OUTPUTS[0], True)
            else:
                self.fire(min(self.timers, key=self.due))
        assert self.run.ended
        assert fold(self.workflow, None, self.log) == self.run
        assert all(command in self.letters for command in self.all_ordered() if isinstance(command, DeadLetterTask))

    def known(self) -> Run:
        assert self.run is not None
        return self.run

    def all_ordered(self) -> list[Command]:
        return [command for commands in self.ordered for command in commands]

    def tell(self, event: Event) -> None:
        self.append(event)
        self.settle()

    def settle(self) -> None:
        """Perform what is ordered, and let it land, as far as the shell is up to it."""
        while (self.performs and self.orders) or (self.lands and self.in_flight):
            if self.performs:
                self.perform(len(self.orders))
            if self.lands and self.in_flight:
                self.append(self.in_flight.pop(0))

    def append(self, event: Event) -> list[Command]:
        self.now += 0.001
        record = Record(len(self.log) * 3 + 1, self.now, event)  # a run's sequences have gaps
        self.run, commands = lawful(self.workflow, self.run, record)
        self.log.append(record)
        self.states.append(self.run)
        self.ordered.append(commands)
        self.orders += commands
        return commands

    def do(self, command: Command) -> None:
        match command:
            case DispatchTask():
                self.tasks.append(command)
            case WithdrawTask():
                for task in [task for task in self.tasks if (task.task, task.group) == (command.task, command.group)]:
                    self.put_away(task)
            case SetTimer():
                self.timers[command.timer] = command
            case WithdrawTimer():
                if command.timer in self.timers:
                    self.ghosts.append(self.timers.pop(command.timer))
            case DeadLetterTask():
                self.letters.append(command)
            case AppendEvent():
                self.in_flight.append(command.event)
            case _:
                assert_never(command)

    def put_away(self, task: DispatchTask) -> None:
        self.tasks.remove(task)
        self.held.append(task)


def said(task: DispatchTask, answer: str, numbered: bool, now: float) -> Event:
    """What a worker says of its task: `started`, a failure type, or an output."""
    number, stamp, step_id = task.attempt if numbered else None, rfc3339(now), task.step_id
    if answer == "started":
        return StepStarted(run_id=RUN_ID, timestamp=stamp, step_id=step_id, attempt_number=number, worker_id="w")
    if answer in OUTPUTS:
        return StepCompleted(run_id=RUN_ID, timestamp=stamp, step_id=step_id, attempt_number=number, payload=Raw(answer.encode()))
    failure = Failure(error="boom", failure_type=answer, retry_after_ms=7000)
    return StepFailed(run_id=RUN_ID, timestamp=stamp, step_id=step_id, attempt_number=number, payload=failure)


TestWorld = World.TestCase
TestWorld.settings = settings(
    max_examples=EXAMPLES or 450,
    stateful_step_count=60,
    derandomize=not EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
