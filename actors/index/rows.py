"""The rows of the run index and how events change them. Pure: a rebuilt file gets the same rows as one that is updated.

An event of the log changes a row at once where the row is enough to know that the event applies: so lists show what was
written even if no engine is up. That includes an end that the run's owner has written, which names the last event that
it had folded. Any other end, and a run that is resumed, must be confirmed: the follower folds the run by the rules of
`engine.advance`, and the status of that state wins. So must the begin of a run that was pending: its last limit has
granted it a slot, but the row does not know whether the run still wants it.

That a run is paused stands among its labels: of a run that never was there is nothing, and a list of those that are
is found like that of a label.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct

from penstock.config.limits import RUN_LABELS_MAX
from penstock.engine.definition.labels import is_label
from penstock.engine.run.event_payloads import TriggerRef
from penstock.engine.run.events import (
    Event,
    LimitGranted,
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
from penstock.engine.run.holds import RunPause
from penstock.engine.run.state import RUN_ENDED, RUN_MOVES, RunStatus

SAME: Mapping[RunStatus | None, RunStatus] = {status: status for status in RunStatus}

# What an event makes of a run in each status, None meaning that nothing is known of it; anything else changes nothing.
# A run whose start, or whose going on, says that it waits for limits is pending in place of running, until it has a
# grant that no other follows.
MOVES: Mapping[type[Event], Mapping[RunStatus | None, RunStatus]] = {
    WorkflowScheduled: {None: RunStatus.SCHEDULED},
    WorkflowStarted: {None: RunStatus.RUNNING, RunStatus.SCHEDULED: RunStatus.RUNNING},
    WorkflowCancelled: dict.fromkeys(
        (RunStatus.RUNNING, RunStatus.PENDING, RunStatus.SCHEDULED, RunStatus.COMPENSATING), RunStatus.CANCELLED
    ),
    # after a cancellation, or after what the shell has said that the run fails of
    WorkflowCompensating: dict.fromkeys(
        (RunStatus.RUNNING, RunStatus.CANCELLED, RunStatus.FAILED), RunStatus.COMPENSATING
    ),
    WorkflowCompleted: {RunStatus.RUNNING: RunStatus.COMPLETED},
    WorkflowFailed: dict.fromkeys((RunStatus.RUNNING, RunStatus.PENDING, RunStatus.COMPENSATING), RunStatus.FAILED),
    WorkflowResumed: {RunStatus.FAILED: RunStatus.RUNNING},
    WorkflowPaused: SAME,
    WorkflowUnpaused: SAME,
    LimitGranted: dict.fromkeys((RunStatus.PENDING, RunStatus.RUNNING), RunStatus.RUNNING),  # of the run itself
    WorkflowRemoved: {},  # no status: the row goes (file.py)
}
# Whether any other applies depends on more than a row has: the steps, and how often the run was resumed.
ALWAYS_APPLY = frozenset({WorkflowScheduled, WorkflowStarted, WorkflowCancelled})
PAUSES = frozenset({WorkflowPaused, WorkflowUnpaused})


class Change(Struct, frozen=True, gc=False):
    """What the index needs of one event. `workflow`, `created_us`, `rerun_of`, `parent` and `labels` are set for a
    run's first event; `folded` for an end written by the run's owner: the sequence of the last event that it had
    folded. `undoes`: the cancelled run may have steps to undo first. `at_us` is the time of a start, a grant or
    an end, `waits` the number of limits that a run which starts or goes on waits for, or still waits for after a
    grant."""

    run_id: str
    kind: type[Event]
    seq: int
    workflow: str = ""
    created_us: int = 0
    rerun_of: str | None = None
    parent: str | None = None
    labels: tuple[str, ...] = ()
    folded: int | None = None
    undoes: bool = False
    at_us: int | None = None
    waits: int = 0


class State(NamedTuple):
    """A run as folded: `seq` is its last event that applied, `upto` the sequence up to which the log was read. `pause`
    is what `pause_texts` says of it, `took_us` how long it took from its start (`started_us`) to its end."""

    run_id: str
    status: RunStatus
    seq: int
    upto: int
    pause: tuple[str, ...] = ()
    took_us: int | None = None
    started_us: int | None = None


class Row(NamedTuple):
    """`status_seq` is the sequence of the last event that changed the status or the pause; they are certain up to
    `confirmed`.

    `labels` are texts `key:value`, `:name` for the trigger that has started the run, IMPORTED_TEXT, and last those of
    `pause_texts`. A run that has ended keeps these until its end is certain. `started_us` is when it has started, and
    `took_us` how long it took from there to its last end; None for what is not known, as of imported runs,
    or has not come yet, as of pending ones.
    """

    run_id: str
    workflow: str
    status: RunStatus
    created_us: int
    status_seq: int = 0
    confirmed: int = 0
    rerun_of: str | None = None
    parent: str | None = None
    labels: tuple[str, ...] = ()
    started_us: int | None = None
    took_us: int | None = None

    @property
    def unconfirmed(self) -> bool:
        """Whether the run must be folded to be sure of its status."""
        return self.status_seq > self.confirmed


News = Change | State | Row
"""A Row is news of an imported run, or of one whose first event is not in the log any more."""


def label_texts(labels: Mapping[str, str] | None, trigger: TriggerRef | None) -> tuple[str, ...]:
    """The labels of a row. Of those that another program has written into the log, the valid ones."""
    texts = [] if trigger is None else [trigger_text(trigger.name)]
    if labels:
        texts += [f"{key}:{value}" for key, value in labels.items() if is_label(key, value)][:RUN_LABELS_MAX]
    return tuple(texts)


IMPORTED_TEXT = "::imported"
"""What stands among the labels of an imported run: no trigger has such a name."""

PAUSED_TEXT = "::paused"
DUE_TEXT = "::due"
PAUSE_TEXTS = frozenset({PAUSED_TEXT, DUE_TEXT})


def pause_texts(pause: RunPause | None) -> tuple[str, ...]:
    """What stands among the labels of a paused run: that it is, and whether it is to start when it goes on."""
    if pause is None:
        return ()
    return (PAUSED_TEXT, DUE_TEXT) if pause.starts else (PAUSED_TEXT,)


def with_pause(labels: tuple[str, ...], pause: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The labels, with these texts in place of those about a pause."""
    return (*(text for text in labels if text not in PAUSE_TEXTS), *pause)


