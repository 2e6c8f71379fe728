"""The run index ends where `advance` does: whatever is in the log, and whoever has written it."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.actors.index.rows import MOVES, PAUSED_TEXT, Change, Row, State, fold, pause_texts
from penstock.engine.run.advance import advance
from penstock.engine.run.commands import AppendEvent, Command, CompleteRun
from penstock.engine.run.event_payloads import (
    Cancellation,
    Failure,
    Resumed,
    RunFailure,
    Scheduled,
    SlotGrant,
    SlotRefusal,
    Started,
)
from penstock.engine.run.events import (
    Event,
    LimitGranted,
    LimitRefused,
    Record,
    StepCompleted,
    StepFailed,
    WorkflowCancelled,
    WorkflowCompensating,
    WorkflowCompleted,
    WorkflowFailed,
    WorkflowPaused,
    WorkflowResumed,
    WorkflowScheduled,
    WorkflowStarted,
    WorkflowUnpaused,
)
from penstock.engine.run.execution.compensation import can_undo
from penstock.engine.run.state import RUN_ENDED, RUN_MOVES, Run, RunStatus
from penstock.engine.run.workflow import Workflow
from tests.engine.build import DIGEST, EPOCH, RUN_ID, step, workflow

EXAMPLES = int(os.environ.get("PROPERTY_EXAMPLES", "0"))
WORKFLOW = workflow(step("a"), step("b", "a"))
UNDOABLE = workflow(step("a", compensate={"task": "UNDO"}), step("b", "a"))

STARTED = WorkflowStarted(run_id=RUN_ID, payload=Started(workflow="w", version="1", digest=DIGEST))
SCHEDULED = WorkflowScheduled(
    run_id=RUN_ID, payload=Scheduled(workflow="w", version="1", digest=DIGEST, run_at="2030-01-01T00:00:00Z")
)
COMPLETED, CANCELLED, RESUMED = (
    WorkflowCompleted(run_id=RUN_ID),
    WorkflowCancelled(run_id=RUN_ID),
    WorkflowResumed(run_id=RUN_ID),
)
DONE = [StepCompleted(run_id=RUN_ID, step_id=step_id) for step_id in "ab"]
REFUSED = StepFailed(run_id=RUN_ID, step_id="a", payload=Failure(error="x", failure_type="non_retriable"))
FAILED_B = StepFailed(run_id=RUN_ID, step_id="b", payload=Failure(error="x", failure_type="non_retriable"))
ENDS = (WorkflowCompleted, WorkflowFailed, WorkflowCancelled, WorkflowCompensating)
FAILED = [WorkflowFailed(run_id=RUN_ID, payload=RunFailure(error="x", resumes=resumes)) for resumes in range(3)]

CALLED_OFF = WorkflowCancelled(run_id=RUN_ID, payload=Cancellation(compensate=True))
UNDONE = StepCompleted(run_id=RUN_ID, step_id="a.compensate")
COMPENSATING = WorkflowCompensating(run_id=RUN_ID)

PAUSED, UNPAUSED = WorkflowPaused(run_id=RUN_ID), WorkflowUnpaused(run_id=RUN_ID)

ONE_LIMIT = workflow(step("a"), step("b", "a"), concurrency=[{"limit": 1}])
TWO_LIMITS = workflow(step("a"), step("b", "a"), concurrency=[{"limit": 1}], rate_limit=[{"limit": 1, "per": "1s"}])
HOLDERS = [f"{RUN_ID}.{resumes}{again}" for resumes in range(2) for again in ("", "+1")]
GRANTED = [LimitGranted(run_id=RUN_ID, payload=SlotGrant(holder, "l", "runs", "w")) for holder in HOLDERS]
FIRST = [LimitGranted(run_id=RUN_ID, payload=replace(one.payload, more=1)) for one in GRANTED]  # of two
TOKEN = [LimitGranted(run_id=RUN_ID, payload=SlotGrant(holder, "r", "rate", "w")) for holder in HOLDERS]
NOT_LET = LimitRefused(run_id=RUN_ID, payload=SlotRefusal(HOLDERS[0], "l", "limit"))

ENDINGS = [COMPLETED, CANCELLED, RESUMED, *FAILED, CALLED_OFF, COMPENSATING]
LOG = [STARTED, SCHEDULED, *ENDINGS, *DONE, REFUSED, UNDONE, PAUSED, UNPAUSED]
# What is appended next: an event by anybody, or (a number) one of the ends that the owner has ordered so far: in time,
# late, or again.
EVENTS = st.lists(st.sampled_from(LOG) | st.integers(0, 3), max_size=14)
RESUMED_LATER = [WorkflowResumed(run_id=RUN_ID, payload=Resumed(waits=waits)) for waits in (1, 2)]
LIMITED_LOG = [None, *LOG[1:], *GRANTED, *TOKEN, *RESUMED_LATER, NOT_LET]
WITH_LIMITS = st.lists(st.sampled_from(LIMITED_LOG) | st.integers(0, 3), max_size=14)


@settings(max_examples=EXAMPLES or 300)
@given(st.sampled_from([WORKFLOW, UNDOABLE]), st.sampled_from([STARTED, SCHEDULED]), EVENTS, st.integers(0, 15))
@example(WORKFLOW, STARTED, [REFUSED, FAILED[0], RESUMED, 0, *DONE, 1], 0)
@example(WORKFLOW, STARTED, [REFUSED, FAILED[0], RESUMED, 0], 4)
@example(WORKFLOW, STARTED, [COMPLETED], 0)
@example(WORKFLOW, STARTED, [FAILED[2], CANCELLED, RESUMED], 0)
@example(WORKFLOW, STARTED, [*DONE, 0, CANCELLED], 0)
@example(WORKFLOW, STARTED, [REFUSED, 0, RESUMED, RESUMED, FAILED[1], RESUMED, FAILED[2], RESUMED], 0)
@example(UNDOABLE, STARTED, [DONE[0], CALLED_OFF, 0, CANCELLED, UNDONE, 1, RESUMED], 0)
@example(UNDOABLE, STARTED, [DONE[0], FAILED[0], CANCELLED, 0], 0)
@example(UNDOABLE, STARTED, [CALLED_OFF, COMPENSATING], 0)
@example(UNDOABLE, STARTED, [DONE[0], FAILED_B, 0, PAUSED, COMPENSATING, 1], 0)
@example(UNDOABLE, STARTED, [DONE[0], PAUSED, CALLED_OFF, 0], 0)
@example(WORKFLOW, SCHEDULED, [PAUSED, STARTED, UNPAUSED], 0)
@example(WORKFLOW, SCHEDULED, [PAUSED, STARTED, CANCELLED], 0)
@example(WORKFLOW, STARTED, [COMPLETED, PAUSED], 0)
@example(WORKFLOW, STARTED, [PAUSED, REFUSED, 0, RESUMED], 0)
def test_the_index_ends_where_the_engine_does(
    definition: Workflow, first: Event, events: list[Event | int], lost: int
) -> None:
    _check_the_end(definition, first, events, lost)


def _check_the_end(definition: Workflow, first: Event, events: Sequence[Event | int], lost: int) -> None:
    """`lost`: the index begins with a snapshot of so many events, and the log's events may come all the same."""
    log, runs = _history([first, *events], definition)
    row: Row | None = None
    if lost and (known := runs[min(lost, len(runs)) - 1]) is not None:
        row = _next(row, Row(RUN_ID, "w", known.status, 0, confirmed=known.seq, labels=pause_texts(known.pause)))
    for number, (event, folded) in enumerate(log, start=1):
        if type(event) in MOVES:
            row = _next(row, _change(event, number, folded))
    assert row is not None
    last = runs[-1]
    if row.unconfirmed:
        row = _next(row, State(RUN_ID, last.status, last.seq, len(runs), pause_texts(last.pause)))
    assert (last.status, False, last.pause is not None) == (row.status, row.unconfirmed, PAUSED_TEXT in row.labels)


