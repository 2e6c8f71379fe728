"""The shell as the properties need it: it takes events in order, performs what is ordered sooner or later, crashes, and
comes back."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.broker import message_ids
from penstock.engine.fragments import expansion
from penstock.engine.run.commands import (
    AppendEvent,
    BeginStep,
    Command,
    CompleteRun,
    DeadLetterTask,
    DispatchTask,
    ExpandPlan,
    SetTimer,
    StartChild,
    WithdrawQueued,
)
from penstock.engine.run.event_payloads import RunFailure, TimerRef
from penstock.engine.run.events import Event, Record, TimerFired, WorkflowCancelled, WorkflowFailed
from penstock.engine.run.execution.beginning import begin_step
from penstock.engine.run.execution.fragments import is_planned
from penstock.engine.run.execution.inputs import output_of
from penstock.engine.run.expansion import expanded
from penstock.engine.run.state import Run, StepStatus, from_snapshot, to_snapshot
from penstock.engine.run.still_due import still_due
from penstock.engine.run.timers import live_timers
from penstock.engine.run.workflow import Workflow
from penstock.engine.times import rfc3339
from penstock.testing.memory.payloads import payloads, whole
from tests.properties.laws import Result, lawful, result
from tests.properties.world import RUN_ID, Broker, id_of, some


class Shell:
    """Owns one run, its log, and the orders that are not performed yet: none are held up while it `performs` and they
    `land`."""

    workflow: Workflow

    def __init__(self) -> None:
        super().__init__()
        self.broker = Broker()
        self.run: Run | None = None
        self.log: list[Record] = []
        self.states: list[Run | None] = []
        self.ordered: list[list[Command]] = []  # for each record of the log
        self.results: list[Result] = []
        self.orders: list[Command] = []
        self.performs = self.lands = True
        self.refused = False
        self.covered, self.snapshot = 0, b""

    def append(self, event: Event) -> list[Command]:
        self.broker.now += 0.001
        record = Record(len(self.log) * 3 + 1, self.broker.now, event)  # a run's sequences have gaps
        before = self.run
        self.run, commands = lawful(self.workflow, before, record)
        self.log.append(record)
        self.states.append(self.run)
        self.ordered.append(commands)
        self.orders += commands
        if (found := result(before, self.run, record)) is not None:
            self.results.append(found)
        return commands

    def arrive(self, event: Event) -> None:
        name = id_of(event)
        if isinstance(event, WorkflowCancelled) and event.payload.compensation is None:
            name = message_ids.of_cancellation(RUN_ID, self.known().resumes)
        if name is None or self.broker.takes_event(name):
            self.append(event)

    def say(self, event: Event) -> None:
        """From outside, through the broker."""
        self.arrive(event)
        self.settle()

    def tell(self, event: Event) -> None:
        """Straight into the log, whatever came before."""
        self.append(event)
        self.settle()

    def settle(self) -> None:
        """Perform what is ordered, and let it land, as far as the shell is up to it."""
        while (self.performs and self.orders) or (self.lands and self.broker.in_flight):
            if self.performs:
                self.perform(len(self.orders))
            if self.lands and self.broker.in_flight:
                self.arrive(self.broker.in_flight.pop(0))

    def perform(self, count: int) -> None:
        doing, self.orders = self.orders[:count], self.orders[count:]
        for command in doing:
            for following in self.following(command):
                self.broker.do(following)

    def following(self, command: Command) -> Sequence[Command]:
        """What the shell does for the command, once it has evaluated, checked or read what belongs to it."""
        run = self.known()
        match command:
            case BeginStep():
                return [last for one in self.begun(command) for last in self.following(_again(one, command))]
            case WithdrawQueued():
                self.broker.withdraw_queued(command, self.is_queued)
                return []
            case StartChild():
                return [AppendEvent(self.broker.outside.start_child(run, command))]
            case ExpandPlan():
                return self.checked(command)
            case CompleteRun():
                output = whole(command.output, self.at)
                return [AppendEvent(replace(command.event, payload=replace(command.event.payload, output=output)))]
            case _:
                return [command]

    def is_queued(self, task: DispatchTask) -> bool:
        """Whether nobody has begun the task, as far as the log says."""
        step = self.known().step(task.step_id)
        execution = (step.status, step.attempts, step.iteration)
        return execution == (StepStatus.QUEUED, task.attempt, task.iteration)

    def begun(self, command: BeginStep) -> Sequence[Command]:
        """What begins the step, with the values of its expressions."""
        run, workflow = self.known(), self.whole()
        plan = workflow.plan_of(command.step_id)
        assert plan is not None
        return begin_step(workflow, run, command, payloads(workflow, run, plan, self.at))

    def checked(self, command: ExpandPlan) -> Sequence[Command]:
        run = self.known()
        if not is_planned(run, command):
            return []
        plan = whole(output_of(run, command.step_id), self.at)
        return [AppendEvent(expansion(self.whole(), run, command, plan))]

    def whole(self) -> Workflow:
        """The workflow with the steps that planners have inserted."""
        return expanded(self.workflow, self.run)

    def at(self, seq: int) -> Event:
        return next(record.event for record in self.log if record.seq == seq)

    def catch_up(self) -> None:
        self.performs = self.lands = True
        self.settle()

    def refuse(self) -> None:
        """The broker does not take something for good: the shell gives the rest up, after its dead letters, and fails
        the run."""
        self.orders = [order for order in self.orders if isinstance(order, DeadLetterTask)]
        self.refused = True
        payload = RunFailure(error="the run cannot go on", resumes=self.known().resumes)
        self.broker.in_flight.append(WorkflowFailed(run_id=RUN_ID, timestamp=self.stamp(), payload=payload))

    def land(self, pick: int, twice: bool) -> None:
        """An event of the engine's own reaches the log: in any order, after anything else, or twice."""
        event = some(self.broker.in_flight, pick)
        if not twice:
            self.broker.in_flight.remove(event)
        self.arrive(event)

    def first_timer(self) -> str:
        return min(self.broker.timers, key=lambda name: self.broker.timers[name].due)

    def fire(self, name: str) -> None:
        """Out of the shell's memory, with an id."""
        timer = self.broker.timers.pop(name)
        self.broker.ghosts.append(timer)
        self.broker.now = max(self.broker.now, timer.due)
        if self.broker.takes_event(message_ids.of_timer(RUN_ID, timer.timer, timer.attempt)):
            self.fire_timer(timer)

    def fire_timer(self, timer: SetTimer) -> None:
        """As the broker does it, without an id."""
        self.broker.now = max(self.broker.now, timer.due)
        ref = TimerRef(timer=timer.timer, step_id=timer.step_id, attempt=timer.attempt)
        before, waited = self.run, live_timers(self.known())
        self.append(TimerFired(run_id=RUN_ID, timestamp=rfc3339(timer.due), payload=ref))
        # an element has no room for the name of a second wait; a run that undoes its steps hears it all the same if it
        # completes later
        element = before is not None and before.compensation is not None and before.element(timer.step_id or "")
        in_time = all(one.due <= self.broker.now for one in waited if one.timer == timer.timer)
        # the wait for the bound worker begins anew after a pause of the run, and may end as it would have without one
        anew = timer.timer.startswith("sticky.") and self.known().pauses > 0
        assert self.run is before or element or in_time or anew, "it came too early"
        self.settle()

    def save(self) -> None:
        self.covered, self.snapshot = len(self.log), to_snapshot(self.known())
        assert b"token-" not in self.snapshot, "a snapshot knows tokens by their hashes only"

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
            self.broker.in_flight.clear()
        if timers_lost:
            self.broker.ghosts += self.broker.timers.values()
            self.broker.timers.clear()
        self.settle()

    def known(self) -> Run:
        assert self.run is not None
        return self.run

    def all_ordered(self) -> list[Command]:
        return [command for commands in self.ordered for command in commands]

    def stamp(self) -> str:
        return rfc3339(self.broker.now)


def _again(following: Command, command: BeginStep) -> Command:
    """A task that follows from it is ordered again, if the run was paused meanwhile, as often as that."""
    return replace(following, again=command.again) if isinstance(following, DispatchTask) else following
