"""Strategies for Hypothesis: definitions of workflows, and what happens to their runs. Needs `penstock[hypothesis]`.

@given(st.data())
def test_any_workflow_comes_to_an_end(data):
    definition = data.draw(definitions(tasks=["t"]))
    with TestService(definition, tasks={"t": lambda value: value}) as service:
        run = service.start("w")
        for event in data.draw(events(definition)):
            event.happen(service, run)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any

from msgspec import Struct

from penstock.engine.errors import Conflict, Invalid, NotFound
from penstock.testing.run import TestRun
from penstock.testing.service import TestService

try:
    from hypothesis import strategies as st
except ImportError as error:  # pragma: no cover - tests have it
    raise ImportError("penstock.testing.strategies needs Hypothesis: pip install penstock[hypothesis]") from error

STEPS_MAX, EVENTS_MAX = 7, 12
KINDS = ("task", "task", "task", "map", "sleep", "approval", "wait_for_event", "respond")
DURATIONS = ("1s", "30s", "10m", "6h")


class EventKind(StrEnum):
    """What happens to a run, or to a step of it."""

    FAIL = "fail"
    LOSE = "lose"
    LOSE_AFTER_CALL = "lose_after_call"
    DELAY = "delay"
    DUPLICATE = "duplicate"
    APPROVE = "approve"
    REJECT = "reject"
    SEND_EVENT = "send_event"
    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    RETRY = "retry"
    ADVANCE = "advance"


OF_TASKS = (EventKind.FAIL, EventKind.LOSE, EventKind.LOSE_AFTER_CALL, EventKind.DELAY, EventKind.DUPLICATE)
OF_RUNS = (EventKind.PAUSE, EventKind.RESUME, EventKind.RESUME, EventKind.CANCEL, EventKind.RETRY)


class OutsideEvent(Struct, frozen=True):
    """Something that happens to a run from outside. `step` is the id of the step that it concerns, `name` and `body`
    are those of an event that is sent, `duration` is how long something takes."""

    kind: EventKind
    step: str = ""
    name: str = ""
    body: Any = None
    duration: str = "1s"

    def happen(self, service: TestService, run: TestRun) -> None:
        """Let it happen to the run now, or as soon as its step is carried out. Nothing happens where the run, as it is
        now, does not allow it: one that has ended is not paused."""
        with suppress(Conflict, NotFound, Invalid):
            _HAPPEN[self.kind](self, service, run)


_HAPPEN: Mapping[EventKind, Callable[[OutsideEvent, TestService, TestRun], object]] = {
    EventKind.FAIL: lambda event, service, run: service.fail(event.step),
    EventKind.LOSE: lambda event, service, run: service.lose(event.step),
    EventKind.LOSE_AFTER_CALL: lambda event, service, run: service.lose(event.step, after_call=True),
    EventKind.DELAY: lambda event, service, run: service.delay(event.step, event.duration, times=1),
    EventKind.DUPLICATE: lambda event, service, run: service.duplicate(event.step),
    EventKind.APPROVE: lambda event, service, run: run.approve(event.step),
    EventKind.REJECT: lambda event, service, run: run.reject(event.step),
    EventKind.SEND_EVENT: lambda event, service, run: service.send_event(event.name, event.body),
    EventKind.PAUSE: lambda event, service, run: run.pause(),
    EventKind.RESUME: lambda event, service, run: run.resume(),
    EventKind.CANCEL: lambda event, service, run: run.cancel(),
    EventKind.RETRY: lambda event, service, run: run.retry(),
    EventKind.ADVANCE: lambda event, service, run: service.advance(event.duration),
}


@st.composite
def definitions(
    draw: st.DrawFn, tasks: Sequence[str] = ("t",), *, name: str = "w", steps_max: int = STEPS_MAX
) -> dict[str, Any]:
    """Valid definitions of up to `steps_max` steps in any shape without a circle, whose steps need these task types
    only. All that waits has a timeout: with time, every run ends."""
    steps: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, steps_max))):
        before = [str(step["id"]) for step in steps]
        depends_on: list[str] = draw(st.lists(st.sampled_from(before), unique=True, max_size=3)) if before else []
        step = {"id": f"s{number}", "depends_on": depends_on, **draw(_fields(tuple(tasks)))}
        conditional = draw(st.booleans())
        if conditional and depends_on:
            step["when"] = f'steps.{draw(st.sampled_from(depends_on))}.status == "completed"'
        steps.append(step)
    return {"name": name, "steps": steps}


@st.composite
def _fields(draw: st.DrawFn, tasks: tuple[str, ...]) -> dict[str, Any]:
    """What a step says, whatever it depends on."""
    duration = draw(st.sampled_from(DURATIONS))
    match kind := draw(st.sampled_from(KINDS)):
        case "sleep":
            return {"type": kind, "config": {"duration": duration}}
        case "approval":
            return {"type": kind, "config": {"timeout": duration}}
        case "wait_for_event":
            goes_on = draw(st.sampled_from(["continue", "fail"]))
            event = draw(st.sampled_from(["a.happened", "b.happened"]))
            return {"type": kind, "config": {"event": event, "timeout": duration, "on_timeout": goes_on}}
        case "respond":
            return {"type": kind, "config": {"body": "${{ input }}"}}
    retry = {"max_attempts": draw(st.integers(0, 2)), "strategy": "fixed", "initial_delay": duration}
    field: dict[str, Any] = {"task": draw(st.sampled_from(tasks)), "retry": retry}
    if draw(st.booleans()):
        field["timeout"] = draw(st.sampled_from(DURATIONS))
    if kind == "map":
        field |= {"type": "map", "config": {"items": draw(st.lists(st.integers(0, 9), max_size=4))}}
    return field


def events(
    definition: Mapping[str, Any], *, bodies: st.SearchStrategy[Any] | None = None, events_max: int = EVENTS_MAX
) -> st.SearchStrategy[list[OutsideEvent]]:
    """What happens to a run of this definition, in this order, with time in between: workers fail, die, are late or
    carry a task out twice, people decide, pause, resume, cancel and retry, and events come that steps wait for.

    `bodies` are the bodies of events: numbers, if nothing is said.
    """
    steps = definition["steps"]
    tasks = [step["id"] for step in steps if "task" in step]
    approvals = [step["id"] for step in steps if step.get("type") == "approval"]
    names = [step["config"]["event"] for step in steps if step.get("type") == "wait_for_event"]
    durations = st.sampled_from(DURATIONS)
    kinds = [
        st.builds(OutsideEvent, st.just(EventKind.ADVANCE), duration=durations),
        st.builds(OutsideEvent, st.sampled_from(OF_RUNS)),
    ]
    if tasks:
        kinds.append(
            st.builds(OutsideEvent, st.sampled_from(OF_TASKS), step=st.sampled_from(tasks), duration=durations)
        )
    if approvals:
        decisions = st.sampled_from([EventKind.APPROVE, EventKind.REJECT])
        kinds.append(st.builds(OutsideEvent, decisions, step=st.sampled_from(approvals)))
    if names:
        body = st.integers(0, 9) if bodies is None else bodies
        kinds.append(st.builds(OutsideEvent, st.just(EventKind.SEND_EVENT), name=st.sampled_from(names), body=body))
    return st.lists(st.one_of(kinds), max_size=events_max)