@settings(max_examples=EXAMPLES or 300)
@given(st.sampled_from([ONE_LIMIT, TWO_LIMITS]), st.booleans(), WITH_LIMITS, st.integers(0, 15))
@example(TWO_LIMITS, False, [GRANTED[0]], 0)
@example(ONE_LIMIT, False, [PAUSED, UNPAUSED, GRANTED[0]], 0)
@example(ONE_LIMIT, False, [GRANTED[0], REFUSED, 0, RESUMED, GRANTED[2], DONE[0]], 0)
@example(ONE_LIMIT, True, [PAUSED, None, UNPAUSED, GRANTED[1], *DONE, 0], 0)
@example(ONE_LIMIT, False, [NOT_LET, 0], 0)
@example(ONE_LIMIT, False, [FAILED[0]], 0)
def test_the_index_ends_where_the_engine_does_with_limits(
    definition: Workflow, is_scheduled: bool, events: list[Event | int | None], lost: int
) -> None:
    """None stands for the start, which says for how many limits the run waits. A grant of the first of two says that
    another one follows."""
    start = _waiting(definition)
    first = SCHEDULED if is_scheduled else start
    said = dict(zip(map(id, GRANTED), FIRST, strict=True)) if definition is TWO_LIMITS else {}
    _check_the_end(definition, first, [start if one is None else said.get(id(one), one) for one in events], lost)


