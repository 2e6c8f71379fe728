"""The run index ends where `advance` does: whatever is in the log, and however its two sources overtake each other."""

from __future__ import annotations

import os

from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.actors.index_rows import MOVES, Change, Row, State, fold
from penstock.engine.advance import advance
from penstock.engine.events import (
    Event,
    Record,
    RunFailure,
    Scheduled,
    Started,
    StepCompleted,
    WorkflowCancelled,
    WorkflowCompleted,
    WorkflowFailed,
    WorkflowResumed,
    WorkflowScheduled,
    WorkflowStarted,
)
from penstock.engine.state import RUN_MOVES, Run
from tests.engine.build import DIGEST, EPOCH, RUN_ID, step, workflow

EXAMPLES = int(os.environ.get("PROPERTY_EXAMPLES", "0"))
WORKFLOW = workflow(step("a"), step("b", "a"))

STARTED = WorkflowStarted(run_id=RUN_ID, payload=Started(workflow="w", version="1", digest=DIGEST))
SCHEDULED = WorkflowScheduled(run_id=RUN_ID, payload=Scheduled(workflow="w", version="1", digest=DIGEST, run_at="2030-01-01T00:00:00Z"))
COMPLETED, CANCELLED, RESUMED = WorkflowCompleted(run_id=RUN_ID), WorkflowCancelled(run_id=RUN_ID), WorkflowResumed(run_id=RUN_ID)
DONE = [StepCompleted(run_id=RUN_ID, step_id=step_id) for step_id in "ab"]
FAILED = [WorkflowFailed(run_id=RUN_ID, payload=RunFailure(error="x", resumes=resumes)) for resumes in range(3)]

EVENTS = st.lists(st.sampled_from([STARTED, SCHEDULED, COMPLETED, CANCELLED, RESUMED, *DONE, *FAILED]), max_size=12)
# After each event of the log: how many of the owner's snapshots have been read by then. Of several, only the last is left.
READ = st.lists(st.integers(0, 12), min_size=12, max_size=12)


@settings(max_examples=EXAMPLES or 300)
@given(EVENTS, READ)
@example([STARTED, FAILED[0], RESUMED, FAILED[0], *DONE, COMPLETED], [0] * 12)
@example([STARTED, COMPLETED], [0] * 12)
@example([STARTED, *DONE, COMPLETED, CANCELLED], [0, 0, 0, 0, 5] + [0] * 7)
def test_the_index_ends_where_the_engine_does(events: list[Event], read: list[int]) -> None:
    runs = _runs(events)
    row: Row | None = None
    for number, event in enumerate([STARTED, *events], start=1):
        row = _next(row, _change(event, number))
        known = runs[min(read[number % 12], len(runs) - 1)]
        row = _next(row, State(RUN_ID, known.status, known.seq, known.seq))
    last = runs[-1]
    row = _next(row, State(RUN_ID, last.status, last.seq, last.seq))
    assert row is not None
    if row.unconfirmed:
        row = _next(row, State(RUN_ID, last.status, last.seq, len(runs)))
    assert row is not None
    assert (last.status, False) == (row.status, row.unconfirmed)


def test_every_move_is_one_that_the_engine_makes() -> None:
    moves = [(old, new) for of_event in MOVES.values() for old, new in of_event.items() if old is not None]
    assert [] == [(old, new) for old, new in moves if new not in RUN_MOVES[old]]


def _runs(events: list[Event]) -> list[Run]:
    """The run after each event."""
    run: Run | None = None
    found: list[Run] = []
    for number, event in enumerate([STARTED, *events], start=1):
        run, _ = advance(WORKFLOW, run, Record(number, EPOCH, event))
        assert run is not None
        found.append(run)
    return found


def _change(event: Event, seq: int) -> list[Change]:
    return [Change(RUN_ID, type(event), seq, "w")] if type(event) in MOVES else []


def _next(row: Row | None, news: list[Change] | State) -> Row | None:
    found = fold({} if row is None else {RUN_ID: row}, [news] if isinstance(news, State) else news)
    return found.get(RUN_ID, row)
