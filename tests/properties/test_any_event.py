"""`advance` is total: events that no sane world would send, in any order, break none of the laws."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from penstock.engine.run.commands import Command
from penstock.engine.run.event_payloads import (
    ApprovalRequest,
    ChildEnd,
    Compensating,
    Completed,
    Correlation,
    Decision,
    Failure,
    Fragment,
    Override,
    ParentRef,
    PauseScope,
    ReceivedEvent,
    Reply,
    Resumed,
    RunFailure,
    Scheduled,
    SignalRef,
    SlotGrant,
    SlotRefusal,
    Started,
    StepFacts,
    TakenStep,
    TimerRef,
)
from penstock.engine.run.events import (
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRejected,
    ApprovalRequested,
    ChildEnded,
    Event,
    EventReceived,
    LimitGranted,
    LimitRefused,
    PlannerExpanded,
    Record,
    SignalReceived,
    StepCompleted,
    StepContinue,
    StepFailed,
    StepOverridden,
    StepPaused,
    StepSkipped,
    StepStarted,
    StepTakenOver,
    TimerFired,
    WorkflowCancelled,
    WorkflowCompensating,
    WorkflowCompleted,
    WorkflowFailed,
    WorkflowPaused,
    WorkflowRemoved,
    WorkflowResumed,
    WorkflowScheduled,
    WorkflowStarted,
    WorkflowUnpaused,
)
from penstock.engine.run.execution.children import child_run_id
from penstock.engine.run.state import Run, from_snapshot, to_snapshot
from tests.properties.definitions import STEPS_MAX, VALID_PLANS, compiled, definitions, limited, steps_of
from tests.properties.laws import PERSON, Result, ends, executions, lawful, result
from tests.properties.outside import ENDS

EXAMPLES = int(os.environ.get("PROPERTY_EXAMPLES", "0"))

GO = SignalRef(name="go")
INNER = ("0", "1", "a", "m", "m.0", "q", "q.a", "w", "99999")  # elements, and steps of PLANS
STEP_IDS = st.sampled_from(
    [f"s{number}" for number in range(STEPS_MAX)] * 2
    + ["unknown", "s0.on_failure", "s1.on_failure", "s0.compensate", "s1.0.compensate"]
    + [*(f"s{n}.{rest}" for n in range(3) for rest in INNER)]
)
NUMBERS = st.sampled_from([None, 1, 2, 3, 0, -1])
DELIVERIES = st.sampled_from([1, 2, 3, 0, -1])
OUTPUTS = st.sampled_from([UNSET, Raw(b"null"), Raw(b'{"x":1}'), Raw(b'{"x":1e999}'), Raw(b"[" * 1100 + b"]" * 1100)])
KINDS = st.sampled_from(["timeout", "retry", "approval", "loop", "sticky", "lost", "sleep", "wait"])
TIMERS = st.one_of(
    st.just("workflow"),
    st.builds("{}.{}".format, KINDS, STEP_IDS),
    st.builds("{}.{}~{}".format, KINDS, STEP_IDS, st.integers(0, 3)),
    st.text(max_size=3),
)
PARENTS = st.sampled_from([None, "p", ParentRef("p", "c", 2, 7)])
LIVES = st.sampled_from([0, 1, 2])  # how often a run was resumed before
WORDS = st.sampled_from(["retriable", "non_retriable", "retry_after", ""])

REST = {"run_id": st.just("r"), "timestamp": st.sampled_from(["", "2026-01-02T03:04:05Z"])}
STEP = {
    **REST,
    "step_id": STEP_IDS,
    "attempt_number": NUMBERS,
    "iteration": st.sampled_from([None, 0, 1, 2]),
    "worker_id": st.sampled_from([None, "w", "", "a b"]),
}
TIMES = st.sampled_from([None, "2026-01-02T03:04:05Z", "1970-01-01T00:16:50Z"])
FACTS = st.sampled_from(
    [
        StepFacts(wake_at="2026-01-02T03:04:05Z"),
        StepFacts(items=2),
        StepFacts(items=0),
        StepFacts(child_run_id="x"),
        StepFacts(reply=Reply(201, {"x": "y"}, Raw(b'{"x":1}'))),
        StepFacts(event="e", correlate=Correlation("x", Raw(b"1")), since="2026-01-02T03:04:05Z"),
        StepFacts(),
    ]
)
FRAGMENTS = st.sampled_from([Raw(b"[]"), *map(steps_of, VALID_PLANS)])
REF = {"workflow": st.just("w"), "version": st.just("1"), "digest": st.just("digest")}

STEP_ALONE = {**REST, "step_id": STEP_IDS, "attempt_number": NUMBERS}
NUMBERS_OF_EVENTS = st.sampled_from([1, 2, 3])


def _child_ended(step_id: str, attempt: int, how: str) -> ChildEnded:
    """The end of the child that the attempt would have."""
    child = child_run_id("r", step_id, attempt)
    end = ChildEnd(child, how, Raw(b'{"x":1}') if how == "completed" else UNSET, error="boom")
    return ChildEnded(run_id="r", step_id=step_id, attempt_number=attempt, payload=end)


def _granted(step_id: str | None, attempt: int, kind: str, scope: str | None) -> LimitGranted:
    """A slot of any kind, mostly for somebody who may want it."""
    holder = f"r.{attempt - 1}" if step_id is None else f"r.{step_id}.0.{attempt}"
    own = "w" if step_id is None else f"w.{step_id}"
    grant = SlotGrant(holder, f"{kind}.{scope}", kind, scope or own, step_id=step_id, inherited=scope == "above")
    return LimitGranted(run_id="r", payload=grant)


GRANTED = st.builds(
    _granted,
    st.sampled_from([None, "s0", "s1", "s2", "s0.0", "s0.1"]),
    st.sampled_from([1, 1, 2]),
    st.sampled_from(["runs", "executions", "executions", "rate"]),
    st.sampled_from([None, "a", "b", "above"]),
)
REFUSALS = st.builds(SlotRefusal, st.sampled_from(["r.0", "r.1", "x"]), st.just("runs.None"), st.just("limit"))

SCOPES = st.builds(PauseScope, children=st.booleans())
OUTPUTS_BY_HAND = st.sampled_from([Raw(b"null"), Raw(b'{"x":1}')])
TAKEN = st.sampled_from(["completed", "skipped", "recovered", "failed", "pending", "running", ""])

EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(WorkflowStarted, payload=st.builds(Started, parent=PARENTS, **REF), **REST),
    st.builds(WorkflowScheduled, payload=st.builds(Scheduled, run_at=st.text(max_size=3), **REF), **REST),
    st.builds(StepStarted, delivery=DELIVERIES, **STEP) | st.builds(StepPaused, delivery=DELIVERIES, **STEP),
    st.builds(StepCompleted, payload=OUTPUTS, **STEP),
    st.builds(StepCompleted, step_id=STEP_IDS, payload=OUTPUTS, **REST),
    st.builds(StepFailed, payload=st.builds(Failure, failure_type=WORDS, retry_after_ms=st.integers()), **STEP),
    st.builds(StepSkipped, **STEP),
    st.builds(StepStarted, payload=FACTS, **STEP_ALONE) | st.builds(StepStarted, payload=FACTS, **STEP_ALONE),
    st.builds(_child_ended, STEP_IDS, st.sampled_from([1, 2]), st.sampled_from(ENDS)),
    st.builds(ChildEnded, payload=st.builds(ChildEnd, run_id=WORDS, status=WORDS), **STEP),
    st.builds(EventReceived, payload=st.builds(ReceivedEvent, event=st.just("e"), seq=NUMBERS_OF_EVENTS), **STEP_ALONE),
    st.builds(PlannerExpanded, payload=st.builds(Fragment, FRAGMENTS), **STEP_ALONE),
    st.builds(
        TimerFired, payload=st.builds(TimerRef, timer=TIMERS, step_id=st.none() | STEP_IDS, attempt=NUMBERS), **REST
    ),
    st.builds(WorkflowCompensating, payload=st.builds(Compensating, steps=st.just(("s0",))), **REST),
    st.builds(WorkflowCompleted, payload=st.builds(Completed, resumes=LIVES), **REST)
    | st.builds(WorkflowResumed, **REST),
    st.builds(WorkflowFailed, payload=st.builds(RunFailure, resumes=LIVES), **REST),
    st.builds(StepContinue, payload=OUTPUTS, **STEP)
    | st.builds(StepContinue, step_id=STEP_IDS, payload=OUTPUTS, **REST),
    st.builds(
        ApprovalRequested,
        payload=st.builds(ApprovalRequest, token=st.sampled_from(["t", ""]), expires_at=st.just("x")),
        **STEP,
    ),
    st.builds(ApprovalGranted, payload=st.builds(Decision, comment=st.none() | st.text(max_size=3)), **STEP),
    st.builds(ApprovalRejected, **STEP) | st.builds(ApprovalExpired, **STEP),
    st.builds(WorkflowPaused, payload=SCOPES, **REST) | st.builds(WorkflowUnpaused, payload=SCOPES, **REST),
    st.builds(StepOverridden, payload=st.builds(Override, OUTPUTS_BY_HAND, by=st.none() | WORDS), **STEP_ALONE),
    st.builds(StepTakenOver, payload=st.builds(TakenStep, status=TAKEN), **STEP_ALONE),
    st.builds(WorkflowResumed, payload=st.builds(Resumed, dead_letters=st.sampled_from([0, 1, 7, -1])), **REST)
    | st.builds(SignalReceived, payload=st.just(SignalRef("go")), **REST),
    GRANTED | GRANTED | GRANTED | st.builds(LimitRefused, payload=REFUSALS, **REST),
    GRANTED,
)
ENDS: st.SearchStrategy[Event] = st.builds(WorkflowCancelled, **REST) | st.builds(WorkflowRemoved, **REST)
FEW = st.lists(EVENTS, max_size=3)
START = WorkflowStarted(run_id="r", payload=Started(workflow="w", version="1", digest="digest"))


def test_the_events_are_of_every_type() -> None:
    found = re.findall(r"builds\(\s*(\w+),", Path(__file__).read_text())
    found += [LimitGranted.__name__]  # by _granted
    assert {kind.__name__ for kind in get_args(Event)} == set(found) & {kind.__name__ for kind in get_args(Event)}


def pauses(*events: list[Event]) -> bool:
    """Whether the run may go on after a pause: a decision that was not asked for yet is then ordered again."""
    return any(isinstance(event, WorkflowUnpaused) for some in events for event in some)


@settings(max_examples=EXAMPLES or 200, derandomize=not EXAMPLES, deadline=None)
@given(
    definition=definitions() | limited(),
    before=FEW,
    events=st.lists(EVENTS, min_size=30, max_size=60),
    end=st.lists(ENDS, max_size=1),
    tail=FEW,
)
def test_no_event_breaks_the_laws(
    definition: dict[str, object], before: list[Event], events: list[Event], end: list[Event], tail: list[Event]
) -> None:
    workflow = compiled(definition)
    run: Run | None = None
    ordered: list[Command] = []
    results: list[Result] = []
    for seq, event in enumerate([*before, START, *events, *end, *tail], start=1):
        before_it, record = run, Record(seq, 1000.0 + seq, event)
        run, commands = lawful(workflow, before_it, record)
        ordered += commands
        results += [found for found in [result(before_it, run, record)] if found is not None]
    once = [one for one in executions(ordered) if not (one[3] == PERSON and pauses(before, events, tail))]
    assert len(set(once)) == len(once)
    assert len(set(ends(ordered))) == len(ends(ordered))
    assert len(set(results)) == len(results)
    assert run is None or from_snapshot(to_snapshot(run)) == run