def test_a_run_is_pending_until_its_limit_has_granted_a_slot() -> None:
    row = _next(None, _change(_waiting(ONE_LIMIT), 1, None, at_us=10))
    assert (RunStatus.PENDING, None, False) == (row.status, row.started_us, row.unconfirmed)
    row = _next(row, _change(GRANTED[0], 2, None, at_us=30))
    assert (RunStatus.RUNNING, 30, None, True) == (row.status, row.started_us, row.took_us, row.unconfirmed)
    row = _next(row, _change(COMPLETED, 3, 2, at_us=70))
    assert (RunStatus.COMPLETED, 40, False) == (row.status, row.took_us, row.unconfirmed)


def test_a_run_is_pending_until_the_last_of_its_limits_has_granted_a_slot() -> None:
    row = _next(None, _change(_waiting(TWO_LIMITS), 1, None, at_us=10))
    row = _next(row, _change(FIRST[0], 2, None, at_us=30))
    assert (RunStatus.PENDING, None, False) == (row.status, row.started_us, row.unconfirmed)
    row = _next(row, _change(TOKEN[0], 3, None, at_us=50))
    assert (RunStatus.RUNNING, 50) == (row.status, row.started_us)


def test_a_grant_that_the_run_does_not_want_any_more_is_corrected_when_the_run_is_folded() -> None:
    row = _next(None, _change(_waiting(ONE_LIMIT), 1, None, at_us=10))
    row = _next(row, _change(GRANTED[1], 2, None, at_us=30))
    row = _next(row, State(RUN_ID, RunStatus.PENDING, 2, 2))
    assert (RunStatus.PENDING, None, False) == (row.status, row.started_us, row.unconfirmed)


def test_a_start_that_does_not_say_so_is_corrected_when_the_first_of_two_limits_grants() -> None:
    row = _next(_next(None, _change(STARTED, 1, None, at_us=10)), _change(FIRST[0], 2, None, at_us=30))
    assert (RunStatus.RUNNING, 10, True) == (row.status, row.started_us, row.unconfirmed)


@pytest.mark.parametrize("labels", [(), ("of:one",)])
def test_a_failed_run_that_is_to_go_on_is_pending_until_its_limits_have_granted_slots(labels: tuple[str, ...]) -> None:
    row = Row(RUN_ID, "w", RunStatus.FAILED, 5, 7, 7, labels=labels, started_us=10, took_us=3)
    row = _next(row, _change(RESUMED_LATER[1], 8, None))
    assert (RunStatus.PENDING, 10, True) == (row.status, row.started_us, row.unconfirmed)
    row = _next(row, _change(FIRST[2], 9, None, at_us=30))
    assert RunStatus.PENDING is row.status
    row = _next(row, _change(TOKEN[2], 10, None, at_us=50))
    assert (RunStatus.RUNNING, 10, True) == (row.status, row.started_us, row.unconfirmed)


@pytest.mark.parametrize("labels", [(), ("of:one",)])
def test_a_start_that_does_not_say_so_is_corrected_when_a_limit_grants(labels: tuple[str, ...]) -> None:
    row = _next(None, replace(_change(STARTED, 1, None, at_us=10), labels=labels, created_us=10))
    row = _next(row, _change(GRANTED[0], 2, None, at_us=30))
    assert (RunStatus.RUNNING, 30, True) == (row.status, row.started_us, row.unconfirmed)


