"""A world around `advance`: queues, timers, workers and people of every character, crashes. The laws hold in it, and
every run ends.

The machine plays all that is not pure. What the engine orders is performed at once or, while the shell stalls, waits in
`orders`; its own events may be on their way for long. A crash forgets what waits, and takes the run up again from its
snapshot and log. PROPERTY_EXAMPLES=5000 looks longer, and each time elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec import Raw

from penstock.broker import message_ids
from penstock.engine.run.advance import fold
from penstock.engine.run.commands import (
    AwaitEvent,
    CancelTask,
    DeadLetterTask,
    DispatchTask,
    ReleaseSlot,
    WithdrawSticky,
)
from penstock.engine.run.event_payloads import Cancellation, ParentRef, Resumed, Scheduled, Started
from penstock.engine.run.events import (
    ApprovalGranted,
    ApprovalRejected,
    ApprovalRequested,
    LimitGranted,
    LimitRefused,
    PlannerExpanded,
    StepFailed,
    StepOverridden,
    StepSkipped,
    StepStarted,
    TimerFired,
    WorkflowCancelled,
    WorkflowFailed,
    WorkflowPaused,
    WorkflowResumed,
    WorkflowScheduled,
    WorkflowStarted,
    WorkflowUnpaused,
)
from penstock.engine.run.execution.children import child_run_id
from penstock.engine.run.execution.steps import is_ready
from penstock.engine.run.kinds.approval import approval_of, token_hash
from penstock.engine.run.kinds.sub_workflow import ChildStep
from penstock.engine.run.kinds.wait_for_event import WaitForEvent
from penstock.engine.run.slots.holders import RUN
from penstock.engine.run.state import (
    RUN_OPEN,
    STEP_OUT,
    Compensation,
    Run,
    RunStatus,
    StepState,
    StepStatus,
    from_snapshot,
    to_snapshot,
)
from penstock.engine.run.timers import live_timers
from tests.engine.build import only
from tests.properties.by_hand import Operator
from tests.properties.definitions import SMALL, compiled, definitions, limited
from tests.properties.laws import CANCELLED, Execution, ends, executions
from tests.properties.outside import ENDS
from tests.properties.pausing import Pausing
from tests.properties.slots import Slots
from tests.properties.undone import Undone
from tests.properties.world import FAILURES, OUTPUTS, RUN_ID, TOO_MUCH, is_numbered, said, some

EXAMPLES = int(os.environ.get("PROPERTY_EXAMPLES", "0"))
RECORDS_MAX = 2000
LIVES_MAX = 2  # in a fair world

PICK = st.integers(0, 99)
ANSWERS = st.sampled_from(
    [*OUTPUTS * 2, *["started"] * 4, *["paused"] * 2, *["continue"] * 4, *FAILURES, "retriable", TOO_MUCH]
)
WEIGHTS = {
    "work": 22,
    "work in vain": 8,
    "decide": 6,
    "fire": 6,
    "land": 5,
    "end child": 8,
    "look": 6,
    "event": 3,
    "perform": 4,
    "catch up": 4,
    "save": 4,
    "crash": 4,
    "repeat": 4,
    "resume": 4,
    "fire though withdrawn": 4,
    "let time pass": 2,
    "look back": 2,
    "start": 2,
    "stall": 2,
    "refuse": 2,
    "by hand": 2,
    "now": 2,
    "pause": 2,
    "unpause": 4,
    "cancel": 1,
    "grant": 16,
}
ACTS = st.sampled_from([act for act, weight in WEIGHTS.items() for _ in range(weight)])
NUMBERED = st.sampled_from([True, True, False])


# Appended where the run was seen as it is then, so that they have no repeats.
APPENDED_ONCE = (WorkflowResumed, WorkflowPaused, WorkflowUnpaused, StepOverridden)
WORKED_OUT = (
    StepStarted | StepSkipped | StepFailed | PlannerExpanded
)  # what the engine writes of a step that was evaluated


class World(Operator, Pausing, Undone, Slots, RuleBasedStateMachine):
    """One run and everybody who has to do with it."""

    def __init__(self) -> None:
        super().__init__()
        self.decided: list[str] = []
        self.endless = True
        self.late_letters = False
        self.parent: ParentRef | None = None

    @initialize(definition=definitions(), later=st.booleans(), lands=st.booleans(), endless=st.booleans())
    def begin(self, definition: dict[str, object], later: bool, lands: bool, endless: bool) -> None:
        self.begin_with(definition, later, lands, endless)

    def begin_with(self, definition: dict[str, object], later: bool, lands: bool, endless: bool) -> None:
        """An endless world is one in which loops go on for as long as they may."""
        self.workflow, self.lands, self.endless = compiled(definition), lands, endless
        self.parent = ParentRef("p" * 32, "c", 1) if endless and not later else None
        if later:
            given = Raw(b'{"x":1}')
            payload = Scheduled(workflow="w", version="1", digest="digest", run_at="2030-01-01T00:00:00Z", input=given)
            self.tell(WorkflowScheduled(run_id=RUN_ID, timestamp=self.stamp(), payload=payload))
        else:
            self.start()

    # One rule for all: Hypothesis leaves some rules out of each example, and a world without workers finds nothing.
    @rule(act=ACTS, pick=PICK, answer=ANSWERS, numbered=NUMBERED, lost=st.booleans())
    def act(self, act: str, pick: int, answer: str, numbered: bool, lost: bool) -> None:
        match act:
            case "start":
                self.start()
            case "work" if self.broker.tasks:
                self.work(some(self.broker.tasks, pick), answer, numbered, pick)
            case "work in vain" if self.broker.held:
                self.work_in_vain(some(self.broker.held, pick), answer, numbered, pick)
            case "decide" if asked := self.asked():
                self.decide(some(asked, pick), granted=numbered)
            case "fire" if self.broker.timers:
                self.fire(self.first_timer())
            case "fire though withdrawn" if self.broker.ghosts:
                self.fire_timer(some(self.broker.ghosts, pick))
            case "end child" if children := self.broker.outside.living():
                self.end_child(some(children, pick), some(ENDS, pick // 3))
            case "look" if self.broker.outside.waits:
                self.look(some(list(self.broker.outside.waits.values()), pick))
            case "event":
                self.broker.outside.occur("e", pick % 2, self.broker.now)
            case "let time pass":
                self.broker.now += some([1, 6, 40, 130], pick)
            case "cancel" if pick % 4 == 0:
                wanted = Cancellation(compensate=numbered)
                self.say(WorkflowCancelled(run_id=RUN_ID, timestamp=self.stamp(), payload=wanted))
            case "by hand" if self.known().steps:
                self.complete_by_hand(pick)
            case "pause" if not self.known().ended:
                self.pause_run(children=numbered)
            case "unpause" if self.known().pause is not None:
                self.unpause_run(children=numbered)
            case "grant" if self.requests or self.taken:
                self.grant(pick)
            case "now" if waiting := self.waiting():
                self.begin_now(some(waiting, pick))
            case "resume" if self.is_resumable():
                self.resume()
            case "refuse" if self.known().status is RunStatus.RUNNING:
                self.refuse()
            case "stall":
                self.performs = self.lands = False
            case "catch up":
                self.catch_up()
            case "perform":
                self.perform(1 + pick % 10)
            case "land" if self.broker.in_flight:
                self.land(pick, twice=lost)
            case "save" if not self.orders and not self.broker.in_flight:
                self.save()
            case "crash":
                self.crash(events_lost=numbered, timers_lost=lost)
            case "repeat":
                self.repeat(pick % len(self.log))
            case "look back":
                self.look_back(pick % len(self.log))

    def is_resumable(self) -> bool:
        return self.known().status is RunStatus.FAILED and self.known().compensation is None

    def start(self) -> None:
        payload = Started(workflow="w", version="1", digest="digest", input=Raw(b'{"x":1}'), parent=self.parent)
        self.tell(WorkflowStarted(run_id=RUN_ID, timestamp=self.stamp(), payload=payload))

    def work(self, task: DispatchTask, answer: str, numbered: bool, pick: int) -> None:
        if answer not in ("started", "paused"):
            self.broker.put_away(task)
        self.work_in_vain(task, answer, numbered, pick)
        if answer == "paused" or pick % 7 == 0:
            self.broker.deliver_again(task)

    def work_in_vain(self, task: DispatchTask, answer: str, numbered: bool, pick: int) -> None:
        numbered = numbered or self.must_be_numbered(task, answer)
        worker, delivery = f"w{pick % 2}", self.broker.delivery(task)
        began = self.broker.now - pick % 4 if pick % 3 == 0 else None  # told by the answer, if not by a start
        self.say(said(task, answer, numbered, self.broker.now, worker, delivery, pick // 2, began))

    def end_child(self, child: str, how: str) -> None:
        """Its end is said once; an end that comes after a cancellation may be any."""
        ended = self.broker.outside.end_child(RUN_ID, child, how, self.broker.now)
        if ended is not None:
            self.say(ended)

    def look(self, wait: AwaitEvent) -> bool:
        """As the shell does it, which may look again before the run has heard of it; whether the wait is over."""
        plan = self.whole().plan_of(wait.step_id)
        assert plan is not None
        found = self.broker.outside.outcome(RUN_ID, wait, self.broker.now, bool(plan.later))
        if isinstance(found, TimerFired):
            timer = found.payload.timer
            if self.broker.takes_event(message_ids.of_timer(RUN_ID, timer, found.payload.attempt)):
                self.tell(found)
        elif found is not None:
            self.say(found)
        return (wait.step_id, wait.attempt) not in self.broker.outside.waits

    def must_be_numbered(self, task: DispatchTask, answer: str) -> bool:
        """Two words say nothing without their numbers, and a worker that leaves them out pays for it. A late start is
        taken for that of a task which may not have been sent yet: a crash would then not send it any more. And who asks
        a step that is no loop for another iteration is not heard before it has started."""
        step = self.known().step(task.step_id)
        late = (task.iteration, task.attempt) != (step.iteration, step.attempts)
        return (answer == "started" and late) or (answer == "continue" and task.step_type != "agent_loop")

    def asked(self) -> list[ApprovalRequested]:
        """Every request that got into the log: people may still hold the tokens of all of them."""
        return [record.event for record in self.log if isinstance(record.event, ApprovalRequested)]

    def decide(self, request: ApprovalRequested, *, granted: bool) -> None:
        """As the front end does: a valid token's decision is appended where the step was seen undecided, so it counts,
        and once."""
        token = request.payload.token
        if not self.is_valid(request.step_id, token):
            return
        attempt, kind = self.known().steps[request.step_id].attempts, ApprovalGranted if granted else ApprovalRejected
        before = self.run
        self.tell(kind(run_id=RUN_ID, step_id=request.step_id, timestamp=self.stamp(), attempt_number=attempt))
        assert self.run is not before, "a decision that the front end took counts"
        assert token not in self.decided, "a token is good for one decision"
        self.decided.append(token)

    def is_valid(self, step_id: str, token: str) -> bool:
        run, step = self.known(), self.known().steps[step_id]
        waits = (run.status, run.error, step.status) == (RunStatus.RUNNING, None, StepStatus.RUNNING)
        waits = waits and not (run.pause is not None and run.pause.decided(step_id))
        return waits and step.token == token_hash(token) and step.due is not None and self.broker.now < step.due

    def resume(self) -> None:
        """What was in the dead letters is tried again; it has no business there any more."""
        before, letters = self.known(), self.broker.last_letter
        # a takeover repeats what may not have been done: a dead letter that comes after the resumption stays
        self.late_letters |= any(isinstance(order, DeadLetterTask) for order in self.orders)
        self.tell(WorkflowResumed(run_id=RUN_ID, timestamp=self.stamp(), payload=Resumed(dead_letters=letters)))
        assert self.known().resumes == before.resumes + 1
        if self.performs and not self.refused and not self.late_letters:  # else they may still be there
            assert all(seq > letters for seq in self.broker.letters)

    def repeat(self, at: int) -> None:
        """Any event that once changed the run, repeated anywhere, changes nothing. Without its attempt's number an
        answer cannot be known as a repeat."""
        event, before = self.log[at].event, self.run
        applied = self.states[at] is not (self.states[at - 1] if at else None)
        if not is_numbered(event) or isinstance(event, APPENDED_ONCE) or not applied:
            return
        notices = self.append(event)  # a worker that has begun in vain is told so as often as it says that it has
        assert all(isinstance(one, CancelTask | ReleaseSlot) for one in notices)
        assert isinstance(event, LimitGranted | LimitRefused) or not only(ReleaseSlot, notices)
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
        """Once all orders are performed, the world holds every timer, task, question and skip that the run waits
        for."""
        run = self.run
        if run is None or self.orders:
            return
        if run.status is RunStatus.PENDING and run.error is not None:
            assert self.is_cancelled_soon()
        elif run.status is RunStatus.PENDING and run.pause is None and not self.ends_soon():
            assert self.is_asked(RUN)
        if run.status not in RUN_OPEN:
            return
        if run.compensation is not None:
            self.nothing_of_the_compensation_is_lost(run, run.compensation)
        elif not self.ends_soon():
            self.nothing_that_runs_is_lost(run)

    def nothing_of_the_compensation_is_lost(self, run: Run, state: Compensation) -> None:
        """The run waits for something that will come: a task, a timer, or its end."""
        assert [self.broker.timers.get(timer.timer) for timer in live_timers(run)] == live_timers(run)
        running = [step for step in run.steps.values() if step.handles is None and step.status is StepStatus.RUNNING]
        assert all(step.due is not None or step.items is not None for step in running)
        if state.outcome is not None:
            assert not state.awaited
            life = CANCELLED if state.ends is RunStatus.CANCELLED else run.resumes
            assert (life, state.outcome) in ends(self.all_ordered())
        elif state.undoing is None:
            assert state.awaited
        else:
            undoes = f"{state.undoing}.compensate"
            step = run.steps[undoes]
            assert step.due is not None or self.is_held(undoes) or self.is_out(undoes, step)

    def nothing_that_runs_is_lost(self, run: Run) -> None:
        assert [self.broker.timers.get(timer.timer) for timer in live_timers(run)] == live_timers(run)
        workflow = self.whole()
        for step_id, step in self.executed(run):
            waits = step.status is StepStatus.QUEUED and step.due is not None
            if step.status in STEP_OUT and not waits and not self.is_held(step_id):
                assert self.is_out(step_id, step)
            plan = workflow.steps.get(step_id)  # None: an element, which waits for others of its map
            if step.status is StepStatus.PENDING and plan is not None and is_ready(run, plan):
                assert any(
                    isinstance(event, StepSkipped) and event.step_id == step_id for event in self.broker.in_flight
                )

    def executed(self, run: Run) -> Iterator[tuple[str, StepState]]:
        """The steps, and in place of a map that has begun its elements."""
        for step_id, step in run.steps.items():
            if step.status is StepStatus.RUNNING and step.items is not None:
                assert step.items.out, "a map that runs has elements that are out"
                yield from ((item, run.step(item)) for item in (f"{step_id}.{n}" for n in range(step.items.total)))
            else:
                yield step_id, step

    def ends_soon(self) -> bool:
        """This life's end is ordered, or on its way without an order."""
        ordered = (self.known().resumes, None) in ends(self.all_ordered())
        return ordered or any(isinstance(event, WorkflowFailed) for event in self.broker.in_flight)

    def is_cancelled_soon(self) -> bool:
        """Whether the cancellation of a run that was refused is on its way."""
        return any(isinstance(event, WorkflowCancelled) for event in self.broker.in_flight)

    def is_out(self, step_id: str, step: StepState) -> bool:
        """Whether somebody can answer for the step. A worker that has begun may hold either copy of its task."""
        plan, outside = self.whole().plan_of(step_id), self.broker.outside
        assert plan is not None
        if step.wake_at is not None:
            return True
        if self.is_worked_out(step_id):
            return True
        if self.awaits(step_id) and step.status is StepStatus.QUEUED:
            return self.is_asked(step_id)
        if isinstance(plan.kind, ChildStep):
            return child_run_id(RUN_ID, step_id, step.attempts) in outside.living()
        if isinstance(plan.kind, WaitForEvent):
            return (step_id, step.attempts) in outside.waits
        if step_id in self.known().fragments:
            found = self.known().steps.items()
            return any(other.status in STEP_OUT for key, other in found if key.startswith(f"{step_id}."))
        if approval_of(plan) is None:
            execution = (step_id, step.iteration, step.attempts)
            tasks = [task for task in self.broker.tasks if (task.step_id, task.iteration, task.attempt) == execution]
            return any(step.status is StepStatus.RUNNING or task.worker == step.sticky for task in tasks)
        requests = self.asked() if step.status is StepStatus.RUNNING else self.broker.in_flight
        return any(isinstance(event, ApprovalRequested) and event.step_id == step_id for event in requests)

    def is_worked_out(self, step_id: str) -> bool:
        """Whether the engine's own event about a step is on its way."""
        return any(isinstance(event, WORKED_OUT) and event.step_id == step_id for event in self.broker.in_flight)

    @invariant()
    def nothing_goes_on_in_vain(self) -> None:
        """Once all orders are performed, no child lives whose parent does not wait for it, and no worker has a task of
        what was withdrawn."""
        run = self.run
        if run is None or self.orders or self.refused:
            return
        for child in self.broker.outside.neglected():
            step = run.step(child.step_id)
            assert (step.status in STEP_OUT, step.attempts) == (True, child.attempt)
        for task in self.broker.tasks:
            step = run.step(task.step_id)
            withdrawn = step.status is StepStatus.CANCELLED
            assert not withdrawn or (task.iteration, task.attempt) != (step.iteration, step.attempts)

    @invariant()
    def nothing_happens_twice(self) -> None:
        """Neither an order nor an end, nor the result of an execution."""
        commands = self.all_ordered()
        ordered = [
            one
            for run, found in zip(self.states, self.ordered, strict=True)
            for one in executions(found, 0 if run is None else run.pauses)
        ]
        assert len(set(ordered)) == len(ordered)
        assert len(set(ends(commands))) == len(ends(commands))
        assert len(set(self.results)) == len(self.results)

    def teardown(self) -> None:
        """When the world becomes fair, the run ends; and the log alone says how."""
        if self.run is None:
            return
        self.catch_up()
        if self.run.status is RunStatus.SCHEDULED:
            self.start()
        for life in range(LIVES_MAX):
            if life and self.is_resumable():
                self.resume()
            while not self.run.ended and self.go_on():
                assert len(self.log) < RECORDS_MAX, "it goes on and on"
            assert self.run.ended
        assert fold(self.workflow, None, self.log) == self.run
        self.check_compensation()
        for step_id, step in self.run.steps.items():
            found = step.status is not StepStatus.FAILED or self.is_kept(step_id, step)
            assert found or self.is_provided_for(step_id) or self.ended_before_it_went_on()
        if not self.refused:
            self.nothing_is_left()
            self.check_slots_are_back()

    def nothing_is_left(self) -> None:
        """Of a run that has ended, nobody waits for anything, works for it or is going to; its failures were answered,
        and its parent knows."""
        run, outside = self.known(), self.broker.outside
        out = executions(list(self.broker.tasks))
        assert self.withdrawn().isdisjoint(out)
        still_to_come = [timer for timer in self.broker.timers.values() if timer.due > self.broker.now]
        assert ({}, []) == (outside.waits, still_to_come)
        before = [None, *self.states]
        ended = [after for at, after in enumerate(self.states) if after is not before[at] and after is not None]
        failures = len({after.resumes for after in ended if after.status is RunStatus.FAILED})
        assert len(outside.failure_runs) == (failures if self.workflow.on_failure is not None else 0)
        assert run.parent is None or run.status.value in {report.payload.status for report in outside.reports}

    def go_on(self) -> bool:
        """One thing of those that happen in a fair world; False when there is none."""
        broker = self.broker
        if self.known().pause is not None:
            self.unpause_run(children=False)
        elif self.requests:
            self.let_in(next(iter(self.requests)))
        elif broker.timers and broker.timers[self.first_timer()].due <= broker.now:
            self.fire(self.first_timer())
        elif broker.tasks:
            task = broker.tasks[0]
            self.work(task, "continue" if self.endless and task.step_type == "agent_loop" else OUTPUTS[0], True, SMALL)
            broker.now += 3
        elif children := self.broker.outside.living():
            self.end_child(children[0], ENDS[0])
        elif any(self.look(wait) for wait in self.open_waits()):
            pass
        elif valid := [event for event in self.asked() if self.is_valid(event.step_id, event.payload.token)]:
            self.decide(valid[0], granted=True)
        elif waits := self.open_waits():
            broker.outside.occur(*broker.outside.wanted(waits[0]), broker.now)
        elif broker.timers:
            self.fire(self.first_timer())
        else:
            return False
        return True

    def open_waits(self) -> list[AwaitEvent]:
        """The waits of the run; the world may have others, of which the shell was to say that they are over."""
        found = [(wait, self.known().step(wait.step_id)) for wait in self.broker.outside.waits.values()]
        return [wait for wait, step in found if (step.status, step.attempts) == (StepStatus.RUNNING, wait.attempt)]

    def withdrawn(self) -> set[Execution]:
        """Executions that a bound worker was to have and shall not have any more."""
        orders = [command for command in self.all_ordered() if isinstance(command, WithdrawSticky)]
        return {(order.step_id, order.iteration, order.attempt, order.worker) for order in orders}

    def is_provided_for(self, step_id: str) -> bool:
        """Whether the handler of a failed step was at work when the run ended."""
        handler = self.known().steps.get(f"{step_id}.on_failure")
        return handler is not None and (
            handler.status is StepStatus.CANCELLED or self.is_kept(f"{step_id}.on_failure", handler)
        )

    def ended_before_it_went_on(self) -> bool:
        """Whether the run was resumed, and ended while it waited for its slots: its steps are as they had failed, and
        their dead letters were removed as it was resumed."""
        lives = [run for run in self.states if run is not None and not run.ended]
        return bool(lives) and lives[-1].resuming is not None

    def is_kept(self, step_id: str, step: StepState) -> bool:
        found = [
            (dead_letter.step_id, dead_letter.iteration, dead_letter.attempt)
            for dead_letter in self.broker.letters.values()
        ]
        of_items = any(found_id.startswith(f"{step_id}.") for found_id, _, _ in found)
        return (step_id, step.iteration, step.attempts) in found or (step.items is not None and of_items)


class WorldOfLimits(World):
    """One in which most tasks need slots before they begin."""

    @initialize(definition=limited(), later=st.booleans(), lands=st.booleans(), endless=st.booleans())
    def begin(self, definition: dict[str, object], later: bool, lands: bool, endless: bool) -> None:
        self.begin_with(definition, later, lands, endless)


TestWorld = World.TestCase
TestWorld.settings = settings(
    max_examples=EXAMPLES or 450,
    stateful_step_count=60,
    derandomize=not EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestWorldOfLimits = WorldOfLimits.TestCase
TestWorldOfLimits.settings = settings(TestWorld.settings, max_examples=EXAMPLES or 250)
