"""Reruns of runs of any definition that have ended anyhow: what was done is taken over, and the rest is carried out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from penstock.actors.runs.commands.takeovers import DONE_ELEMENTS, Ended, _event, _taken, _taken_element
from penstock.engine.run.advance import advance, fold
from penstock.engine.run.commands import Command, CompleteRun, TakeOver
from penstock.engine.run.control.pausing import BEGINS
from penstock.engine.run.control.rerunning import taken
from penstock.engine.run.event_payloads import Fragment, Started, TakenStep, Taking, TimerRef
from penstock.engine.run.events import Event, PlannerExpanded, Record, TimerFired, WorkflowStarted
from penstock.engine.run.execution.inputs import output_of
from penstock.engine.run.items import Items, ItemStatus
from penstock.engine.run.state import ITEM_STEP, STEP_OUT, Run, StepStatus, from_snapshot, to_snapshot
from penstock.engine.run.timers import workflow_timer_name
from penstock.testing.memory.payloads import whole
from tests.properties.definitions import definitions
from tests.properties.laws import executions
from tests.properties.test_advance_machine import ACTS, ANSWERS, EXAMPLES, NUMBERED, PICK, RECORDS_MAX, World
from tests.properties.world import RUN_ID, some

STORY = st.lists(st.tuples(ACTS, PICK, ANSWERS, NUMBERED, st.booleans()), max_size=30)
Definition: TypeAlias = dict[str, object]
Story: TypeAlias = list[tuple[str, int, str, bool, bool]]


def _examples(most: int) -> settings:
    return settings(
        max_examples=EXAMPLES or most,
        derandomize=not EXAMPLES,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )


class Rerun(World):
    """Repeats the run of another world. Its steps may begin with more attempts than one: the laws do not hold here."""

    def __init__(self, first: World, from_step: str) -> None:
        super().__init__()
        self.first, self.workflow = first, first.workflow
        self.broker.now = first.broker.now
        self.takes = taken(first.whole(), first.known(), from_step)

    def append(self, event: Event) -> list[Command]:
        self.broker.now += 0.001
        record = Record(len(self.log) * 3 + 1, self.broker.now, event)
        self.run, commands = advance(self.workflow, self.run, record)
        self.log.append(record)
        self.states.append(self.run)
        self.ordered.append(commands)
        self.orders += [command for command in commands if not isinstance(command, TakeOver)]
        return commands

    def begin_again(self) -> None:
        nothing = self.takes == Taking()
        payload = Started("w", "1", "digest", Raw(b'{"x":1}'), rerun_of=RUN_ID, takes=None if nothing else self.takes)
        self.tell(WorkflowStarted(run_id=RUN_ID, timestamp=self.stamp(), payload=payload, v=2))

    def take_over(self) -> Iterator[Event]:
        """As the shell does it: plans, parts, and what is done."""
        first = self.first.known()
        for step_id in first.fragments:
            if step_id in (*self.takes.done, *self.takes.parts):
                yield PlannerExpanded(
                    run_id=RUN_ID,
                    step_id=step_id,
                    timestamp=self.stamp(),
                    attempt_number=first.steps[step_id].attempts,
                    payload=Fragment(first.fragments[step_id]),
                )
        for step_id in self.takes.parts:
            step = first.steps[step_id]
            part = TakenStep(StepStatus.RUNNING, attempts=step.attempts, started_at=step.started_at)
            if step.items is not None:
                yield from self._elements(step_id, step.items, frozenset({ItemStatus.COMPLETED}))
                part = TakenStep(StepStatus.PENDING, items=step.items.total)
            yield _event(first, step_id, part, step.worker_id)
        for step_id in self.takes.done:
            yield from self._done(first, step_id)

    def _done(self, first: Run, step_id: str) -> Iterator[Event]:
        step = first.steps[step_id]
        if step.status is StepStatus.COMPLETED and not step.overridden and step.items is not None:
            yield from self._elements(step_id, step.items, DONE_ELEMENTS)
            yield _event(first, step_id, _taken(step, UNSET, step.items.total), step.worker_id)
            return
        none = step.parts or (step.output is UNSET and step.output_at is None)
        output = UNSET if none else whole(output_of(first, step_id), self.first.at)
        yield _event(first, step_id, _taken(step, output), step.worker_id)

    def _elements(self, map_id: str, items: Items, wanted: frozenset[ItemStatus]) -> Iterator[Event]:
        for number, element in items.numbered():
            if element.status in wanted:
                begun = self.first.at(element.begun) if element.begun else None
                seq = element.begun + element.ended
                ended = Ended(number, begun, Record(seq, 0.0, self.first.at(seq)))
                part = _taken_element(ended, ITEM_STEP[element.status], element.attempts, items.total)
                yield _event(self.first.known(), f"{map_id}.{number}", part, None, number)


@given(definitions(), STORY, PICK, PICK)
@_examples(120)
def test_a_rerun_takes_over_what_was_done_and_carries_out_the_rest(
    definition: Definition, story: Story, pick: int, cut: int
) -> None:
    first, again, events = _taking_over(definition, story, pick)
    for event in [*events[: cut % (len(events) + 1)], *events]:  # whoever took them over died, and another one does
        again.tell(event)
    assert again.known().taking is None
    _check_taken(first, again)
    while not again.known().ended and again.go_on():
        assert len(again.log) < RECORDS_MAX, "it goes on and on"
    run = again.known()
    assert run.ended
    assert fold(again.workflow, None, again.log) == run == from_snapshot(to_snapshot(run))
    begun = {execution[0] for execution in executions(again.all_ordered())}
    assert begun.isdisjoint(again.takes.done), "what was taken over is not carried out again"


@given(definitions().map(lambda found: {**found, "timeout": "1h"}), STORY, PICK, PICK)
@_examples(60)
def test_a_rerun_whose_time_is_over_while_it_takes_over_begins_nothing(
    definition: Definition, story: Story, pick: int, cut: int
) -> None:
    _, again, events = _taking_over(definition, story, pick)
    assume(events)
    at = cut % len(events)
    for event in events[:at]:
        again.tell(event)
    assert again.known().taking is not None
    timer = TimerRef(workflow_timer_name(again.known()))
    again.append(TimerFired(run_id=RUN_ID, timestamp=again.stamp(), payload=timer))  # workflow.failed is on its way
    assume(again.known().compensation is None)
    assert again.known().failing
    ordered = [command for event in events[at:] for command in again.append(event)]
    assert [] == [one for one in ordered if isinstance(one, (*BEGINS, CompleteRun))]
    out = {step_id for step_id, step in again.known().steps.items() if step.status in STEP_OUT}
    assert out <= set(again.takes.parts)


def _check_taken(first: World, again: Rerun) -> None:
    """What was taken over is as it was, and its outputs are."""
    for step_id in again.takes.done:
        before, after = first.known().steps[step_id], again.known().steps[step_id]
        assert (before.status, before.attempts, before.error) == (after.status, after.attempts, after.error)
        if before.output is not UNSET or before.output_at is not None or before.items is not None:
            outputs = [whole(output_of(one.known(), step_id), one.at) for one in (first, again)]
            assert bytes(outputs[0]) == bytes(outputs[1])


def _taking_over(definition: Definition, story: Story, pick: int) -> tuple[World, Rerun, list[Event]]:
    """A run that has ended, its rerun from some step, which has begun, and the events that take steps over."""
    first = _ended(definition, story)
    assume(first.known().compensation is None)
    again = Rerun(first, some(list(first.whole().steps), pick))
    again.begin_again()
    return first, again, list(again.take_over())


def _ended(definition: Definition, story: Story) -> World:
    """A world whose run has ended, after this story and whatever followed in a fair world."""
    world = World()
    world.begin(definition, later=False, lands=True, endless=False)
    for act, pick, answer, numbered, lost in story:
        world.act(act=act, pick=pick, answer=answer, numbered=numbered, lost=lost)
    world.catch_up()
    while not world.known().ended and world.go_on():
        assert len(world.log) < RECORDS_MAX, "it goes on and on"
    return world
