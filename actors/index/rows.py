"""The rows of the run index, and what makes one of another: pure, and the same for a file that is kept up and one that
is made anew.

The log's events are believed as far as a row can tell whether they apply: so what was written is seen at once, whoever
is up. An end that the run's owner tells, and says of which event it had folded the run by then, is one. Any other end,
and a run that goes on after one, is looked up by the follower: it folds the run by the rules of `engine.advance`, and
what that state says wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from penstock.engine.run.events import (
    Event,
    WorkflowCancelled,
    WorkflowCompleted,
    WorkflowFailed,
    WorkflowResumed,
    WorkflowScheduled,
    WorkflowStarted,
)
from penstock.engine.run.state import RUN_MOVES, RunStatus

# What an event makes of a run in each status, None meaning that nothing is known of it; anything else changes nothing.
MOVES: Mapping[type[Event], Mapping[RunStatus | None, RunStatus]] = {
    WorkflowScheduled: {None: RunStatus.SCHEDULED},
    WorkflowStarted: {None: RunStatus.RUNNING, RunStatus.SCHEDULED: RunStatus.RUNNING},
    WorkflowCancelled: {RunStatus.RUNNING: RunStatus.CANCELLED, RunStatus.SCHEDULED: RunStatus.CANCELLED},
    WorkflowCompleted: {RunStatus.RUNNING: RunStatus.COMPLETED},
    WorkflowFailed: {RunStatus.RUNNING: RunStatus.FAILED},
    WorkflowResumed: {RunStatus.FAILED: RunStatus.RUNNING},
}
# Whether any other applies depends on more than a row has: the steps, and how often the run was resumed.
ALWAYS_APPLY = frozenset({WorkflowScheduled, WorkflowStarted, WorkflowCancelled})


class Change(NamedTuple):
    """One event of the log, as far as the index cares. `workflow` and what follows it are set for the events that begin
    a run, `folded` for an end that the run's owner tells: the sequence of the last event that it had folded."""

    run_id: str
    kind: type[Event]
    seq: int
    workflow: str = ""
    created_us: int = 0
    rerun_of: str | None = None
    folded: int | None = None


class State(NamedTuple):
    """A run as folded: `seq` is its last event that applied, `upto` how far in the log that was looked at."""

    run_id: str
    status: RunStatus
    seq: int
    upto: int


class Row(NamedTuple):
    """`told` is the sequence of the last event that made its status; up to `confirmed` that status is sure."""

    run_id: str
    workflow: str
    status: RunStatus
    created_us: int
    told: int = 0
    confirmed: int = 0
    rerun_of: str | None = None

    @property
    def unconfirmed(self) -> bool:
        """Whether the run must be looked up."""
        return self.told > self.confirmed


News = Change | State | Row
"""A row among them is of a run whose beginning is not in the log any more."""


def fold(rows: Mapping[str, Row], news: Iterable[News]) -> dict[str, Row]:
    """The rows that the news make or change. A run keeps the workflow and the age that it began with; a state without a
    row is dropped."""
    changed: dict[str, Row] = {}
    for one in news:
        row = changed.get(one.run_id) or rows.get(one.run_id)
        found = _told(row, one) if isinstance(one, Change) else _confirmed(row, one)
        if found is not None:
            changed[one.run_id] = found
    return changed


def _told(row: Row | None, change: Change) -> Row | None:
    status = MOVES[change.kind].get(row and row.status)
    if status is None:
        return None
    if row is None:
        return Row(change.run_id, change.workflow, status, change.created_us, change.seq, change.seq, change.rerun_of)
    if change.seq <= max(row.told, row.confirmed):  # a state that was read before the log came so far has it already
        return None
    sure = change.seq if _is_sure(row, change) else row.confirmed
    return row._replace(status=status, told=change.seq, confirmed=sure)


def _is_sure(row: Row, change: Change) -> bool:
    """An owner that had folded all that the row knows is right in any case."""
    if change.folded is not None and change.folded >= max(row.told, row.confirmed):
        return True
    return change.kind in ALWAYS_APPLY and not row.unconfirmed


def _confirmed(row: Row | None, state: State | Row) -> Row | None:
    if isinstance(state, Row):
        if row is None:
            return state
        state = State(state.run_id, state.status, state.confirmed, state.confirmed)
    if row is None or state.upto < row.confirmed:
        return None
    if row.status is state.status and not row.unconfirmed:
        return None
    later = (
        row.told > state.upto and row.status in RUN_MOVES[state.status]
    )  # an event that its owner has not come to yet
    found = row._replace(status=row.status if later else state.status, confirmed=state.upto)
    return None if found == row else found
