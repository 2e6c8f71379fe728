"""The rows of the run index and how events change them. Pure: a rebuilt file gets the same rows as one that is updated.

An event of the log changes a row at once where the row is enough to know that the event applies: so lists show what was
written even if no engine is up. That includes an end that the run's owner has written, which names the last event that
it had folded. Any other end, and a run that is resumed, must be confirmed: the follower folds the run by the rules of
`engine.advance`, and the status of that state wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from penstock.engine.run.events import (
    Event,
    WorkflowCancelled,
    WorkflowCompensating,
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
    WorkflowCancelled: dict.fromkeys(
        (RunStatus.RUNNING, RunStatus.SCHEDULED, RunStatus.COMPENSATING), RunStatus.CANCELLED
    ),
    # after a cancellation, or after what the shell has said that the run fails of
    WorkflowCompensating: dict.fromkeys(
        (RunStatus.RUNNING, RunStatus.CANCELLED, RunStatus.FAILED), RunStatus.COMPENSATING
    ),
    WorkflowCompleted: {RunStatus.RUNNING: RunStatus.COMPLETED},
    WorkflowFailed: {RunStatus.RUNNING: RunStatus.FAILED, RunStatus.COMPENSATING: RunStatus.FAILED},
    WorkflowResumed: {RunStatus.FAILED: RunStatus.RUNNING},
}
# Whether any other applies depends on more than a row has: the steps, and how often the run was resumed.
ALWAYS_APPLY = frozenset({WorkflowScheduled, WorkflowStarted, WorkflowCancelled})


class Change(NamedTuple):
    """What the index needs of one event. `workflow`, `created_us`, `rerun_of` and `parent` are set for a run's first
    event; `folded` for an end written by the run's owner: the sequence of the last event that it had folded.
    `undoes`: the cancelled run may have steps to undo first."""

    run_id: str
    kind: type[Event]
    seq: int
    workflow: str = ""
    created_us: int = 0
    rerun_of: str | None = None
    parent: str | None = None
    folded: int | None = None
    undoes: bool = False


class State(NamedTuple):
    """A run as folded: `seq` is its last event that applied, `upto` the sequence up to which the log was read."""

    run_id: str
    status: RunStatus
    seq: int
    upto: int


class Row(NamedTuple):
    """`status_seq` is the sequence of the last event that changed the status; it is certain up to `confirmed`."""

    run_id: str
    workflow: str
    status: RunStatus
    created_us: int
    status_seq: int = 0
    confirmed: int = 0
    rerun_of: str | None = None
    parent: str | None = None

    @property
    def unconfirmed(self) -> bool:
        """Whether the run must be folded to be sure of its status."""
        return self.status_seq > self.confirmed


News = Change | State | Row
"""A Row is news of a run whose first event is not in the log any more."""


def fold(rows: Mapping[str, Row], news: Iterable[News]) -> dict[str, Row]:
    """The rows that the changes add or update. A run keeps its workflow and creation time; a state without a row is
    dropped."""
    changed: dict[str, Row] = {}
    for one in news:
        row = changed.get(one.run_id) or rows.get(one.run_id)
        found = _changed(row, one) if isinstance(one, Change) else _confirmed(row, one)
        if found is not None:
            changed[one.run_id] = found
    return changed


def _changed(row: Row | None, change: Change) -> Row | None:
    status = MOVES[change.kind].get(row and row.status)
    if status is None:
        return None
    if row is None:
        known = (change.workflow, status, change.created_us, change.seq, change.seq, change.rerun_of, change.parent)
        return Row(change.run_id, *known)
    if change.seq <= max(
        row.status_seq, row.confirmed
    ):  # a state that was read before the log came so far has it already
        return None
    sure = change.seq if _is_sure(row, change) else row.confirmed
    return row._replace(status=status, status_seq=change.seq, confirmed=sure)


def _is_sure(row: Row, change: Change) -> bool:
    """Whether the status needs no confirmation: an owner that had folded all events of the row is right."""
    if change.folded is not None and change.folded >= max(row.status_seq, row.confirmed):
        return True
    applies = change.kind in ALWAYS_APPLY and not change.undoes and row.status is not RunStatus.COMPENSATING
    return applies and not row.unconfirmed


def _confirmed(row: Row | None, state: State | Row) -> Row | None:
    if isinstance(state, Row):
        if row is None:
            return state
        state = State(state.run_id, state.status, state.confirmed, state.confirmed)
    if row is None or state.upto < row.confirmed:
        return None
    if row.status is state.status and not row.unconfirmed:
        return None
    # an event that its owner has not come to yet
    later = row.status_seq > state.upto and row.status in RUN_MOVES[state.status]
    found = row._replace(status=row.status if later else state.status, confirmed=state.upto)
    return None if found == row else found
