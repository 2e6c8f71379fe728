"""Runs that are archived or removed, as their owners see them: what is stored of them goes.

The owner does it: whoever archives or removes may die, and what the log says is carried out by the next owner. What
comes behind the mark of an archived run stays: it may have been brought back. What comes late changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.actors.runs.limits.late_grants import give_back
from penstock.actors.runs.shared.mailbox import PendingEvent
from penstock.broker.archive.archived_runs import ARCHIVED_START, ArchivedAt, archive_mark_in
from penstock.broker.store import Store
from penstock.broker.streams.history import REMOVAL_TTL
from penstock.engine.run.events import REMOVED_RUN, WorkflowRemoved, decode


def until_archived(events: Sequence[PendingEvent]) -> int:
    """How many of these events there are up to the last that says that the run is in the archive; 0: none does."""
    for number in range(len(events), 0, -1):
        if events[number - 1].delivery.data.startswith(ARCHIVED_START):
            return number
    return 0


async def put_away(store: Store, run_id: str, events: Sequence[PendingEvent]) -> None:
    """Delete snapshot and history of a run up to the last of these events, a mark, and before them what the archive had
    of it: whoever finds no history must not find less than all of it in the archive. Raises Unavailable (it may be
    repeated)."""
    await take_late(store, events)
    mark = events[-1]
    found = archive_mark_in(mark.delivery.data)
    if found is not None:
        await store.archive.remove(found.payload.former)
    named = () if found is None else found.payload.events
    if found is not None and named and not await _has(store, run_id, found.payload):
        named = ()  # nobody may have other runs' events removed by a mark
    await store.run_data.put_away(run_id, mark.delivery.seq, named)


async def _has(store: Store, run_id: str, place: ArchivedAt) -> bool:
    """Whether this message of the archive has this run, with the events that are named here."""
    archived = await store.archive.get(run_id, place.seq)
    return archived is not None and tuple(event.seq for event in archived.events) == place.events


async def take_late(store: Store, events: Sequence[PendingEvent]) -> None:
    """What comes late for an archived run changes nothing; slots that it is granted are given back. Raises
    Unavailable."""
    for event in events:
        await give_back(store, event.delivery.data)


async def remove_run(store: Store, run_id: str, removed: int, events: Sequence[PendingEvent]) -> None:
    """Delete what is stored of a run that was removed by the event `removed`, and those of these events that came
    later."""
    await store.run_data.remove(run_id, removed, _archived_of(events))
    # The first snapshot of a former owner may still be on its way, and readers would trust it: it is refused so.
    await store.runs.delete(run_id, ttl=REMOVAL_TTL)
    for late in [event.delivery for event in events if event.delivery.seq > removed]:
        await give_back(store, late.data)
        await store.history.erase(late.seq)


async def is_put_away(store: Store, run_id: str) -> bool:
    """Whether the run, of which nothing that begins it is in the history, is archived. Raises Unavailable as long as
    that is not known."""
    return await store.archive.find(run_id) is not None


def _archived_of(events: Sequence[PendingEvent]) -> set[int]:
    """The messages of the archive that have the run which these events remove."""
    decoded = (decode(event.delivery.data) for event in events if event.delivery.data.startswith(REMOVED_RUN))
    return {seq for event in decoded if isinstance(event, WorkflowRemoved) for seq in event.archived}
