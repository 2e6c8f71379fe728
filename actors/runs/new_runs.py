"""Runs that are certainly new: nothing of them is in the store that would have to be read. It is the usual case."""

from __future__ import annotations

from datetime import datetime

from penstock.actors.runs.shared.mailbox import PendingEvent
from penstock.broker.nats.headers import into_empty
from penstock.broker.run_ids import made_at
from penstock.broker.store import Store
from penstock.config.limits import SCHEDULE_AHEAD_MIN_S, SNAPSHOT_AFTER_S
from penstock.engine.definition.identifiers import is_run_id
from penstock.engine.errors import NotFound
from penstock.engine.run.event_payloads import ParentRef
from penstock.engine.run.events import Malformed, WorkflowScheduled, WorkflowStarted, decode
from penstock.engine.run.workflow import Workflow

YOUNG_S = SNAPSHOT_AFTER_S  # less than the broker's 5 s window for repeated message ids: see workflow_of_new


async def workflow_of_new(store: Store, run_id: str, pending: PendingEvent) -> Workflow | None:
    """The definition of a run that this first event of its history begins; None if the run has to be read.

    Only the first delivery of an event counts whose time-ordered run id was made just before it was stored. The broker
    refuses a repeat of the start within that time; a later one comes with an id that is not young any more. Any id will
    do for a start that the broker stores only into an empty history: that of a child, and one with an idempotency key.
    """
    first = pending.delivery
    try:
        event = decode(first.data)
    except Malformed:
        return None
    if not isinstance(event, WorkflowStarted | WorkflowScheduled) or event.run_id != run_id:
        return None
    if not (into_empty(first.headers) or _is_first(event, first.at)):
        return None
    started, pending.event = event.payload, event
    try:
        return store.definitions.compiled(started.digest) or await store.definitions.load(
            started.workflow, started.digest
        )
    except NotFound:
        return None


def _is_first(event: WorkflowStarted | WorkflowScheduled, at: float) -> bool:
    """Whether this event, stored at that time, is certainly the first of its run."""
    if isinstance(event, WorkflowStarted):
        if isinstance(event.payload.parent, ParentRef):
            return True
        if _waited_for_its_time(event):
            return False  # it may have been cancelled, and its former actor be gone
    return _is_young(event.run_id, at)


def _is_young(run_id: str, now: float) -> bool:
    """Whether a time-ordered run id was made less than 3 s before (or after) `now`, in s since the epoch. It may be
    younger than it says (broker/run_ids.py), which is no harm: then it is looked for in the store."""
    return is_run_id(run_id) and run_id[12] == "7" and abs(now - made_at(run_id)) < YOUNG_S


def _waited_for_its_time(started: WorkflowStarted) -> bool:
    """Whether a run with a time-ordered id was scheduled, or may have been: its start's timestamp is well after the id.

    Both come from one clock, the front end's: it does not matter how long the event was in flight.
    """
    try:
        start_at = datetime.fromisoformat(started.timestamp).timestamp()
    except ValueError:
        return True
    return start_at - made_at(started.run_id) > SCHEDULE_AHEAD_MIN_S / 2
