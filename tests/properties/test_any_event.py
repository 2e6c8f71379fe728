"""`advance` is total: events that no sane world would send, in any order, break none of the laws."""

from __future__ import annotations

import os

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from penstock.engine.commands import Command
from penstock.engine.events import (
    ApprovalGranted,
    Event,
    Failure,
    Record,
    Scheduled,
    SignalReceived,
    SignalRef,
    Started,
    StepCompleted,
    StepContinue,
    StepFailed,
    StepSkipped,
    StepStarted,
    TimerFired,
    TimerRef,
    WorkflowCancelled,
    WorkflowCompleted,
    WorkflowFailed,
    WorkflowScheduled,
    WorkflowStarted,
)
from penstock.engine.state import Run, from_snapshot, to_snapshot
from tests.properties.laws import STEPS_MAX, compiled, definitions, ends, executions, lawful

EXAMPLES = int(os.environ.get("PROPERTY_EXAMPLES", "0"))

GO = SignalRef(name="go")
STEP_IDS = st.sampled_from([f"s{number}" for number in range(STEPS_MAX)] + ["unknown"])
NUMBERS = st.sampled_from([None, 1, 2, 3, 0, -1])
OUTPUTS = st.sampled_from([UNSET, Raw(b"null"), Raw(b'{"x":1}'), Raw(b'{"x":1e999}'), Raw(b"[" * 1100 + b"]" * 1100)])
TIMERS = st.just("workflow") | st.builds("{}.{}".format, st.sampled_from(["timeout", "retry", "approval"]), STEP_IDS) | st.text(max_size=3)
WORDS = st.sampled_from(["retriable", "non_retriable", "retry_after", ""])

REST = {"run_id": st.just("r"), "timestamp": st.sampled_from(["", "2026-01-02T03:04:05Z"])}
STEP = {**REST, "step_id": STEP_IDS, "attempt_number": NUMBERS, "iteration": st.sampled_from([None, 0, 1])}
REF = {"workflow": st.just("w"), "version": st.just("1"), "digest": st.just("digest")}

EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(WorkflowStarted, payload=st.builds(Started, **REF), **REST),
    st.builds(WorkflowScheduled, payload=st.builds(Scheduled, run_at=st.text(max_size=3), **REF), **REST),
    st.builds(StepStarted, **STEP),
    st.builds(StepCompleted, payload=OUTPUTS, **STEP),
    st.builds(StepCompleted, step_id=STEP_IDS, payload=OUTPUTS, **REST),
    st.builds(StepFailed, payload=st.builds(Failure, failure_type=WORDS, retry_after_ms=st.integers()), **STEP),
    st.builds(StepSkipped, **STEP),
    st.builds(TimerFired, payload=st.builds(TimerRef, timer=TIMERS, step_id=st.none() | STEP_IDS, attempt=NUMBERS), **REST),
    st.builds(WorkflowCompleted, **REST),
    st.builds(StepContinue, **STEP)
    | st.builds(ApprovalGranted, **STEP)
    | st.builds(SignalReceived, payload=st.just(SignalRef("go")), **REST),
)
ENDS: st.SearchStrategy[Event] = st.one_of(st.builds(WorkflowCancelled, **REST), st.builds(WorkflowFailed, **REST))
FEW = st.lists(EVENTS, max_size=3)
START = WorkflowStarted(run_id="r", payload=Started(workflow="w", version="1", digest="digest"))


@settings(max_examples=EXAMPLES or 200, derandomize=not EXAMPLES, deadline=None)
@given(definition=definitions(), before=FEW, events=st.lists(EVENTS, min_size=30, max_size=60), end=st.lists(ENDS, max_size=1), tail=FEW)
def test_no_event_breaks_the_laws(
    definition: dict[str, object], before: list[Event], events: list[Event], end: list[Event], tail: list[Event]
) -> None:
    workflow = compiled(definition)
    run: Run | None = None
    ordered: list[Command] = []
    for seq, event in enumerate([*before, START, *events, *end, *tail], start=1):
        run, commands = lawful(workflow, run, Record(seq, 1000.0 + seq, event))
        ordered += commands
    assert len(set(executions(ordered))) == len(executions(ordered))
    assert ends(ordered) <= 1
    assert run is None or from_snapshot(to_snapshot(run)) == run
