"""Whether an engine has the partition of a run, and how far it is with the partition's events."""

from __future__ import annotations

from penstock.broker import names
from penstock.broker.records.owners import View
from penstock.broker.store import Store
from penstock.config.limits import ACK_HELD_BACK_S, SILENCE_S, SNAPSHOT_AFTER_S
from penstock.engine.waiting.facts import EngineProgress

UNDELIVERED_S = 1.0  # an event that waits for its engine for so long is worth a sentence
# Acknowledgements come late on purpose: only what was not acknowledged for so long is not handled
UNHANDLED_S = ACK_HELD_BACK_S + SNAPSHOT_AFTER_S + 2.0


async def engine_progress(store: Store, run_id: str, last_seq: int, now: float) -> EngineProgress:
    """How far the run's engine is; `last_seq` is the sequence of the run's last event, `now` the broker's time. Raises
    Unavailable."""
    partition = names.partition(run_id)
    view = await store.owners.read()
    claimed = view.claims.get(partition)
    if claimed is None or not is_owned(view, partition, now):
        return EngineProgress(partition, owned=False)
    progress = await store.consumers.progress(claimed.claim.consumer)
    if progress is None:
        return EngineProgress(partition)
    handled_before = view.handled_before(partition, claimed.claim.log)
    return await _lag(store, partition, progress.delivered, handled_before, last_seq, now)


def is_owned(view: View, partition: int, now: float) -> bool:
    """Whether a living engine has the partition, as far as its heartbeats say."""
    claimed = view.claims.get(partition)
    if claimed is None or claimed.claim.owner not in view.members:
        return False
    return now - view.renewed_at.get(claimed.claim.owner, now) < SILENCE_S


async def _lag(
    store: Store, partition: int, delivered: int, handled_before: int, last_seq: int, now: float
) -> EngineProgress:
    """What lies before the run's last event, if that has waited for long. The consumer may be that of all partitions,
    so the partition's own events are counted."""
    if last_seq > delivered:
        first, bound_s = delivered + 1, UNDELIVERED_S
    elif last_seq >= handled_before:
        first, bound_s = handled_before, UNHANDLED_S
    else:
        return EngineProgress(partition)
    event = await store.history.first_in(partition, first)
    if event is None or now - event.at < bound_s:
        return EngineProgress(partition)
    events = max(1, await store.history.count_in(partition, first))
    return EngineProgress(partition, events=events, seconds=now - event.at)