def test_a_run_that_goes_on_after_a_failure_has_started_before() -> None:
    row = Row(RUN_ID, "w", RunStatus.FAILED, 5, 7, 7, started_us=10, took_us=3)
    row = _next(_next(row, _change(RESUMED, 8, None)), State(RUN_ID, RunStatus.PENDING, 8, 8, started_us=10))
    assert (RunStatus.PENDING, 10, None) == (row.status, row.started_us, row.took_us)
    row = _next(row, _change(GRANTED[2], 9, None, at_us=90))
    assert (RunStatus.RUNNING, 10) == (row.status, row.started_us)


def test_a_run_that_nobody_disturbs_is_never_folded() -> None:
    logs: list[tuple[Workflow, list[Event | int]]] = [
        (WORKFLOW, [*DONE, 0]),
        (WORKFLOW, [REFUSED, 0]),
        (WORKFLOW, [CANCELLED]),
        (UNDOABLE, [DONE[0], FAILED_B, 0, UNDONE, 1]),
        (WORKFLOW, [PAUSED, DONE[0], UNPAUSED, DONE[1], 0]),
        (WORKFLOW, [PAUSED, DONE[0], CANCELLED]),
        (UNDOABLE, [DONE[0], PAUSED, FAILED_B, 0, UNPAUSED, UNDONE, 1]),
    ]
    for definition, events in logs:
        row: Row | None = None
        for number, (event, folded) in enumerate(_history([STARTED, *events], definition)[0], start=1):
            if type(event) in MOVES:
                row = _next(row, _change(event, number, folded))
                assert not row.unconfirmed
        assert row is not None
        assert row.status in RUN_ENDED


def test_every_move_is_one_that_the_engine_makes() -> None:
    pairs = [pair for of_event in MOVES.values() for pair in of_event.items()]
    moves = [(old, new) for old, new in pairs if old not in (None, new)]
    # what seemed to be the end of a run may be what makes it undo its steps: its owner says so next
    corrected = {(end, RunStatus.COMPENSATING) for end in (RunStatus.CANCELLED, RunStatus.FAILED)}
    assert corrected == {(old, new) for old, new in moves if new not in RUN_MOVES[old]}


def _waiting(definition: Workflow) -> WorkflowStarted:
    """The start of a run that waits for the limits of the definition."""
    assert definition.slots is not None
    return replace(STARTED, payload=replace(STARTED.payload, waits=len(definition.slots.limits)))


def _change(event: Event, number: int, folded: int | None, at_us: int | None = None) -> Change:
    undoes = isinstance(event, WorkflowCancelled) and event.payload.compensate
    waits = event.payload.waits if isinstance(event, WorkflowStarted | WorkflowResumed) else 0
    waits = event.payload.more if isinstance(event, LimitGranted) else waits
    return Change(RUN_ID, type(event), number, "w", folded=folded, undoes=undoes, at_us=at_us, waits=waits)


def _history(
    events: Sequence[Event | int], definition: Workflow = WORKFLOW
) -> tuple[list[tuple[Event, int | None]], list[Run]]:
    """The log, each event with what its sender had folded if that is the run's owner, and the run after each event."""
    run: Run | None = None
    log: list[tuple[Event, int | None]] = []
    ordered: list[tuple[Event, int | None]] = []
    runs: list[Run] = []
    for one in events:
        if isinstance(one, int) and not ordered:
            continue
        log.append(ordered[one % len(ordered)] if isinstance(one, int) else (one, None))
        run, commands = advance(definition, run, Record(len(log), EPOCH, log[-1][0]))
        assert run is not None
        runs.append(run)
        ordered += [
            (end, run.seq if _is_sure(definition, end) else None)
            for command in commands
            if (end := _end(command)) is not None
        ]
    return log, runs


def _is_sure(definition: Workflow, end: Event) -> bool:
    """As the shell sees it (`Effects._send_end`)."""
    return not isinstance(end, WorkflowFailed) or end.payload.compensation is not None or not can_undo(definition)


def _end(command: Command) -> Event | None:
    match command:
        case CompleteRun(event=event):
            return event
        case AppendEvent(event=event) if isinstance(event, ENDS):
            return event
    return None


def _next(row: Row | None, news: Change | Row | State) -> Row:
    found = fold({} if row is None else {RUN_ID: row}, [news]).get(RUN_ID, row)
    assert found is not None
    return found
