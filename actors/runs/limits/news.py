"""What runs are told of a decision about a limit: events for their histories."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.broker import message_ids
from penstock.engine.limits.records import Decided
from penstock.engine.run.event_payloads import Cancellation, SlotGrant, SlotRefusal
from penstock.engine.run.events import Event, LimitGranted, LimitRefused, WorkflowCancelled
from penstock.engine.times import rfc3339

FORMAT = 3  # of events that older versions do not know
REPLACED = "replaced"


def news(decided: Decided, limit_id: str, seq: int) -> Iterator[tuple[Event, str]]:
    """The events of the decision that is stored at `seq`, with their message ids, the same whoever informs the runs.
    Holders that make room are cancelled."""
    name, timestamp = decided.name, rfc3339(decided.at)
    for granted in decided.granted:
        slot = SlotGrant(
            granted.holder, limit_id, name.kind.value, name.scope, name.key, granted.step_id, more=granted.more
        )
        grant = LimitGranted(run_id=granted.run_id, timestamp=timestamp, payload=slot, v=FORMAT)
        yield grant, message_ids.of_slot_grant(granted.holder, limit_id, seq)
    for holder, reason in decided.refused:
        run_id, _ = run_of(holder)
        refusal = LimitRefused(
            run_id=run_id, timestamp=timestamp, payload=SlotRefusal(holder, limit_id, reason), v=FORMAT
        )
        yield refusal, message_ids.of_event(refusal)
    for holder in decided.evicted:
        run_id, resumes = run_of(holder)
        cancelled = WorkflowCancelled(run_id=run_id, timestamp=timestamp, payload=Cancellation(REPLACED))
        yield cancelled, message_ids.of_cancellation(run_id, resumes)


def run_of(holder: str) -> tuple[str, int]:
    """The run that a slot of runs is for, and how often it had been resumed."""
    run_id, _, resumes = holder.partition("+")[0].rpartition(".")
    return run_id, int(resumes)
