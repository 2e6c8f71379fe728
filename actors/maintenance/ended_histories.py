"""Reads whole histories of runs that have ended, many at once.

To find the events of one run costs the broker a search for each. Runs that were created one after the other stand close
together, so what is stored from the first to the last of them is read as a whole, if most of it is theirs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from typing import NamedTuple

from penstock.broker import names
from penstock.broker.archive.archived_runs import archive_seq, is_archive_mark
from penstock.broker.nats.direct import PAGE, Stored
from penstock.broker.nats.tail import Lost
from penstock.broker.store import Store
from penstock.config.limits import MIB
from penstock.engine.errors import Unavailable
from penstock.engine.run.events import Malformed, WorkflowScheduled, WorkflowStarted, decode

MESSAGES_MAX = 64  # that are read for each run: to look for one costs as much as to read so many
READ_BYTES_MAX = 8 * MIB  # of one run: a larger one stays where it is
TOGETHER_BYTES_MAX = 32 * MIB


class WholeHistory(NamedTuple):
    """All events of a run, of which the messages `former` of the archive have some."""

    events: Sequence[Stored]
    former: Collection[int] = ()


async def histories(store: Store, ends: Mapping[str, int]) -> dict[str, WholeHistory]:
    """The histories of those of these runs that were read together: those that end with these sequences, and are whole
    if `begins_with` says so. The first of the runs should be the one that was created first. Raises Unavailable."""
    first = await store.history.first(next(iter(ends))) if len(ends) > 1 else None
    if first is None or max(ends.values()) - first.seq > MESSAGES_MAX * len(ends):
        return {}
    found, size = defaultdict[str, list[Stored]](list), 0
    async with aclosing(_between(store, first.seq, max(ends.values()))) as stored:
        async for one in stored:
            run_id = names.event_run_id(one.subject)
            if run_id is not None and run_id in ends:
                found[run_id].append(one)
                size += len(one.data)
            if size > TOGETHER_BYTES_MAX:
                return {}
    return {run_id: WholeHistory(events) for run_id, events in found.items() if _is_whole(events, ends[run_id])}


async def _between(store: Store, first_seq: int, last_seq: int) -> AsyncGenerator[Stored]:
    """What is stored from one sequence to another. Raises Unavailable.

    By a consumer, for which the broker counts once what follows: for a direct read of several messages it does so each
    time. On a stream of a million runs that takes 80 ms, in which nothing is stored.
    """
    async with store.history.tail(first_seq - 1, brief=True) as tail:
        while first_seq <= last_seq:
            try:
                batch = await tail.waiting(min(PAGE, last_seq - first_seq + 1))
            except Lost as error:
                raise Unavailable(f"broker: the history was not read: {error}") from error
            if batch.last is None:
                return
            for read in batch.reads:
                yield read.stored()
            first_seq = batch.last.seq + 1


def begins_with(first: Stored, created_at: str) -> bool:
    """Whether this is the first event of a run that was created then: a scheduled run has a start behind it, with which
    it looks whole where its first event was not read."""
    return decode(first.data).timestamp == created_at


async def whole_history(store: Store, run_id: str, last_seq: int) -> WholeHistory | None:
    """All events of the run, wherever they are, if they begin with its start, and its history ends with this sequence.
    None also for a large one. Raises Unavailable."""
    events, former = list[Stored](), set[int]()
    size = last = 0
    async with aclosing(store.history.pages(run_id, by_index=False)) as pages:
        async for page in pages:
            last = last if archive_seq(page[0]) else page[-1].seq
            former |= {archive_seq(page[0])} - {0}
            events += [event for event in page if not is_archive_mark(event.data)]
            size += sum(len(event.data) for event in page)
            if size > READ_BYTES_MAX:
                return None
    return WholeHistory(events, former) if last == last_seq and events and _begins(events[0]) else None


def _is_whole(events: Sequence[Stored], last_seq: int) -> bool:
    """Whether nothing of it is in the archive, or before what was read."""
    return events[-1].seq == last_seq and _begins(events[0]) and not any(is_archive_mark(one.data) for one in events)


def _begins(first: Stored) -> bool:
    try:
        return isinstance(decode(first.data), WorkflowStarted | WorkflowScheduled)
    except Malformed:
        return False