def trigger_text(name: str) -> str:
    """What stands among the labels for a run's trigger: no key of a label is empty."""
    return f":{name}"


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
    if change.waits:
        status = RunStatus.PENDING if row is None or change.kind is not LimitGranted else row.status
        if row is not None and change.kind is LimitGranted and status is RunStatus.PENDING:
            return None
    if row is None:
        begun_us = None if change.waits else change.at_us
        run_id, workflow, created_us, seq = change.run_id, change.workflow, change.created_us, change.seq
        of = (change.rerun_of, change.parent, change.labels)
        return Row(run_id, workflow, status, created_us, seq, seq, *of, begun_us)
    if change.seq <= max(
        row.status_seq, row.confirmed
    ):  # a state that was read before the log came so far has it already
        return None
    is_sure, labels = _is_sure(row, change), row.labels
    if labels or change.kind in PAUSES:
        status, labels = _paused(row, change) if change.kind in PAUSES else _moved(row, change, status)
        if status is row.status and labels == row.labels and (change.kind is not LimitGranted or PAUSED_TEXT in labels):
            return None
        if is_sure and status in RUN_ENDED:
            labels = with_pause(labels)
    sure = change.seq if is_sure else row.confirmed
    started_us, took_us = _times(row, change)
    return Row(
        row.run_id,
        row.workflow,
        status,
        row.created_us,
        change.seq,
        sure,
        row.rerun_of,
        row.parent,
        labels,
        started_us,
        took_us,
    )  # twice as fast as _replace


def _times(row: Row, change: Change) -> tuple[int | None, int | None]:
    """When the run has started, and how long it took, after a change."""
    if change.at_us is None or (change.waits and change.kind is LimitGranted):
        return row.started_us, row.took_us
    if change.kind is WorkflowStarted:
        return None if change.waits else change.at_us, None
    if change.kind is LimitGranted:  # one that goes on after a failure has started before
        begins = row.started_us is None or row.started_us == row.created_us
        return max(change.at_us, row.created_us + 1) if begins else row.started_us, None
    return row.started_us, None if row.started_us is None else max(0, change.at_us - row.started_us)


def _moved(row: Row, change: Change, status: RunStatus) -> tuple[RunStatus, tuple[str, ...]]:
    """Status and labels after an event that leads to this status, unless the run is paused."""
    if PAUSED_TEXT not in row.labels:
        return status, row.labels
    if change.kind is WorkflowStarted:  # it starts when it goes on
        return row.status, with_pause(row.labels, (PAUSED_TEXT, DUE_TEXT))
    if change.kind is LimitGranted:  # it has given up its request
        return row.status, row.labels
    cancelled = change.kind is WorkflowCancelled and row.status is not RunStatus.COMPENSATING
    return status, with_pause(row.labels) if cancelled or change.kind is WorkflowResumed else row.labels


def _paused(row: Row, change: Change) -> tuple[RunStatus, tuple[str, ...]]:
    """Status and labels of a run that is paused, or goes on, if it has not ended for sure."""
    if row.status in RUN_ENDED and not row.unconfirmed:
        return row.status, row.labels
    if change.kind is WorkflowPaused:
        return row.status, row.labels if PAUSED_TEXT in row.labels else with_pause(row.labels, (PAUSED_TEXT,))
    if row.status is not RunStatus.SCHEDULED or DUE_TEXT not in row.labels:
        return row.status, with_pause(row.labels)
    return RunStatus.PENDING if row.started_us is None else RunStatus.RUNNING, with_pause(row.labels)


def _is_sure(row: Row, change: Change) -> bool:
    """Whether the row needs no confirmation: an owner that had folded all events of the row is right."""
    if change.folded is not None and change.folded >= max(row.status_seq, row.confirmed):
        return True
    applies = change.kind in ALWAYS_APPLY and not change.undoes and row.status is not RunStatus.COMPENSATING
    is_known = row.started_us is not None or DUE_TEXT not in row.labels  # whether it waits when it goes on
    return (applies or (change.kind in PAUSES and is_known)) and not row.unconfirmed


def _confirmed(row: Row | None, state: State | Row) -> Row | None:
    if isinstance(state, Row):
        if row is None:
            return state
        pause = tuple(text for text in state.labels if text in PAUSE_TEXTS)
        state = State(state.run_id, state.status, state.confirmed, state.confirmed, pause, state.took_us)
    if row is None or state.upto < row.confirmed:
        return None
    labels = row.labels if row.status_seq > state.upto else with_pause(row.labels, state.pause)
    if row.status is state.status and not row.unconfirmed and labels == row.labels:
        return None
    # an event that its owner has not come to yet
    later = row.status_seq > state.upto and row.status in RUN_MOVES[state.status]
    status, took_us = (row.status, row.took_us) if later else (state.status, state.took_us)
    from_grant = state.started_us is not None and row.started_us not in (None, row.created_us)
    is_pending = state.status is RunStatus.PENDING and not later
    started_us = state.started_us if is_pending or from_grant else row.started_us
    found = row._replace(status=status, confirmed=state.upto, labels=labels, started_us=started_us, took_us=took_us)
    return None if found == row else found
